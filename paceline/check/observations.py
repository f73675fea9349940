"""What the ranks of one script were seen to do, put in order: ranks, optimizer steps, micro-steps.

In: the "observed" lines of every rank. Out: a `Seen`, which the verdicts judge. No torch.
Exercise: `pytest tests/check/test_verdicts.py`.
"""

from __future__ import annotations

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
    scalers: list[tuple[int, Event]] = field(default_factory=list)  # made: after how many micro-steps
    looks: list[dict[str, int]] = field(
        default_factory=list
    )  # at the declared numbers; the last one again where they stayed
    new_optimizer: bool = False  # that had not moved before
    move: Event | None = None

    @property
    def synchronised(self) -> list[bool]:
        """Per micro-step. Gradients averaged by hand before the optimizer count for the last one."""
        by_ddp = [micro.synchronised for micro in self.micros]
        if by_ddp and self.averages_by_hand:
            by_ddp[-1] = True
        return by_ddp

    @property
    def averages_by_hand(self) -> bool:
        """Gradients themselves, or as many numbers as they are: a loss for the log is one number."""
        copies = sum(collective.get("share", 0.0) for collective in self.collectives)
        return copies > 0.999 or any(collective["gradients"] for collective in self.collectives)


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
    def has_scaler(self) -> bool:
        return any(scaler["enabled"] for scaler in self.main.all("scaler"))


def read_rank(rank: int, events: list[Event]) -> Rank:
    """Cut one rank's observations into optimizer steps."""
    seen = Rank(rank, events)
    step = Step(0)
    forward: Event | None = None
    losses: list[Event] = []
    optimizers: set[int] = set()
    declared: dict[str, int] = {}
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
        elif what == "declared":
            declared = event["names"]
            step.looks.append(declared)
        elif what == "scaler":
            step.scalers.append((len(step.micros), event))
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
            step.looks = step.looks or [declared]
            step.new_optimizer = event.get("optimizer", 0) not in optimizers
            optimizers.add(event.get("optimizer", 0))
            seen.steps.append(step)
            step = Step(step.number + 1)
    step.looks = step.looks or [declared]
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


def read_ratio(micro: Micro) -> float | None:
    """What the loss was multiplied by before backward: from the values, or else from the graph."""
    by_value: float | None = micro.backward.get("ratio")
    reduction = micro.losses[0].get("reduction") if micro.losses else None
    if by_value is not None and reduction == "mean":
        return by_value
    factor: float | None = micro.backward.get("factor")
    return factor
