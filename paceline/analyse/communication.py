"""Communication of the sampled steps → calls, bytes, busy and exposed seconds per optimizer step.

Try it: `pytest tests/unit/test_analyse_communication.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.analyse.intervals import counted, one_per_round
from paceline.analyse.steps import world_step_times
from paceline.record import Metric, RunRecord


def communication_facts(run: RunRecord) -> dict[int, dict[str, Any]]:
    """rank → its fact "communication", for the ranks that have one."""
    return {rank.rank: rank.facts["communication"] for rank in run.ranks if "communication" in rank.facts}


def over_ranks(run: RunRecord, name: str, choose: Callable[[list[float]], float]) -> float:
    """`choose` (min, max …) of one number over the ranks that know it, NaN when none does.

    Seconds are those of a timed step: of a profiled one, which is slower, they take the same share.
    """
    scale = _pace(run) if name.endswith("_s") else 1.0
    known = [float(fact[name]) for fact in communication_facts(run).values() if fact.get(name) is not None]
    return choose(known) * scale if known else math.nan


def _pace(run: RunRecord) -> float:
    """The world's timed step over its profiled one; 1 where profiling cost nothing, or nothing is known."""
    timelines = [rank.facts.get("timeline", {}).get("steps", []) for rank in run.ranks]
    profiled_s = [np.median([one["end_s"] - one["start_s"] for one in steps]) for steps in timelines if steps]
    timed_s = world_step_times(run)
    return min(1.0, float(np.median(timed_s) / max(profiled_s))) if len(timed_s) and profiled_s else 1.0


def communication_metrics(runs: Sequence[RunRecord]) -> dict[str, Metric | None]:
    """Counts of the busiest rank, times of the rank that waits least."""
    return {
        "collective_calls": counted([over_ranks(run, "calls", max) for run in runs], "count"),
        "collective_bytes": counted([over_ranks(run, "bytes", max) for run in runs], "bytes"),
        "synchronising_micro_steps": counted(
            [over_ranks(run, "synchronising_micro_steps", max) for run in runs], "count"
        ),
        # A collective lasts until its last rank arrives. That rank waits for nobody: its time is the
        # transfer's own, and what the others have beyond it is waiting.
        "comm_busy_s": one_per_round([over_ranks(run, "busy_s", min) for run in runs], "s"),
        "exposed_comm_s": one_per_round([over_ranks(run, "exposed_s", min) for run in runs], "s"),
        "exposed_comm_share": one_per_round([_exposed_share(run) for run in runs], "ratio"),
        "comm_wait_s": one_per_round([over_ranks(run, "exposed_s", _range) for run in runs], "s"),
        "bus_bandwidth_bytes_s": one_per_round([_bus_bandwidth(run) for run in runs], "bytes/s"),
    }


def _exposed_share(run: RunRecord) -> float:
    step_s = float(np.median(times)) if len(times := world_step_times(run)) else 0.0
    return over_ranks(run, "exposed_s", min) / step_s if step_s else math.nan


def _range(values: list[float]) -> float:
    return max(values) - min(values)


def _bus_bandwidth(run: RunRecord) -> float:
    """Bus bytes over busy seconds on the rank that waits least."""
    known = [
        (fact["busy_s"], fact["bus_bytes"])
        for fact in communication_facts(run).values()
        if fact.get("busy_s") and fact.get("bus_bytes")
    ]
    if not known:
        return math.nan
    busy_s, bus_bytes = min(known)
    return float(bus_bytes / busy_s)
