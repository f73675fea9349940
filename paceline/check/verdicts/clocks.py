"""The script's own clocks: which it reads, and where in each step.

Exercise: `pytest tests/check/test_verdicts_timing.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from paceline.check.observations import Event, Rank

# They leave waiting out, for other ranks too, and add up threads.
CPU_CLOCKS = ("process_time", "process_time_ns", "thread_time", "thread_time_ns")


def list_clocks(rank: Rank) -> list[str]:
    """Those that are read, the one that is read most first."""
    counts = Counter(event["function"] for event in rank.all("clock"))
    return sorted(counts, key=lambda name: (-counts[name], name in CPU_CLOCKS))


def read_clock(rank: Rank, function: str) -> list[Event]:
    return [event for event in rank.all("clock") if event["function"] == function]


@dataclass
class TimedStep:
    """Readings of the script's clock around one optimizer step."""

    before: list[Event]  # since the step before
    within: list[Event]  # from its first forward until the optimizer has moved
    after: list[Event] = field(default_factory=list)  # until the next forward
    waits_after: bool = False  # was the device waited for between the move and the first reading after it?
    move: Event | None = None

    @property
    def intervals(self) -> dict[str, float]:
        """What a script may take for the step's duration, in seconds, where it reads the clock for it."""
        ends = {
            "whole": (self.before[-1:], self.after[:1]),
            "stops": (self.before[-1:], self.within[-1:]),
            "starts": (self.within[:1], self.after[:1]),
        }
        return {
            name: float(end[0]["value_s"] - start[0]["value_s"])
            for name, (start, end) in ends.items()
            if start and end
        }

    @property
    def duration_s(self) -> float | None:
        return self.intervals.get("whole")


def read_timed_steps(rank: Rank, function: str) -> list[TimedStep]:
    """By one of the script's clocks: two clocks have no common zero."""
    steps: list[TimedStep] = []
    gap: list[Event] = []
    within: list[Event] = []
    training, waited = False, False
    for event in rank.events:
        what = event["what"]
        if what == "forward" and event["grad"] and not training:
            if steps:
                steps[-1].after = gap
            steps.append(TimedStep(before=gap, within=(within := [])))
            gap, training = [], True
        elif what == "move" and training:
            steps[-1].move = event
            training, waited = False, False
        elif what == "wait":
            waited = True
        elif what == "clock" and event["function"] == function:
            if training:
                within.append(event)
            else:
                if steps and not gap:
                    steps[-1].waits_after = waited
                gap.append(event)
    if steps and not training:
        steps[-1].after = gap
    return [step for step in steps if step.move is not None]
