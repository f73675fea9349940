"""Unions and intersections of time spans."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.probe.spans import Span, intersect, length, merge

spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 10)).map(lambda s: (float(s[0]), float(s[0] + s[1])))
)


def covered(some: list[Span]) -> set[int]:
    return {second for start, end in some for second in range(int(start), int(end))}


@given(spans, spans)
def test_spans_behave_as_sets_of_moments(left: list[Span], right: list[Span]) -> None:
    assert covered(merge(left)) == covered(left)
    assert length(merge(left)) == len(covered(left))
    assert covered(intersect(merge(left), merge(right))) == covered(left) & covered(right)
