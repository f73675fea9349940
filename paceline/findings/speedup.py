"""Conclusions about the gain of more ranks: is the work the same, is it faster, and where does the time go.

In: a `Case`. Out: a `Finding`, or None where there is nothing to say.
Exercise: `pytest tests/unit/test_explain.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from paceline.analyse.communication import over_ranks
from paceline.findings.case import Case, count, of_step, severity_of
from paceline.quantity import format_duration
from paceline.record import Finding, Metric

UNATTRIBUTED_SHARE = 0.15
LEAST_GAIN = 0.1  # of what the added ranks could gain at best

REST = "unattributed"
LATE = "waiting for a late rank"
# What makes the division pay, by what most of the time is lost to.
REMEDIES = {
    "exposed communication": "More work per rank and step (a larger batch) makes the division pay.",
    LATE: "Find out what keeps that rank (straggler); compare the ranks' phases.",
    "data": "Let each rank make or load its own part of the batch only, in workers or beforehand.",
    "optimizer": "Every rank updates all parameters: a larger batch makes that rarer, sharding divides it.",
    "clipping and logging": "Look at what the script does between backward and optimizer.",
    "work that is not divided": "Divide the batch, or the model, by the number of ranks.",
    REST: "Look for what the ranks share: memory bandwidth, caches, clock speed.",
}


def find_more_work(case: Case) -> Finding | None:
    """work_differs"""
    work = _uncounted_work(case)
    if case.base is None or work == 1.0:
        return None
    per_work = case.value("speedup") * work
    text = (
        f"One step of {count(case.row.world, 'rank')} computes {work:.2f} × as much as one step of "
        f"{count(case.base.world, 'rank')}, so the two steps are not the same work: likely the script's "
        "batch is per rank, or every rank repeats the whole batch. Per unit of work the speedup is "
        f"{per_work:.2f} ×. To compare steps, divide a fixed global batch by the number of ranks."
    )
    return Finding("work_differs", text, {"work": work, "speedup_per_work": per_work}, "warning")


def find_missing_speedup(case: Case) -> Finding | None:
    """no_speedup"""
    speedup = case.row.metrics.get("speedup")
    if case.base is None or speedup is None or case.row.oversubscribed:
        return None
    growth = case.row.world / case.base.world
    least = 1 + LEAST_GAIN * (growth - 1)
    if speedup.median * max(1.0, _uncounted_work(case)) > least:
        return None
    parts = sorted(_lost_parts(case).items(), key=lambda part: -part[1])
    step_s = case.step_time_s
    because = [f"{name} {format_duration(part_s)}" for name, part_s in parts if part_s >= 0.05 * step_s]
    ideal_s = case.base_value("step_time_s") * case.work / growth
    doubt = f" ({speedup.low:.2f} to {speedup.high:.2f})" if speedup.high > least else ""
    samples = f" for {case.work:.3g} × the samples" if case.work != 1.0 else ""
    text = (
        f"{count(case.row.world, 'rank')} are {speedup.median:.2f} × as fast as {case.base.world}{doubt}: a "
        f"step takes {format_duration(step_s)}{samples}, an even division would take "
        f"{format_duration(ideal_s)}. The difference is "
        f"{', '.join(because) or 'in no part that is measured'}. {REMEDIES[parts[0][0]]}"
    )
    numbers = {"speedup": speedup.median, "ideal_step_time_s": ideal_s}
    numbers |= {f"{name.replace(' ', '_')}_s": part_s for name, part_s in parts}
    return Finding("no_speedup", text, numbers, "warning")


def find_unattributed(case: Case) -> Finding | None:
    """unattributed"""
    speedup = case.row.metrics.get("speedup")
    if case.base is None or speedup is None or case.row.oversubscribed:
        return None
    rest_s, step_s = _lost_parts(case)[REST], case.step_time_s
    if not step_s or rest_s < UNATTRIBUTED_SHARE * step_s:
        return None
    text = (
        f"{of_step(rest_s, step_s)} is lost against an even division and belongs to nothing that was "
        "measured. Usual suspects: ranks sharing memory bandwidth, caches or clock speed; smaller batches "
        "computing less efficiently; work that every rank repeats. A run of one rank on what one of these "
        "ranks computes tells them apart."
    )
    share = rest_s / step_s
    return Finding("unattributed", text, {"unattributed_s": rest_s, "share": share}, severity_of(share))


def _lost_parts(case: Case) -> dict[str, float]:
    """Where the time goes that an even division of the smaller world's step would not need, in seconds.

    Means over ranks, as the phases are, so that the parts add up.
    """
    share = case.work * case.base.world / case.row.world if case.base else 1.0

    def beyond(name: str) -> float:
        return case.value(name) - case.base_value(name) * share

    parts = {"exposed communication": beyond("exposed_comm_s"), LATE: _waiting_s(case)}
    if case.phases_tell:
        parts |= {
            "data": beyond("data_s"),
            "optimizer": beyond("optimizer_s"),
            "clipping and logging": beyond("other_s"),
            "work that is not divided": _undivided_s(case, share),
        }
    late = case.straggler
    if late is not None and late.always:
        # What that rank does while the others wait is in one of the phases, or in none that is a part.
        own_s = late.late_s / case.row.world
        parts[LATE] += own_s
        phase = {"data": "data", "optimizer": "optimizer", "other": "clipping and logging"}.get(
            late.place or ""
        )
        if phase in parts:
            parts[phase] -= own_s
    parts = {name: part_s for name, part_s in parts.items() if part_s > 0}
    parts[REST] = max(0.0, beyond("step_time_s") - sum(parts.values()))
    return parts


def _waiting_s(case: Case) -> float:
    """Of the ranks that are not the late one."""
    waits = [over_ranks(run, "exposed_s", np.mean) - over_ranks(run, "exposed_s", min) for run in case.runs]
    known = [wait_s for wait_s in waits if math.isfinite(wait_s)]
    return float(np.median(known)) if known else 0.0


def _undivided_s(case: Case, share: float) -> float:
    """Computing that each rank does beyond its even part, by the floating-point operations of its matmuls."""
    before = _total_flops(case.base.metrics) if case.base else 0.0
    if case.base is None or not before:
        return 0.0
    per_rank = _total_flops(case.row.metrics) / before * case.base.world / case.row.world
    return (case.base_value("forward_s") + case.base_value("backward_s")) * max(0.0, per_rank - share)


def _uncounted_work(case: Case) -> float:
    """By how much a step's operations grew where its samples are not known; 1 where they did not."""
    if case.base is None or "throughput_samples_s" in case.row.metrics:
        return 1.0
    before, after = _total_flops(case.base.metrics), _total_flops(case.row.metrics)
    return 1.0 if not before or not after or 0.9 < after / before < 1.1 else after / before


def _total_flops(metrics: Mapping[str, Metric]) -> float:
    return sum(metric.median for name, metric in metrics.items() if name.startswith("matmul_flops."))
