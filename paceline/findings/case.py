"""What a detector looks at, and how it writes numbers.

In: a row and what surrounds it. Out: a `Case`. Exercise: `pytest tests/unit/test_explain.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paceline.analyse.scaling import work_growth
from paceline.analyse.straggler import Straggler, find_straggler
from paceline.quantity import format_duration
from paceline.record import Row, RunRecord, Severity

LARGE_SHARE = 0.25  # of the step: from here on a finding is a warning
# Devices that work while the host waits: there the host's phases are where the time goes.
HOST_WAITS = ("cpu", "virtual")


def severity_of(share: float) -> Severity:
    return "warning" if share >= LARGE_SHARE else "note"


@dataclass(frozen=True)
class Case:
    """One row with the runs that it rests on, and the row that it is compared with."""

    row: Row
    runs: Sequence[RunRecord]  # that ended well
    ended_ill: Sequence[RunRecord]
    base: Row | None  # the smallest world of the same program and arguments, when that is another row
    base_runs: Sequence[RunRecord]

    def value(self, name: str, default: float = 0.0) -> float:
        """The median of one of the row's metrics."""
        metric = self.row.metrics.get(name)
        return default if metric is None else metric.median

    def base_value(self, name: str) -> float:
        metric = self.base.metrics.get(name) if self.base else None
        return 0.0 if metric is None else metric.median

    @property
    def step_time_s(self) -> float:
        return self.value("step_time_s")

    def facts(self, name: str) -> list[dict[str, Any]]:
        """One fact of all ranks of all runs."""
        return [rank.facts[name] for run in self.runs for rank in run.ranks if name in rank.facts]

    @property
    def ranks_are_apart(self) -> bool:
        """Several ranks, and not one collective was recognised in any of them."""
        calls = [fact["calls"] for fact in self.facts("communication") if "calls" in fact]
        return self.row.world > 1 and bool(calls) and not any(calls)

    @cached_property
    def straggler(self) -> Straggler | None:
        """The rank that the others wait for, which they do in collectives."""
        return None if self.ranks_are_apart else find_straggler(self.runs)

    @property
    def work(self) -> float:
        """Samples of one step over those of one step of the base."""
        return (work_growth(self.base_runs, self.runs) if self.base_runs and self.runs else None) or 1.0

    @property
    def device(self) -> str:
        starts = [rank.start for run in self.runs for rank in run.ranks]
        return str(starts[0].get("device", "cpu")) if starts else "cpu"

    @property
    def phases_tell(self) -> bool:
        """Whether the phases of the host are those of the work. An accelerator works on while the host is
        elsewhere, and the host waits for it where the script reads a loss."""
        return self.device in HOST_WAITS


def percent(share: float) -> str:
    """0.456 → `46 %`; small shares keep a digit."""
    return f"{share * 100:.0f} %" if share >= 0.095 else f"{share * 100:.1f} %"


def of_step(part_s: float, step_s: float) -> str:
    """`4.40 ms of each 10.3 ms step (43 %)`."""
    return f"{format_duration(part_s)} of each {format_duration(step_s)} step ({percent(part_s / step_s)})"


def count(number: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ordinal(number: int) -> str:
    """`2nd`, `3rd`, `7th`, `12th`, `22nd`."""
    last = 0 if 10 < number % 100 < 20 else number % 10
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"


def sentence(text: object) -> str:
    """Somebody else's words as a sentence: a capital letter, one full stop."""
    text = str(text or "no cause is known").strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
