"""What ACCUM_STEPS is, training by training: a script may compare several values in one go.

In: one rank's optimizer steps. Out: its trainings, each with how many micro-steps it means to accumulate.
Exercise: `pytest tests/check/test_trainings.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.check.observations import Rank, Step, read_ratio

SIZES = "the micro-steps between two optimizer steps"


@dataclass
class Training:
    """Consecutive optimizer steps with one ACCUM_STEPS."""

    steps: list[Step]
    expected: int
    origin: str  # how that is known

    @property
    def rests(self) -> set[int]:
        """The numbers of the steps that took what the data set had left."""
        places = find_rests([len(step.micros) for step in self.steps], self.expected)
        return {self.steps[place].number for place in places}


def read_trainings(rank: Rank) -> list[Training]:
    starts = find_starts(rank)
    trainings = []
    for start, end in itertools.pairwise([*starts, len(rank.steps)]):
        steps = rank.steps[start:end]
        seen = [*steps, rank.leftover] if end == len(rank.steps) else steps
        trainings.append(Training(steps, *find_accumulation(steps, seen)))
    return trainings


def find_starts(rank: Rank) -> list[int]:
    """Where another optimizer takes over, or ACCUM_STEPS becomes another number."""
    steps = rank.steps
    names = {name for step in steps for look in step.looks for name in look if is_accumulation(name)}
    settings = [values for name in sorted(names) if (values := read_setting(steps, name))]
    if not names:
        sizes: list[int | None] = [len(step.micros) for step in steps]
        # What the data had left is one short step, the last perhaps.
        settings = [sizes] if is_setting([*sizes, None]) else []
    starts = [0]
    for number in range(1, len(steps)):
        before, step = steps[number - 1], steps[number]
        changed = any(setting[number] != setting[number - 1] for setting in settings)
        # Were the optimizer made anew for every step, its steps would still be of one training.
        anew = number - starts[-1] > 1 or len(step.micros) != len(before.micros)
        if changed or (step.new_optimizer and anew):
            starts.append(number)
    return starts


def read_setting(steps: list[Step], name: str) -> list[int | None]:
    """What `name` was in each step; nothing for a counter."""
    if any(len({look.get(name) for look in step.looks}) > 1 for step in steps):
        return []
    values = [step.looks[-1].get(name) for step in steps]
    return values if is_setting(values) else []


def is_setting(values: Sequence[int | None]) -> bool:
    """A number that is another one from step to step is a counter; the last step may have been cut short."""
    runs = [len(list(run)) for _, run in itertools.groupby(values)]
    return all(run > 1 for run in runs[:-1])


def is_accumulation(name: str) -> bool:
    return "accum" in name.lower()


def find_accumulation(steps: list[Step], seen: list[Step]) -> tuple[int, str]:
    """From what was declared and done; `seen` has also the micro-steps that no move followed."""
    looks = [look for step in seen for look in step.looks]
    first = looks[0] if looks else {}
    declared = {
        name: value
        for name, value in first.items()
        if is_accumulation(name) and value > 1 and all(look.get(name) == value for look in looks)
    }
    counts = Counter(len(step.micros) for step in steps)
    usual = counts.most_common(1)[0][0] if counts else 1
    if declared:
        # One that fits rather than another, a batch perhaps; and a constant rather than its flag.
        name = min(declared, key=lambda name: (declared[name] != usual, "." in name, name))
        return declared[name], name
    if usual > 1:
        return usual, SIZES
    # The optimizer moves after every backward: was it meant to? A divided loss or a gate says no.
    micros = [micro for step in seen for micro in step.micros]
    ratios = Counter(round(1 / ratio) for micro in micros if 0 < (ratio := read_ratio(micro) or 1.0) < 0.6)
    if ratios:
        return ratios.most_common(1)[0][0], "the number that the loss is divided by"
    period = find_period([micro.synchronised for micro in micros])
    return (period, "the micro-steps between two synchronisations") if period > 1 else (1, "nothing")


def find_rests(sizes: list[int], expected: int) -> list[int]:
    """The steps that took what the data set had left, epoch after epoch: fewer micro-steps than the others,
    always as many, after the same number of whole steps."""
    rests = [place for place, size in enumerate(sizes) if size != expected]
    if not rests or rests[0] == 0 or len({sizes[place] for place in rests}) > 1 or sizes[rests[0]] > expected:
        return []
    epoch = rests[0] + 1
    return rests if rests == list(range(epoch - 1, len(sizes), epoch)) else []


def find_period(marks: list[bool]) -> int:
    places = [place for place, mark in enumerate(marks) if mark]
    gaps = Counter(after - before for before, after in itertools.pairwise(places))
    return gaps.most_common(1)[0][0] if gaps else 1
