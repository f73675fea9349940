"""Memory of the sampled steps → the peak of the fullest rank, and what it consists of.

Try it: `pytest tests/unit/test_analyse_memory.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paceline.analyse.intervals import counted
from paceline.record import Metric, RunRecord

CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "buffers", "communication", "other")


def memory_metrics(runs: Sequence[RunRecord]) -> dict[str, Metric | None]:
    """Bytes. The split is that of the fullest rank at its peak, so that the categories add up to it."""
    fullest = [_fullest(run) for run in runs]
    metrics = {
        "peak_memory_bytes": counted([_number(fact, "peak_bytes") for fact in fullest], "bytes"),
        "device_peak_bytes": counted([_largest(run, "device_peak_bytes") for run in runs], "bytes"),
        "resident_bytes": counted([_largest(run, "resident_bytes") for run in runs], "bytes"),
        "resident_peak_bytes": counted([_largest(run, "resident_peak_bytes") for run in runs], "bytes"),
    }
    for category in CATEGORIES:
        at_peak = [_number(fact.get("at_peak", {}), category) for fact in fullest]
        at_start = [_number(fact.get("start_of_step", {}), category) for fact in fullest]
        metrics[f"memory_bytes.{category}"] = counted(at_peak, "bytes")
        metrics[f"memory_between_steps_bytes.{category}"] = counted(at_start, "bytes")
    return metrics


def _facts(run: RunRecord) -> list[dict[str, Any]]:
    return [rank.facts["memory"] for rank in run.ranks if "memory" in rank.facts]


def _fullest(run: RunRecord) -> dict[str, Any]:
    return max(_facts(run), key=lambda fact: _number(fact, "peak_bytes"), default={})


def _largest(run: RunRecord, name: str) -> float:
    return max((_number(fact, name) for fact in _facts(run) if fact.get(name) is not None), default=math.nan)


def _number(fact: dict[str, Any], name: str) -> float:
    value = fact.get(name)
    return math.nan if value is None else float(value)
