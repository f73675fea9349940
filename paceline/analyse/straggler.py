"""Which rank the others wait for, always or at times, and slow steps that return at a period.

Collectives make all ranks' step times equal, so a late rank cannot be told from them. It can from *when*
each rank reaches the same place: the late one ends its data or forward phase after the others, who then wait
for it in the next collective. Try it: `pytest tests/unit/test_analyse_straggler.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.analyse.communication import communication_facts
from paceline.analyse.intervals import Array
from paceline.analyse.steps import aligned, ranks_by_number, world_step_times
from paceline.record import TIMED, RunRecord

# Places in a step, in their order. "optimizer" is the previous step's: it decides when this one begins.
PLACES = ("optimizer", "data", "forward", "backward", "other")

ALWAYS_SHARE = 0.05  # of the step: late by this in the median step
AT_TIMES_SHARE = 0.2  # of the step: a step in which the rank is later than it usually is by this
LEAST_SLOW_STEPS = 0.03  # of all steps: rarer ones are accidents
SAME_RANK = 0.8  # of the slow steps must have the same late rank
HIDDEN_SHARE = 0.15  # of the step: exposed communication of the ranks differs by this


@dataclass(frozen=True)
class Straggler:
    """The rank that others wait for."""

    rank: int
    late_s: float  # in the steps in which it is late
    share_of_steps: float  # 1.0 is always
    every: int | None = None  # the period of the slow steps, when they have one
    place: str | None = None  # where it falls behind, None when that is within the backward pass

    @property
    def always(self) -> bool:
        return self.share_of_steps == 1.0


@dataclass(frozen=True)
class SlowSteps:
    """Steps of the whole world that take longer than the others, at a fixed distance."""

    every: int
    step_time_s: float
    usual_s: float


def find_straggler(runs: Sequence[RunRecord]) -> Straggler | None:
    """The one straggler of a configuration, if the rounds agree on it."""
    runs = [run for run in runs if world_step_times(run).size and len(ranks_by_number(run)) > 1]
    if not runs or any(_is_pipeline(run) for run in runs):
        return None  # the stages of a pipeline wait for each other by design
    step_s = float(np.median(np.concatenate([world_step_times(run) for run in runs])))
    lateness = [late for run in runs if (late := _lateness(run)).size and np.isfinite(late).any()]
    if not lateness or len({late.shape[1] for late in lateness}) > 1:
        return None
    return (
        _always_late(runs[0], np.concatenate(lateness, axis=2), step_s)
        or _late_at_times(runs[0], lateness, step_s)
        or _late_within_backward(runs, step_s)
    )


def find_slow_steps(runs: Sequence[RunRecord]) -> SlowSteps | None:
    """Slow steps of the whole world that return at the same distance in every round."""
    worlds = [times for run in runs if len(times := world_step_times(run)) >= 4]
    if not worlds:
        return None
    usual_s = float(np.median(np.concatenate(worlds)))
    slow = [times > usual_s * (1 + AT_TIMES_SHARE) for times in worlds]
    every = _period(slow)
    if every is None:
        return None
    slow_s = float(np.median(np.concatenate([times[mask] for times, mask in zip(worlds, slow, strict=True)])))
    return SlowSteps(every, slow_s, usual_s)


def _lateness(run: RunRecord) -> Array:
    """Places × ranks × timed steps: seconds by which a rank comes after the middle one of the others."""
    end_s = aligned(run, "end_s")
    if str(run.options.get("nnodes", "1")) != "1":
        # Clocks of different machines: steps end together, so their ends tell the offsets.
        end_s = end_s - np.median(end_s - end_s[0], axis=1, keepdims=True)
    began_s = np.concatenate((np.full((len(end_s), 1), np.nan), end_s[:, :-1]), axis=1)
    gaps = np.ptp(end_s, axis=0)
    if np.nanmedian(gaps) > np.nanmedian(aligned(run, "step_time_s")):
        began_s = np.zeros_like(began_s)  # ranks that no collective joins: each on its own clock
    phases = [np.nan_to_num(aligned(run, f"{place}_s")) for place in PLACES[1:]]
    reached_s = np.cumsum([began_s, *phases], axis=0)[:, :, np.all(aligned(run, "kind") == TIMED, axis=0)]
    others_s = [np.median(np.delete(reached_s, rank, axis=1), axis=1) for rank in range(reached_s.shape[1])]
    lateness: Array = reached_s - np.stack(others_s, axis=1)
    return lateness


def _always_late(run: RunRecord, lateness: Array, step_s: float) -> Straggler | None:
    usual = np.nanmedian(lateness, axis=2)
    place, row = np.unravel_index(np.nanargmax(usual), usual.shape)
    if usual[place, row] < ALWAYS_SHARE * step_s:
        return None
    grew = np.diff(usual[: place + 1, row], prepend=0.0)
    return Straggler(
        rank=ranks_by_number(run)[row].rank,
        late_s=float(usual[place, row]),
        share_of_steps=1.0,
        place=PLACES[int(np.argmax(grew))],
    )


def _late_at_times(run: RunRecord, rounds: Sequence[Array], step_s: float) -> Straggler | None:
    """A rank that is later than it usually is, in some steps; the same rank in nearly all of them."""
    latest = [np.max(late - np.nanmedian(late, axis=2, keepdims=True), axis=0) for late in rounds]
    together = np.concatenate(latest, axis=1)
    is_slow = together.max(axis=0) > AT_TIMES_SHARE * step_s
    if is_slow.sum() < 2 or is_slow.mean() < LEAST_SLOW_STEPS:
        return None
    ranks = together.argmax(axis=0)[is_slow]
    row = int(np.bincount(ranks).argmax())
    if np.mean(ranks == row) < SAME_RANK:
        return None
    return Straggler(
        rank=ranks_by_number(run)[row].rank,
        late_s=float(np.median(together[row, is_slow])),
        share_of_steps=float(is_slow.mean()),
        every=_period([late[row] > AT_TIMES_SHARE * step_s for late in latest]),
    )


def _late_within_backward(runs: Sequence[RunRecord], step_s: float) -> Straggler | None:
    """Between the backward pass's own collectives only waiting tells: the late rank waits least."""
    late_ranks, waited_s = set(), []
    for run in runs:
        exposed = {
            rank: fact["exposed_s"]
            for rank, fact in communication_facts(run).items()
            if fact.get("exposed_s") is not None
        }
        if len(exposed) < 2:
            return None
        latest, *others = sorted(exposed, key=lambda rank: exposed[rank])
        late_ranks.add(latest)
        waited_s.append(float(np.median([exposed[rank] for rank in others]) - exposed[latest]))
    late_s = float(np.median(waited_s))
    if len(late_ranks) > 1 or late_s < HIDDEN_SHARE * step_s:
        return None
    return Straggler(rank=late_ranks.pop(), late_s=late_s, share_of_steps=1.0)


def _period(rounds: Sequence[NDArray[np.bool_]]) -> int | None:
    """The distance between slow steps, when it is the same throughout and seen at least twice."""
    distances = np.concatenate([np.diff(np.flatnonzero(is_slow)) for is_slow in rounds])
    if len(distances) < 2 or np.ptp(distances) or distances[0] < 2:
        return None
    return int(distances[0])


def _is_pipeline(run: RunRecord) -> bool:
    return any({"send", "recv"} & set(fact.get("by_kind", {})) for fact in communication_facts(run).values())
