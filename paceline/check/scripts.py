"""The scripts that the labs ask for: how each is started, and which checks apply to it.

In: a lab's name, and what was seen of a file, to tell which of the lab's scripts it is. Out: a `Script`.
Exercise: `pytest tests/check/test_verdicts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.check.observations import Seen
from paceline.check.trainings import read_trainings
from paceline.check.verdicts import accumulation, devices, gradients, loss, precision, ranks, timing, warmup
from paceline.check.verdicts.verdict import Judge

# Every check by its name: what it asks, and who judges it. docs/check.md explains each.
CHECKS: Mapping[str, tuple[str, Judge]] = {
    "run": ("the script runs to its end", ranks.judge_run),
    "seeds": ("random numbers are fixed", ranks.judge_seeds),
    "process_group": ("the process group is destroyed", ranks.judge_process_group),
    "ddp": ("DistributedDataParallel is used", ranks.judge_ddp),
    "different_data": ("ranks train on different data", ranks.judge_different_data),
    "same_start": ("ranks start from the same weights", ranks.judge_same_start),
    "same_weights": ("ranks agree on the weights to the end", ranks.judge_same_weights),
    "accumulation": ("the optimizer moves every ACCUM_STEPS", accumulation.judge_accumulation),
    "synchronisation": ("one synchronisation per optimizer step", accumulation.judge_synchronisation),
    "loss_division": ("the loss is divided by ACCUM_STEPS", loss.judge_loss_division),
    "zero_grad": ("gradients are cleared once per optimizer step", gradients.judge_zero_grad),
    "large_batch": ("gradients equal one large batch", gradients.judge_large_batch),
    "autocast_forward": ("autocast is active in forward", precision.judge_autocast_forward),
    "autocast_end": ("autocast ends before backward", precision.judge_autocast_end),
    "scaled_loss": ("backward gets the scaled loss", precision.judge_scaled_loss),
    "unscale": ("gradients are unscaled before clipping", precision.judge_unscale),
    "scaler_step": ("the optimizer moves through the scaler", precision.judge_scaler_step),
    "scaler_update": ("scaler.update() follows once", precision.judge_scaler_update),
    "global_batch": ("the global batch is divided over ranks", ranks.judge_global_batch),
    "num_steps": ("30 steps or more", timing.judge_num_steps),
    "timing": ("the clock spans forward to optimizer", timing.judge_timing),
    "waiting": ("the device has finished when the clock is read", timing.judge_waiting),
    "warmup": ("warm-up is left out", warmup.judge_warmup),
    "prints": ("rank 0 alone prints", timing.judge_prints),
    "replicas": ("DataParallel splits the batch", devices.judge_replicas),
    "all_layers": ("all layers are used", devices.judge_all_layers),
    "halves": ("half of the layers on each of two devices", devices.judge_halves),
    "even_split": ("layers are spread evenly over all devices", devices.judge_even_split),
    "few_layers": ("fewer layers than devices work", devices.judge_even_split),
    "moves": ("data moves at the device boundaries only", devices.judge_moves),
}

_RANKS = ("process_group", "ddp", "different_data", "same_start", "same_weights")
_GRADIENTS = ("synchronisation", "loss_division", "zero_grad", "large_batch")
_AMP = ("autocast_forward", "autocast_end", "scaled_loss", "unscale", "scaler_step", "scaler_update")
_TIMING = ("timing", "waiting", "warmup")
_WARMUP = ("warmup",)  # homework 1 alone asks to leave the first steps out


@dataclass(frozen=True)
class Script:
    """One kind of script that a lab asks for."""

    name: str
    title: str
    checks: tuple[str, ...]
    accelerators: int = 0  # virtual ones, where the machine has none: this script runs in one process
    unasked: tuple[str, ...] = ()  # checks that say what they saw, but fail nobody: the task does not ask it


SCRIPTS: Mapping[str, Script] = {
    script.name: script
    for script in (
        Script(
            "accumulation",
            "Code 1: gradient accumulation",
            ("run", "seeds", *_RANKS, "accumulation", *_GRADIENTS, *_TIMING),
            unasked=_WARMUP,
        ),
        Script(
            "amp",
            "Code 2: mixed precision",
            ("run", "seeds", *_RANKS, *_GRADIENTS, *_AMP, *_TIMING),
            unasked=_WARMUP,
        ),
        Script(
            "both",
            "Code 3: accumulation with mixed precision",
            ("run", "seeds", *_RANKS, "accumulation", *_GRADIENTS, *_AMP, *_TIMING),
            unasked=_WARMUP,
        ),
        Script(
            "ddp",
            "DDP benchmark",
            ("run", "seeds", *_RANKS, *_GRADIENTS, "global_batch", "num_steps", *_TIMING, "prints"),
            unasked=("different_data",),  # a seed at the top of each rank, as asked for, makes the same data
        ),
        Script(
            "dataparallel",
            "DataParallel benchmark",
            ("run", "seeds", "replicas", "zero_grad", "num_steps", *_TIMING),
            accelerators=2,
        ),
        Script(
            "static",
            "model on two devices",
            ("run", "seeds", "halves", "all_layers", "moves", "zero_grad", *_TIMING),
            accelerators=3,  # one more than it asks for, to tell it from the script that takes all
            unasked=_WARMUP,
        ),
        Script(
            "dynamic",
            "model on all devices",
            ("run", "seeds", "even_split", "few_layers", "all_layers", "moves", "zero_grad", *_TIMING),
            accelerators=3,
            unasked=_WARMUP,
        ),
    )
}
LABS: Mapping[str, tuple[str, ...]] = {
    "practical7": ("accumulation", "amp", "both"),
    "hw1": ("ddp", "dataparallel"),
    "hw2": ("both",),
    "hw3": ("static", "dynamic"),
}


def guess_script(lab: str, file_name: str, source: str) -> Script:
    """The lab's script that a file looks like before it has run: only how it is started hangs on this."""
    names = LABS[lab]
    if lab == "hw1" and "init_process_group" not in source and "DataParallel" in source:
        return SCRIPTS["dataparallel"]
    if lab == "hw3" and "dynamic" in file_name.lower():
        return SCRIPTS["dynamic"]
    return SCRIPTS[names[0]]


def recognise_script(lab: str, guess: Script, seen: Seen) -> Script:
    """The lab's script that a file is, by what it did."""
    if lab == "hw3" and len(set(devices.placed_layers(seen))) > 2:
        return SCRIPTS["dynamic"]
    if lab != "practical7":
        return guess
    uses_amp = bool(seen.main.all("scaler") or seen.main.all("autocast"))
    accumulates = any(training.expected > 1 for training in read_trainings(seen.main))
    name = "both" if uses_amp and accumulates else "amp" if uses_amp else "accumulation"
    return SCRIPTS[name]
