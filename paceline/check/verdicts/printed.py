"""The numbers that a script prints, and what they may be the mean of.

Exercise: `pytest tests/check/test_verdicts_timing.py`.
"""

from __future__ import annotations

import math
import re
import statistics
from typing import NamedTuple

from paceline.check.observations import Event, Rank

WARMUP_STEPS = 5
MOST_DROPPED = 12
DROPPED = (*range(MOST_DROPPED + 1), 15, 20, 25, 30)  # how many of the first steps a script may leave out
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?:e[-+]?\d+)?")
UNITS = (1.0, 1e3, 1e6)  # printed as seconds, milliseconds or microseconds


class Printed(NamedTuple):
    number: float
    decimals: int

    @property
    def digits(self) -> float:
        """As a whole number: 0.0123 is 123."""
        return self.number * 10.0**self.decimals


def read_printed(rank: Rank) -> list[Printed]:
    """Numbers with decimals printed after the last step."""
    return [number for line in lines_after_training(rank) for number in read_numbers(line)]


def read_numbers(line: Event) -> list[Printed]:
    return [
        Printed(float(number), len(number.partition("e")[0].partition(".")[2]))
        for number in NUMBER.findall(line["text"])
    ]


def lines_after_training(rank: Rank) -> list[Event]:
    last_move = max((place for place, e in enumerate(rank.events) if e["what"] == "move"), default=0)
    return [event for event in rank.events[last_move:] if event["what"] == "print"]


def find_report(rank: Rank) -> Event | None:
    lines = [line for line in lines_after_training(rank) if NUMBER.search(line["text"])]
    return lines[-1] if lines else None


def states(printed: list[Printed], durations: list[float]) -> bool:
    """Is one of the printed numbers the mean, the median or the sum of these, or steps per second?"""
    wanted = [statistics.mean(durations), statistics.median(durations), sum(durations)]
    values = [value * unit for value in wanted for unit in UNITS]
    if wanted[0] > 0:
        values.append(1 / wanted[0])
    return any(
        math.isclose(number, value, rel_tol=0, abs_tol=0.51 * 10**-decimals)
        for number, decimals in printed
        for value in values
    )


def list_dropped(printed: Printed, durations: list[float]) -> list[int]:
    """How many of the first steps may have been left out for this number to be the mean of the others."""
    if printed.digits < 100:
        return []
    # Half of the steps at least must be left.
    tried = [dropped for dropped in DROPPED if dropped <= MOST_DROPPED or 2 * dropped <= len(durations)]
    fitting = [dropped for dropped in tried if durations[dropped:] and states([printed], durations[dropped:])]
    # A number of few digits agrees with many means by chance: it may say only what is likely.
    is_likely = WARMUP_STEPS in fitting or 0 in fitting
    return fitting if is_likely or printed.digits >= 1000 else []


def find_dropped(printed: list[Printed], durations: list[float]) -> int | None:
    """How many of the first steps are left out of what was printed; None where that cannot be told."""
    fits = [fitting for number in printed if (fitting := list_dropped(number, durations))]
    # Scripts print the mean of all steps as well: one number that leaves warm-up out is enough.
    for fitting in fits:
        if fitting[0] >= WARMUP_STEPS:
            return fitting[0]
    if not fits or any(fitting[-1] >= WARMUP_STEPS for fitting in fits):
        return None
    return min(fitting[0] for fitting in fits)
