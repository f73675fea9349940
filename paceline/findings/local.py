"""Conclusions about what a rank does by itself: its data, memory allocator, threads and numbers.

In: a `Case`. Out: a `Finding`, or None where there is nothing to say.
Exercise: `pytest tests/unit/test_explain.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline.analyse.steps import aligned, of_kind, ranks_by_number
from paceline.analyse.straggler import find_slow_steps as locate_slow_steps
from paceline.findings.case import Case, count, of_step, ordinal, percent, severity_of
from paceline.quantity import format_duration
from paceline.record import SAMPLED, Finding, RankRecord, RunRecord

DATA_SHARE = 0.25
# 65,000 faults were seen to cost 100 ms: mapping, zeroing and unmapping a page of 4 KiB.
PAGE_FAULT_S = 1.5e-6
ALLOCATOR_SHARE = 0.05
SKIPPED_SHARE = 0.10


def find_data_bound(case: Case) -> Finding | None:
    """data_bound"""
    data_s, step_s = case.value("data_s"), case.step_time_s
    if case.straggler is not None and case.straggler.always and case.straggler.place == "data":
        data_s -= case.straggler.late_s / case.row.world  # that rank's alone: told as its own finding
    if not case.phases_tell:
        data_s = min(data_s, step_s * (1 - case.value("compute_share", 1.0)))  # what the device stands idle
    if not step_s or data_s < DATA_SHARE * step_s:
        return None
    loader_s = case.value("dataloader_s")
    if loader_s > data_s / 2:
        remedy = (
            f"{format_duration(loader_s)} of it is spent waiting for a DataLoader. Give it workers "
            "(num_workers, persistent_workers), or make a sample cheaper to load."
        )
    else:
        remedy = (
            "No DataLoader is involved: it is the script's own work between the optimizer and the model "
            "(making, copying or reading a batch, logging). Prepare it beforehand, or while the model "
            "computes."
        )
    text = f"{of_step(data_s, step_s)} passes before the model is called. {remedy}"
    numbers = {"data_s": data_s, "dataloader_s": loader_s, "share": data_s / step_s}
    return Finding("data_bound", text, numbers, "warning")


def find_thread_fight(case: Case) -> Finding | None:
    """threads_fight"""
    if case.device != "cpu" or case.row.oversubscribed or not case.runs:
        return None
    run = case.runs[-1]
    machines: dict[int, list[RankRecord]] = {}  # by the first rank of each
    for rank in ranks_by_number(run):
        machines.setdefault(rank.rank - int(rank.start.get("local_rank", rank.rank)), []).append(rank)
    if not machines:
        return None
    ranks = max(machines.values(), key=_num_threads)
    num_threads = _num_threads(ranks)
    pinned = {core for rank in ranks for core in rank.start.get("cores") or ()}
    num_cores = len(pinned) or int(run.machine.get("cores") or 0)
    if not num_cores or num_threads <= num_cores:
        return None
    per_rank = max(1, num_cores // len(ranks))
    if num_threads > sum(int(rank.start.get("threads") or 1) for rank in ranks):
        remedy = (
            f"The script itself raised their number: take torch.set_num_threads out of it, or set {per_rank}."
        )
    else:
        pins = ", or use --placement tuned, which also pins them" if case.row.placement == "plain" else ""
        remedy = f"Set OMP_NUM_THREADS={per_rank}{pins}."
    text = (
        f"{count(len(ranks), 'rank')} run {num_threads} computing threads on {count(num_cores, 'core')}, "
        f"so they take each other's cores ({case.value('involuntary_switches'):g} forced switches per "
        f"step). {remedy}"
    )
    numbers = {
        "threads": num_threads,
        "cores": num_cores,
        "involuntary_switches": case.value("involuntary_switches"),
    }
    return Finding("threads_fight", text, numbers, "warning")


def _num_threads(ranks: Sequence[RankRecord]) -> int:
    """Of all these ranks: as they were in the sampled steps, else as torch began."""
    found = (rank.facts.get("timeline", {}).get("threads") or rank.start.get("threads") for rank in ranks)
    return sum(int(threads or 1) for threads in found)


def find_allocator_costs(case: Case) -> Finding | None:
    """allocator_costs"""
    faults, step_s = case.value("page_faults"), case.step_time_s
    cost_s = faults * PAGE_FAULT_S
    if case.device != "cpu" or not step_s or cost_s < ALLOCATOR_SHARE * step_s:
        return None
    if case.row.placement == "plain":
        remedy = (
            "Use --placement tuned, or put what `paceline doctor --emit-env` prints before your own "
            "torchrun: the allocator then keeps its memory."
        )
    else:
        remedy = (
            "The tuned allocator is in use already, so the script itself asks for new memory in every step: "
            "reuse buffers, or preload jemalloc."
        )
    text = (
        f"Every step takes {faults:,.0f} page faults, about {of_step(cost_s, step_s)}: memory is given "
        f"back to the system and fetched again. {remedy}"
    )
    numbers = {"page_faults": faults, "cost_s": cost_s, "share": min(1.0, cost_s / step_s)}
    return Finding("allocator_costs", text, numbers, severity_of(numbers["share"]))


def find_slow_steps(case: Case) -> Finding | None:
    """periodic_steps"""
    slow = locate_slow_steps(case.runs)
    if slow is None or (case.straggler is not None and case.straggler.every == slow.every):
        return None  # or one rank's doing, told as `straggler`
    share = (slow.step_time_s - slow.usual_s) / (slow.usual_s * (slow.every - 1) + slow.step_time_s)
    text = (
        f"Every {ordinal(slow.every)} step takes {format_duration(slow.step_time_s)} where the others take "
        f"{format_duration(slow.usual_s)}: {percent(share)} of the time. Look for what the script does "
        "that often (saving, logging, validation). The median step time does not contain it."
    )
    numbers = {"every": slow.every, "step_time_s": slow.step_time_s, "usual_s": slow.usual_s, "share": share}
    return Finding("periodic_steps", text, numbers, severity_of(share))


def find_fp16_on_cpu(case: Case) -> Finding | None:
    """fp16_on_cpu"""
    flops = case.value("matmul_flops.float16")
    if case.device != "cpu" or not flops:
        return None
    text = (
        f"{flops:.3g} operations per step are float16 matmuls on a CPU, which has no fast kernels for "
        "their backward pass (30 × slower than float32 was seen). Use bfloat16 autocast: no GradScaler is "
        "needed then."
    )
    return Finding("fp16_on_cpu", text, {"matmul_flops": flops}, "warning")


def find_scaler_skips(case: Case) -> Finding | None:
    """scaler_skips"""
    skipped = case.value("skipped_steps")
    num_steps = min((of_kind(run, "kind").shape[1] for run in case.runs), default=0)
    if not skipped or not num_steps:
        return None
    share = skipped / num_steps
    text = (
        f"GradScaler skipped {skipped:g} of {num_steps} optimizer steps: gradients overflowed at loss "
        f"scale {case.value('loss_scale'):g} or above. A few skips at the start are normal while the scale "
        "settles. If they go on, start from a smaller init_scale, look for overflowing layers, or use "
        "bfloat16."
    )
    numbers = {"skipped_steps": skipped, "steps": num_steps, "loss_scale": case.value("loss_scale")}
    return Finding("scaler_skips", text, numbers, "warning" if share >= SKIPPED_SHARE else "note")


def find_non_finite(case: Case) -> Finding | None:
    """non_finite"""
    for run in (*case.runs, *case.ended_ill):
        first = _first_bad_loss(run)
        if first is not None:
            step, rank, value = first
            text = (
                f"The loss of rank {rank} is {value} from step {step} on (the first step is 0, round "
                f"{run.round}). Times after it may not be those of real training. Try a smaller learning "
                "rate, gradient clipping, or torch.autograd.detect_anomaly() around that step."
            )
            return Finding("non_finite", text, {"step": step, "rank": rank, "round": run.round}, "warning")
    for run in case.runs:
        for rank_record in run.ranks:
            bad = rank_record.facts.get("gradients", {}).get("nonfinite") or 0
            losses_are_sound = np.isfinite(rank_record.series.get("loss", [])).any()
            has_scaler = np.isfinite(rank_record.series.get("loss_scale", [])).any()
            # A scaler meets overflowing gradients by design, and skips them.
            if not bad or (has_scaler and losses_are_sound):
                continue
            fact = f"The gradients of rank {rank_record.rank} were not finite in {bad:g} of the sampled steps"
            numbers = {"rank": rank_record.rank, "sampled_steps": bad, "round": run.round}
            if losses_are_sound:
                text = (
                    f"{fact}, though the loss was. Look for a division or logarithm whose slope is "
                    "infinite; clipping does not help."
                )
            else:
                text = (
                    f"{fact}, and not one finite loss was seen from step 0 on: what goes into the model, its "
                    "initial weights or the loss itself are not finite. Look at the first batch, and use "
                    "torch.autograd.detect_anomaly() around the first step."
                )
                numbers["step"] = 0
            return Finding("non_finite", text, numbers, "warning")
    return None


def _first_bad_loss(run: RunRecord) -> tuple[int, int, str] | None:
    """(step, rank, what it was). A loss that nobody read is NaN too: only one after a finite loss counts."""
    found = []
    # Losses on an accelerator are read when the timed steps are over, those of later steps perhaps never.
    was_read = np.all(aligned(run, "kind") != SAMPLED, axis=0)
    for losses, rank in zip(aligned(run, "loss")[:, was_read], ranks_by_number(run), strict=True):
        is_after_finite = np.logical_or.accumulate(np.isfinite(losses))
        bad = np.flatnonzero(np.isinf(losses) | (np.isnan(losses) & is_after_finite))
        if len(bad):
            what = "nan" if math.isnan(losses[bad[0]]) else "infinite"
            found.append((int(bad[0]), rank.rank, what))
    return min(found, default=None)
