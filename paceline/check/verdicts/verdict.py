"""What a judge says about one check.

Exercise: `pytest tests/check/test_verdicts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from paceline.check.observations import Event, Seen

Answer = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """An answer, what it rests on, and for a failure where it is and what to change."""

    answer: Answer
    reason: str
    line: int | None = None
    file: str | None = None  # where the line is, when it is not in the script itself
    change: str | None = None


Judge = Callable[[Seen], Verdict]


def passes(reason: str) -> Verdict:
    return Verdict("pass", reason)


def fails(reason: str, change: str, at: Event | None = None) -> Verdict:
    """`at` is the observation whose line is to blame."""
    where = at or {}
    return Verdict("fail", reason, where.get("line"), where.get("file"), change)


def unknown(reason: str) -> Verdict:
    return Verdict("unknown", reason)


def count(number: int, singular: str, plural: str | None = None) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
