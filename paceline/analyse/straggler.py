"""Which rank the others wait for, always or at times, and slow steps that return at a period.

Collectives make all ranks' step times equal, so a late rank cannot be told from them. It can from *when*
each rank reaches the same place: the late one ends its data or forward phase after the others, who then wait
for it in the next collective. Try it: `pytest tests/unit/test_analyse_straggler.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from paceline.analyse.communication import communication_facts
from paceline.analyse.intervals import Array
from paceline.analyse.steps import aligned, ranks_by_number, world_step_times
from paceline.record import SAMPLED, TIMED, RunRecord

# Places in a step, in their order. "optimizer" is the previous step's: it decides when this one begins.
PLACES = ("optimizer", "data", "forward", "backward", "other")

ALWAYS_SHARE = 0.05  # of the step: late by this in the median step
MOST_STEPS = 0.9  # in which a rank comes last, if it always does
AT_TIMES_SHARE = 0.2  # of the step: a step in which the rank is later than it usually is by this
CHANCE = 0.01  # that one rank is the late one so often, if all were late equally often
LEAST_RETURNS = 3  # slow steps that make a rhythm
LONGEST_PERIOD = 50
# Of the steps that a rhythm names are slow, and of the slow steps are named by it. One round in which 10 % of
# the steps are slow by chance then has a rhythm in fewer than 1 of 100 cases, three rounds in none of 600.
NAMED_ARE_SLOW, SLOW_ARE_NAMED = 0.7, 0.6
HIDDEN_SHARE = 0.25  # of the step: exposed communication differs by this, a guess from few profiled steps


@dataclass(frozen=True)
class Straggler:
    """The rank that others wait for."""

    rank: int
    late_s: float  # in the steps in which it is late
    share_of_steps: float  # in which it is; 1.0 is always
    every: int | None = None  # the period of the slow steps, when they have one
    place: str | None = None  # where it falls behind, None when that is within the backward pass

    @property
    def always(self) -> bool:
        return self.share_of_steps == 1.0


class Rhythm(NamedTuple):
    """Late at every so many steps, by so much."""

    every: int
    late_s: float


@dataclass(frozen=True)
class SlowSteps:
    """Steps of the whole world that take longer than the others, at a fixed distance."""

    every: int
    step_time_s: float
    usual_s: float


def find_straggler(runs: Sequence[RunRecord]) -> Straggler | None:
    """The one straggler of a configuration, if the rounds agree on it."""
    runs = [run for run in runs if len(ranks_by_number(run)) > 1 and _is_timed(run)]
    if not runs or any(_is_pipeline(run) for run in runs):
        return None  # the stages of a pipeline wait for each other by design
    step_s = float(np.median(np.concatenate([world_step_times(run) for run in runs])))
    lateness = [late for run in runs if (late := _lateness(run)).size]
    if not lateness or len({late.shape[1] for late in lateness}) > 1:
        return None
    always = _always_late(runs[0], np.concatenate(lateness, axis=2), step_s)
    at_times = _late_at_times(runs[0], lateness, step_s)
    if always and at_times:
        return max(always, at_times, key=lambda late: late.late_s * late.share_of_steps)
    return always or at_times or _late_within_backward(runs, step_s)


def find_slow_steps(runs: Sequence[RunRecord]) -> SlowSteps | None:
    """Slow steps of the whole world that return at the same distance in every round."""
    worlds = [world_step_times(run) for run in runs if _is_timed(run)]
    if not worlds:
        return None
    usual_s = float(np.median(np.concatenate(worlds)))
    rhythm = _find_rhythm([times - usual_s for times in worlds], AT_TIMES_SHARE * usual_s)
    return SlowSteps(rhythm.every, usual_s + rhythm.late_s, usual_s) if rhythm else None


def _lateness(run: RunRecord, kind: int = TIMED) -> Array:
    """Places × ranks × steps of a kind: seconds by which a rank comes after the middle one of the others."""
    end_s = aligned(run, "end_s")
    began_s = np.concatenate((np.full((len(end_s), 1), np.nan), end_s[:, :-1]), axis=1)
    if np.median(np.ptp(end_s, axis=0)) > np.median(world_step_times(run)):
        # Ranks on several machines, or that no collective joins: each by its own clock.
        began_s = np.zeros_like(began_s)
    phases = [np.nan_to_num(aligned(run, f"{place}_s")) for place in PLACES[1:]]
    reached_s = np.cumsum([began_s, *phases], axis=0)[:, :, np.all(aligned(run, "kind") == kind, axis=0)]
    others_s = [np.median(np.delete(reached_s, rank, axis=1), axis=1) for rank in range(reached_s.shape[1])]
    lateness: Array = reached_s - np.stack(others_s, axis=1)
    return lateness[:, :, np.isfinite(lateness).all(axis=(0, 1))]


def _always_late(run: RunRecord, lateness: Array, step_s: float) -> Straggler | None:
    usual = np.median(lateness, axis=2)
    place, row = np.unravel_index(np.argmax(usual), usual.shape)
    if usual[place, row] < ALWAYS_SHARE * step_s:
        return None
    if np.mean(lateness[place, row] > 0) < MOST_STEPS:
        return None
    grew = np.diff(usual[: place + 1, row], prepend=0.0)
    return Straggler(
        rank=ranks_by_number(run)[row].rank,
        late_s=float(usual[place, row]),
        share_of_steps=1.0,
        place=PLACES[int(np.argmax(grew))],
    )


def _late_at_times(run: RunRecord, rounds: Sequence[Array], step_s: float) -> Straggler | None:
    """A rank that is later than it usually is, at a rhythm or so often that it cannot be chance."""
    latest = [np.max(late - np.median(late, axis=2, keepdims=True), axis=0) for late in rounds]
    threshold_s = AT_TIMES_SHARE * step_s
    for row, rank in enumerate(ranks_by_number(run)):
        rhythm = _find_rhythm([late[row] for late in latest], threshold_s)
        if rhythm is not None:
            return Straggler(rank.rank, rhythm.late_s, 1 / rhythm.every, rhythm.every)
    # Which rank is late, -1 where none is, with such a step before each round.
    late_rows = [np.where(late.max(axis=0) > threshold_s, late.argmax(axis=0), -1) for late in latest]
    bounded = np.concatenate([np.concatenate(([-1], late_row)) for late_row in late_rows])
    # Late steps in a row are one event: a neighbour who takes a core for a second makes many of them.
    events = bounded[1:][(bounded[1:] >= 0) & (bounded[1:] != bounded[:-1])]
    num_ranks = len(latest[0])
    num_events = np.bincount(events, minlength=num_ranks)
    row = int(num_events.argmax())
    chance = num_ranks * stats.binom.sf(num_events[row] - 1, len(events), 1 / num_ranks)
    if chance > CHANCE:
        return None
    is_late = np.concatenate(late_rows) == row
    return Straggler(
        rank=ranks_by_number(run)[row].rank,
        late_s=float(np.median(np.concatenate(latest, axis=1)[row, is_late])),
        share_of_steps=float(is_late.mean()),
    )


def _late_within_backward(runs: Sequence[RunRecord], step_s: float) -> Straggler | None:
    """Between the backward pass's own collectives only waiting tells: the late rank waits least."""
    late_ranks, waited_s = set(), []
    for run in runs:
        numbers = [rank.rank for rank in ranks_by_number(run)]
        exposed = {
            rank: fact["exposed_s"]
            for rank, fact in communication_facts(run).items()
            if fact.get("exposed_s") is not None and rank in numbers
        }
        if len(exposed) < 2:
            return None
        latest, *others = sorted(exposed, key=lambda rank: exposed[rank])
        late_ranks.add(latest)
        # In the few profiled steps it may have been late before its backward pass, as it is at times.
        late_s = _lateness(run, SAMPLED)[: PLACES.index("backward"), numbers.index(latest)]
        before_s = np.max(late_s, initial=0.0)
        waited_s.append(float(np.median([exposed[rank] for rank in others]) - exposed[latest] - before_s))
    least_s = min(waited_s)
    if len(late_ranks) > 1 or least_s < HIDDEN_SHARE * step_s:
        return None
    return Straggler(rank=late_ranks.pop(), late_s=least_s, share_of_steps=1.0)


