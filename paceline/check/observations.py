"""What the ranks of one script were seen to do, put in order: ranks, optimizer steps, micro-steps.

In: the "observed" lines of every rank. Out: a `Seen`, which the verdicts judge. No torch.
Exercise: `pytest tests/check/test_verdicts.py`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.check.watch import EVENT
from paceline.ingest import parse_lines

Event = dict[str, Any]


@dataclass
class Micro:
    """One backward call, and the model call that led to it."""

    backward: Event
    forward: Event | None = None
    losses: list[Event] = field(default_factory=list)

    @property
    def synchronised(self) -> bool:
        return bool(self.backward["collectives"])


@dataclass
class Step:
    """Everything from the first forward after one move of the optimizer to the next move."""

    number: int
    micros: list[Micro] = field(default_factory=list)
    clears: list[tuple[int, Event]] = field(default_factory=list)  # zero_grad: after how many micro-steps
    clips: list[Event] = field(default_factory=list)
    unscales: list[Event] = field(default_factory=list)
    early_updates: list[Event] = field(default_factory=list)  # of the scaler, before the optimizer moved
    updates: list[Event] = field(default_factory=list)  # after it
    collectives: list[Event] = field(default_factory=list)  # that the script itself called
    backward_after_unscale: Event | None = None
    clip_before_unscale: Event | None = None
    move: Event | None = None

    @property
    def synchronised(self) -> list[bool]:
        """Per micro-step. Gradients averaged by hand before the optimizer count for the last one."""
        by_ddp = [micro.synchronised for micro in self.micros]
        if by_ddp and any(collective["gradients"] for collective in self.collectives):
            by_ddp[-1] = True
        return by_ddp


@dataclass
class Rank:
    """One rank's observations, in order and by kind."""

    rank: int
    events: list[Event]
    steps: list[Step] = field(default_factory=list)
    leftover: Step = field(default_factory=lambda: Step(-1))  # micro-steps that no move followed

    def all(self, what: str) -> list[Event]:
        return [event for event in self.events if event["what"] == what]

    def first(self, what: str) -> Event | None:
        return next((event for event in self.events if event["what"] == what), None)

    def events_after_training_began(self) -> Iterator[Event]:
        return itertools.dropwhile(lambda event: event["what"] != "backward", self.events)

    @property
    def micros(self) -> list[Micro]:
        return [micro for step in [*self.steps, self.leftover] for micro in step.micros]


@dataclass
class Seen:
    """A script in one world: what it did, and how it ended."""

    ranks: list[Rank]
    num_ranks: int  # that were started
    failure: str | None = None  # why the script did not come to its end
    failure_line: int | None = None
    out_of_time: bool = False  # that is why
    still_busy: bool = False  # it was observed at work near the end of its time
    own_fault: bool = False  # the failure is Paceline's, not the script's

    @property
    def main(self) -> Rank:
        """Rank 0, or the first that wrote anything."""
        return self.ranks[0] if self.ranks else Rank(0, [])

    @property
    def accumulation(self) -> tuple[int, str]:
        """How many micro-steps the script means to accumulate, and how that is known."""
        return find_accumulation(self.main)

    @property
    def has_scaler(self) -> bool:
        return any(scaler["enabled"] for scaler in self.main.all("scaler"))


def read_rank(rank: int, events: list[Event]) -> Rank:
    """Cut one rank's observations into optimizer steps."""
    seen = Rank(rank, events)
    step = Step(0)
    forward: Event | None = None
    losses: list[Event] = []
    for event in events:
        what = event["what"]
        if what == "forward" and event["grad"]:
            forward = event
        elif what == "loss":
            losses.append(event)
        elif what == "backward" and "value" in event:
            if step.unscales and step.backward_after_unscale is None:
                step.backward_after_unscale = event
            step.micros.append(Micro(event, forward, losses))
            forward, losses = None, []
        elif what == "zero_grad":
            step.clears.append((len(step.micros), event))
        elif what == "unscale":
            step.unscales.append(event)
        elif what == "clip":
            step.clips.append(event)
            if not step.unscales and step.clip_before_unscale is None:
                step.clip_before_unscale = event
        elif what == "collective":
            step.collectives.append(event)
        elif what == "update":
            after_move = not step.micros and seen.steps
            (seen.steps[-1].updates if after_move else step.early_updates).append(event)
        elif what == "move":
            step.move = event
            seen.steps.append(step)
            step = Step(step.number + 1)
    seen.leftover = step
    return seen


def read_folder(run_dir: Path) -> list[Rank]:
    """The ranks that wrote anything into a run's folder."""
    ranks = []
    for path in sorted(run_dir.glob("rank*.jsonl"), key=lambda p: int(p.stem.removeprefix("rank"))):
        lines = parse_lines(path.read_bytes())
        events = [line for line in lines if line.get("event") == EVENT]
        ranks.append(read_rank(int(path.stem.removeprefix("rank")), events))
    return ranks


def read_constants(rank: Rank) -> dict[str, int]:
    """Declared whole numbers that stayed the same in every backward call that was looked at."""
    looks = [event["names"] for event in rank.all("declared")]
    first = looks[0] if looks else {}
    return {name: value for name, value in first.items() if all(look.get(name) == value for look in looks)}


def find_accumulation(rank: Rank) -> tuple[int, str]:
    constants = read_constants(rank)
    declared = {name: value for name, value in constants.items() if "accum" in name.lower() and value > 1}
    counts = Counter(len(step.micros) for step in rank.steps)
    usual = counts.most_common(1)[0][0] if counts else 1
    if declared:
        # One that fits rather than another, a batch perhaps; and a constant rather than its flag.
        name = min(declared, key=lambda name: (declared[name] != usual, "." in name, name))
        return declared[name], name
    if usual > 1:
        return usual, "the micro-steps between two optimizer steps"
    # The optimizer moves after every backward: was it meant to? A divided loss or a gate says no.
    ratios = Counter(
        round(1 / ratio) for micro in rank.micros if 0 < (ratio := read_ratio(micro) or 1.0) < 0.6
    )
    if ratios:
        return ratios.most_common(1)[0][0], "the number that the loss is divided by"
    period = find_period([micro.synchronised for micro in rank.micros])
    return (period, "the micro-steps between two synchronisations") if period > 1 else (1, "nothing")


def find_rests(steps: list[Step], expected: int) -> set[int]:
    """The steps that took what the data set had left, epoch after epoch: fewer micro-steps than the others,
    always as many, after the same number of whole steps."""
    sizes = [len(step.micros) for step in steps]
    rests = [place for place, size in enumerate(sizes) if size != expected]
    if not rests or rests[0] == 0 or len({sizes[place] for place in rests}) > 1 or sizes[rests[0]] > expected:
        return set()
    epoch = rests[0] + 1
    return set(rests) if rests == list(range(epoch - 1, len(sizes), epoch)) else set()


def find_period(marks: list[bool]) -> int:
    places = [place for place, mark in enumerate(marks) if mark]
    gaps = Counter(after - before for before, after in itertools.pairwise(places))
    return gaps.most_common(1)[0][0] if gaps else 1


def read_ratio(micro: Micro) -> float | None:
    """What the loss was multiplied by before backward: from the values, or else from the graph."""
    by_value: float | None = micro.backward.get("ratio")
    reduction = micro.losses[0].get("reduction") if micro.losses else None
    if by_value is not None and reduction == "mean":
        return by_value
    factor: float | None = micro.backward.get("factor")
    return factor
