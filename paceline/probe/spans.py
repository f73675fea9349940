"""Sets of moments: union, intersection and length of time spans. Plain arithmetic.

pytest tests/unit/test_spans.py
"""

from __future__ import annotations

Span = tuple[float, float]
TOUCHING_S = 20e-6  # work that follows so closely is drawn as one


def merge(spans: list[Span]) -> list[Span]:
    """Their union as disjoint spans in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def close_gaps(spans: list[Span], shorter_s: float) -> list[Span]:
    """Disjoint spans in order, as one where hardly anything lies between."""
    closed: list[Span] = []
    for start, end in spans:
        if closed and start - closed[-1][1] < shorter_s:
            closed[-1] = (closed[-1][0], end)
        else:
            closed.append((start, end))
    return closed


def intersect(left: list[Span], right: list[Span]) -> list[Span]:
    """What two merged lists have in common."""
    common: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def length(spans: list[Span]) -> float:
    """The total of disjoint spans."""
    return sum(end - start for start, end in spans)