def _find_rhythm(rounds: Sequence[Array], threshold_s: float) -> Rhythm | None:
    """The period at which slow steps return, through the noise of other slow steps.

    For each period and offset, the steps that it names must be late as a rule, and be most of all late steps.
    """
    num_late = sum(int((late_s > threshold_s).sum()) for late_s in rounds)
    if num_late < LEAST_RETURNS:
        return None
    shortest = min(map(len, rounds))
    for every in range(2, min(LONGEST_PERIOD, shortest // LEAST_RETURNS) + 1):
        for offset in range(every):
            named = np.concatenate([late_s[offset::every] for late_s in rounds])
            is_late = named > threshold_s
            returns = int(is_late.sum())
            # Three of several slow steps are often equally far apart by chance: three must be all there are.
            explained = SLOW_ARE_NAMED * num_late if returns > LEAST_RETURNS else num_late
            if returns >= max(LEAST_RETURNS, NAMED_ARE_SLOW * len(named), explained):
                return Rhythm(every, float(np.median(named[is_late])))
    return None


def _is_timed(run: RunRecord) -> bool:
    """Whether every timed step has a time and an end."""
    times = world_step_times(run)
    return bool(times.size and np.isfinite(times).all() and np.isfinite(aligned(run, "end_s")).all())


def _is_pipeline(run: RunRecord) -> bool:
    return any({"send", "recv"} & set(fact.get("by_kind", {})) for fact in communication_facts(run).values())
