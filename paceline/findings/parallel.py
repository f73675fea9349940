"""Conclusions about several ranks: what communication costs, who is late, why more ranks gain little.

In: a `Case`. Out: a `Finding`, or None where there is nothing to say.
Exercise: `pytest tests/unit/test_explain.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.analyse.straggler import find_straggler as locate_straggler
from paceline.findings.case import Case, count, of_step, percent
from paceline.quantity import format_bytes, format_duration
from paceline.record import Finding, Metric

EXPOSED_SHARE = 0.15
LARGE_SHARE = 0.25  # of the step: from here on it is a warning
UNATTRIBUTED_SHARE = 0.15
LEAST_GAIN = 0.1  # of what the added ranks could gain at best


def find_missing_collectives(case: Case) -> Finding | None:
    """no_collectives"""
    calls = [fact["calls"] for fact in case.facts("communication") if "calls" in fact]
    if case.row.world == 1 or not calls or any(calls):
        return None
    text = (
        f"{count(case.row.world, 'rank')} ran, and not one collective was recognised in a training step. "
        "Either each rank trains a model of its own, or they communicate in a way that Paceline does not "
        "see. Check that the model is wrapped (DistributedDataParallel, fully_shard …) after "
        "init_process_group."
    )
    return Finding("no_collectives", text, {"world": case.row.world, "collective_calls": 0}, "warning")


def find_exposed_communication(case: Case) -> Finding | None:
    """communication_exposed"""
    exposed_s, step_s = case.value("exposed_comm_s"), case.step_time_s
    if case.row.world == 1 or not step_s or exposed_s < EXPOSED_SHARE * step_s:
        return None
    share = exposed_s / step_s
    bandwidth = case.value("bus_bandwidth_bytes_s")
    speed = f" at {format_bytes(bandwidth)}/s" if bandwidth else ""
    text = (
        f"{of_step(exposed_s, step_s)} is communication that no computing hides: "
        f"{count(int(case.value('collective_calls')), 'collective')}, "
        f"{format_bytes(case.value('collective_bytes'))}{speed}. The transfer takes longer than the "
        "backward pass it could hide behind. Give each rank a larger batch, accumulate gradients under "
        "no_sync, or send fewer bytes (bf16 gradients, compression)."
    )
    numbers = {
        "exposed_comm_s": exposed_s,
        "share": share,
        "collective_calls": case.value("collective_calls"),
        "collective_bytes": case.value("collective_bytes"),
    }
    return Finding("communication_exposed", text, numbers, "warning" if share >= LARGE_SHARE else "note")


def find_straggler(case: Case) -> Finding | None:
    """straggler"""
    straggler = locate_straggler(case.runs)
    if straggler is None:
        return None
    step_s = case.step_time_s
    cost = straggler.late_s * straggler.share_of_steps / step_s
    if straggler.always:
        when = "in every step"
    elif straggler.every:
        when = f"in every {straggler.every}th step"
    else:
        when = f"in {percent(straggler.share_of_steps)} of the steps"
    places = {
        "data": "it falls behind before the model is called (its data, or work that only it does)",
        "forward": "it falls behind in the forward pass (more work, or a slower device)",
        "backward": "it falls behind between backward and optimizer",
        "other": "it falls behind between backward and optimizer",
        "optimizer": "it falls behind in or after the optimizer (logging or saving on that rank?)",
    }
    cause = places.get(straggler.place or "", "it is slower within the backward pass, or has more to do")
    if not straggler.always:
        cause = "something happens on that rank alone (saving, logging, validation, a slow sample?)"
    text = (
        f"Rank {straggler.rank} arrives {format_duration(straggler.late_s)} after the others {when}, and "
        f"they wait: {percent(cost)} of the time. {cause[0].upper()}{cause[1:]}. Compare that rank's input "
        "and core with another's."
    )
    numbers = {
        "rank": straggler.rank,
        "late_s": straggler.late_s,
        "share_of_steps": straggler.share_of_steps,
        "share": cost,
    }
    if straggler.every:
        numbers["every"] = straggler.every
    return Finding("straggler", text, numbers, "warning" if cost >= LARGE_SHARE else "note")


def find_needless_synchronisation(case: Case) -> Finding | None:
    """accumulation_synchronises"""
    facts = [fact for fact in case.facts("communication") if fact.get("micro_steps", 0) > 1]
    if not facts or case.row.world == 1:
        return None
    synchronising, micro_steps = (
        max(float(fact.get(name, 0)) for fact in facts)
        for name in ("synchronising_micro_steps", "micro_steps")
    )
    if synchronising < 2:
        return None
    step_s = case.step_time_s
    saved_s = case.value("exposed_comm_s") * (1 - 1 / synchronising)
    is_sharded = any("reduce_scatter" in fact.get("by_kind", {}) for fact in facts)
    remedy = (
        "model.set_requires_gradient_sync(False) for all but the last one (it keeps unsharded gradients: "
        "more memory)"
        if is_sharded
        else "`with model.no_sync():` around all but the last one"
    )
    saving = f" That would save about {of_step(saved_s, step_s)}." if saved_s else ""
    text = (
        f"Gradients are accumulated over {micro_steps:g} micro-steps, and {synchronising:g} of them "
        f"synchronise where one is enough. Use {remedy}.{saving}"
    )
    share = saved_s / step_s if step_s else 0.0
    numbers = {
        "micro_steps": micro_steps,
        "synchronising_micro_steps": synchronising,
        "saved_s": saved_s,
        "share": share,
    }
    return Finding("accumulation_synchronises", text, numbers, "warning" if share >= LARGE_SHARE else "note")


def find_more_work(case: Case) -> Finding | None:
    """work_differs"""
    if case.base is None or "throughput_samples_s" in case.row.metrics:
        return None
    before, after = _total_flops(case.base.metrics), _total_flops(case.row.metrics)
    if not before or not after or 0.9 < after / before < 1.1:
        return None
    work = after / before
    text = (
        f"One step of {count(case.row.world, 'rank')} computes {work:.2f} × as much as one step of "
        f"{count(case.base.world, 'rank')}, so the two steps are not the same work: the script's batch is "
        f"per rank. Per unit of work the speedup is {case.value('speedup') * work:.2f} ×. To compare "
        "steps, divide a fixed global batch by the number of ranks."
    )
    return Finding("work_differs", text, {"work": work, "speedup_per_work": case.value("speedup") * work})


def find_missing_speedup(case: Case) -> Finding | None:
    """no_speedup"""
    speedup = case.row.metrics.get("speedup")
    if case.base is None or speedup is None or case.row.oversubscribed:
        return None
    growth = case.row.world / case.base.world
    if speedup.median > 1 + LEAST_GAIN * (growth - 1):
        return None
    parts = sorted(_lost_parts(case).items(), key=lambda part: -part[1])
    step_s = case.step_time_s
    because = [f"{name} {format_duration(part_s)}" for name, part_s in parts if part_s >= 0.05 * step_s]
    ideal_s = case.base_value("step_time_s") / growth
    text = (
        f"{count(case.row.world, 'rank')} are {speedup.median:.2f} × as fast as {case.base.world}: a step "
        f"takes {format_duration(step_s)}, an even division would take {format_duration(ideal_s)}. The "
        f"difference is {', '.join(because) or 'in no part that is measured'}. More work per rank and step "
        "(a larger batch) makes the division pay."
    )
    numbers = {"speedup": speedup.median, "ideal_step_time_s": ideal_s}
    numbers |= {f"{name.replace(' ', '_')}_s": part_s for name, part_s in parts}
    return Finding("no_speedup", text, numbers, "warning")


def find_unattributed(case: Case) -> Finding | None:
    """unattributed"""
    speedup = case.row.metrics.get("speedup")
    if case.base is None or speedup is None or case.row.oversubscribed:
        return None
    rest_s, step_s = _lost_parts(case).get(REST, 0.0), case.step_time_s
    if not step_s or rest_s < UNATTRIBUTED_SHARE * step_s:
        return None
    text = (
        f"{of_step(rest_s, step_s)} is lost against an even division and belongs to nothing that was "
        "measured. Usual suspects: ranks sharing memory bandwidth, caches or clock speed; smaller batches "
        "computing less efficiently; work that every rank repeats. A run of one rank with the smaller "
        "batch tells them apart."
    )
    return Finding("unattributed", text, {"unattributed_s": rest_s, "share": rest_s / step_s})


REST = "unattributed"


def _lost_parts(case: Case) -> dict[str, float]:
    """Where the time goes that an even division of the smaller world's step would not need, in seconds."""
    share = case.base.world / case.row.world if case.base else 1.0
    lost_s = case.step_time_s - case.base_value("step_time_s") * share
    parts = {
        "exposed communication": case.value("exposed_comm_s") - case.base_value("exposed_comm_s") * share,
        "waiting for a late rank": case.value("comm_wait_s"),
        "data": case.value("data_s") - case.base_value("data_s") * share,
        "optimizer": case.value("optimizer_s") - case.base_value("optimizer_s") * share,
        "work that is not divided": _undivided_s(case, share),
    }
    parts = {name: part_s for name, part_s in parts.items() if part_s > 0}
    parts[REST] = max(0.0, lost_s - sum(parts.values()))
    return parts


def _undivided_s(case: Case, share: float) -> float:
    """Computing that each rank does beyond its even part, by the floating-point operations of its matmuls."""
    before = _total_flops(case.base.metrics) if case.base else 0.0
    if not before:
        return 0.0
    per_rank = _total_flops(case.row.metrics) / before * share
    return (case.base_value("forward_s") + case.base_value("backward_s")) * max(0.0, per_rank - share)


def _total_flops(metrics: Mapping[str, Metric]) -> float:
    return sum(metric.median for name, metric in metrics.items() if name.startswith("matmul_flops."))
