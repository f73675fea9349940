"""Unions and intersections of time spans."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.probe.spans import Span, close_gaps, intersect, length, merge

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


def test_short_gaps_are_closed_and_long_ones_stay() -> None:
    assert close_gaps([(0, 1), (1.5, 2), (4, 5)], 1) == [(0, 2), (4, 5)]
    assert close_gaps([], 1) == []
