"""The ranks together: their weights, their data, their process group, their seeds; and did the script run.

Exercise: `pytest tests/check/test_verdicts.py`.
"""

from __future__ import annotations

import math
import re

from paceline.check.observations import Event, Seen, read_constants
from paceline.check.verdicts.verdict import Verdict, count, fails, passes, unknown

WEIGHT_TOLERANCE = 1e-6  # relative: ranks that do the same get the same, bit for bit or nearly so
HANDOUT_BATCH = 64  # homework 1's global batch
NEEDS_CUDA = re.compile(r"\b(CUDA|NCCL|NVIDIA|cuDNN)\b")  # what virtual accelerators cannot stand in for
HINTS = (
    (
        "No inf checks were recorded prior to update",
        "call scaler.update() only after scaler.step(optimizer), once per optimizer step",
    ),
    (
        "step() has already been called since the last update",
        "call scaler.update() after each scaler.step(optimizer)",
    ),
    ("unscale_() is being called after step()", "call scaler.update() after each scaler.step(optimizer)"),
    ("_scale is None", "call backward on scaler.scale(loss)"),
    (
        "unscale_() has already been called",
        "call scaler.unscale_(optimizer) once per optimizer step, after the last micro-step",
    ),
    ("Expected all tensors to be on the same device", "move the data to the layer's device before the layer"),
    ("File too large", "print less: a rank may write no more than 256 MiB"),
    ("SyntaxError", "the file does not run as Python: correct this line first"),
    ("ModuleNotFoundError", "hand in that module too, beside the script"),
    ("EOFError", "leave input() out: nobody is there to answer; take constants or the command line's flags"),
    (
        "ended with exit code",
        "let the script end by itself: sys.exit() of anything but 0 means that it failed",
    ),
    ("did not end within", "let the script do fewer steps, or give it longer: --timeout"),
)


def judge_run(seen: Seen) -> Verdict:
    """Does the script come to its end?"""
    if seen.failure is None and seen.ranks and not (seen.main.all("model") or seen.main.all("backward")):
        return fails("the script came to its end, but called no model", "hand in the script that trains")
    if seen.failure is None:
        return passes("the script ran to its end")
    if not any(rank.events for rank in seen.ranks):
        return unknown(f"the script could not be started: {seen.failure}")
    if seen.own_fault:
        return unknown(f"Paceline itself failed, please report it: {seen.failure}")
    if (seen.main.first("machine") or {}).get("virtual") and NEEDS_CUDA.search(seen.failure):
        return unknown(f"the script needs a real GPU, and there is none here: {seen.failure}")
    if seen.out_of_time and seen.still_busy and seen.main.steps:
        steps = count(len(seen.main.steps), "optimizer step")
        return unknown(
            f"the script was still training, {steps} done: {seen.failure}; give it longer: --timeout"
        )
    change = next(
        (hint for sign, hint in HINTS if sign in seen.failure), "see what the script says at that line"
    )
    return Verdict("fail", seen.failure, seen.failure_line, None, change)


def judge_process_group(seen: Seen) -> Verdict:
    """Is the process group destroyed at the end?"""
    made = seen.main.first("group")
    if made is None:
        return fails(
            "no process group was made: the ranks do not know of each other",
            "call torch.distributed.init_process_group() and start the script with torchrun",
        )
    if seen.failure is not None:
        return unknown("the script did not come to its end")
    ends = [rank.first("end") for rank in seen.ranks]
    left = [end for end in ends if end is not None and end["group_left"]]
    if left:
        return fails(
            "the process group is still there when the script ends",
            "call torch.distributed.destroy_process_group() at the end",
            made,
        )
    return passes("the process group is destroyed") if all(ends) else unknown("the end was not seen")


def judge_ddp(seen: Seen) -> Verdict:
    """Does training go through DistributedDataParallel?"""
    models = seen.main.all("model")
    wrapped = next((w for w in seen.main.all("wrapped") if w["kind"] == "DistributedDataParallel"), None)
    trained = [micro.forward for micro in seen.main.micros if micro.forward]
    if not models or not trained:
        return unknown("no model in training was seen")
    if any(forward["sync"] is not None for forward in trained):
        return passes("the model is called through DistributedDataParallel")
    if wrapped:
        return fails(
            "DistributedDataParallel is made, but forward goes around it: gradients are not averaged",
            "call the wrapper, not the module inside it",
            trained[0],
        )
    if any(step.averages_by_hand for step in seen.main.steps):
        return unknown("gradients are averaged by the script itself, without DistributedDataParallel")
    return fails(
        "the model is not wrapped in DistributedDataParallel",
        "model = DistributedDataParallel(model), after init_process_group",
        models[0],
    )


def are_close(left: list[float], right: list[float]) -> bool:
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=WEIGHT_TOLERANCE, abs_tol=1e-9) or (a != a and b != b)
        for a, b in zip(left, right, strict=True)
    )


def judge_same_start(seen: Seen) -> Verdict:
    """Do all ranks start from the same weights?"""
    models = [rank.first("model") for rank in seen.ranks]
    if len(models) < 2 or not all(models):
        return unknown("fewer than two ranks called a model")
    first = models[0]
    assert first is not None
    for other in models[1:]:
        if other and not are_close(first["weights"], other["weights"]):
            return fails(
                "the ranks start from different weights",
                "use DistributedDataParallel, or give every rank the same seed before the model",
                first,
            )
    return passes("all ranks start from the same weights")


def judge_same_weights(seen: Seen) -> Verdict:
    """Do the ranks agree on the weights after every optimizer step, the last one included?"""
    numbers = [len(rank.steps) for rank in seen.ranks]
    if len(numbers) < 2 or not any(numbers) or (seen.failure and not all(numbers)):
        return unknown("fewer than two ranks moved their optimizer")
    if len(set(numbers)) > 1 and seen.failure is None:
        return fails(
            f"the ranks make different numbers of optimizer steps: {numbers}",
            "call the optimizer's step on every rank, equally often",
            next(step.move for rank in seen.ranks for step in rank.steps),
        )
    moves = [[step.move or {} for step in rank.steps] for rank in seen.ranks]
    for number, events in enumerate(zip(*moves, strict=False)):
        if any(not are_close(events[0]["weights"], other["weights"]) for other in events[1:]):
            return fails(
                f"after optimizer step {number + 1} the ranks hold different weights",
                "every rank must start from the same weights and average its gradients before each step",
                events[0],
            )
    return passes(f"the ranks hold the same weights after all {count(min(numbers), 'optimizer step')}")


def judge_different_data(seen: Seen) -> Verdict:
    """Does every rank train on data of its own?"""
    digests = [[m.forward["data"] for m in rank.micros if m.forward] for rank in seen.ranks]
    if len(digests) < 2 or not all(digests) or any(d is None for rank in digests for d in rank):
        return unknown("fewer than two ranks called a model with data")
    same = [a == b for a, b in zip(digests[0], digests[1], strict=False)]
    if all(same):
        return fails(
            "all ranks train on the same data: more ranks compute the same thing again",
            "use a DistributedSampler, take every world-size-th sample, or seed the data with the rank",
            seen.main.micros[0].forward,
        )
    return passes("the ranks train on different data")


def judge_seeds(seen: Seen) -> Verdict:
    """Is torch seeded before the weights and the random data are made?"""
    made: list[Event] = seen.main.all("made")
    seeds = seen.main.all("seed")
    early = [event for event in made if not event["seeded"]]
    if not early:
        return (
            passes("torch.manual_seed() comes before the model and the data")
            if seeds
            else unknown("nothing random was made")
        )
    thing = "the model's weights are" if early[0]["kind"] == "model" else "random data is"
    if seeds:
        where = seeds[0].get("line")
        reason = f"{thing} made before torch.manual_seed() is called (line {where})"
    else:
        reason = f"torch.manual_seed() is never called, and {thing} random: no two runs are alike"
    return fails(reason, "call torch.manual_seed(0) at the top, before the model and the data", early[0])


def judge_global_batch(seen: Seen) -> Verdict:
    """Is the global batch divided over the ranks?"""
    sizes = {m.forward["batch"] for rank in seen.ranks for m in rank.micros if m.forward}
    if len(sizes) != 1 or None in sizes:
        return unknown(
            f"the batch differs from step to step: {sorted(map(str, sizes))}"
            if sizes
            else "no batch was seen"
        )
    each = sizes.pop()
    total = each * seen.num_ranks
    declared = {value for name, value in read_constants(seen.main).items() if "accum" not in name.lower()}
    if total in declared or total == HANDOUT_BATCH:
        return passes(
            f"the global batch of {total} is divided: {each} samples on each of {seen.num_ranks} ranks"
        )
    if each in declared or each == HANDOUT_BATCH:
        first = seen.main.micros[0].forward
        return fails(
            f"each of {seen.num_ranks} ranks takes all {each} samples: the global batch grows with the ranks",
            "give each rank batch // world_size samples",
            first,
        )
    return unknown(f"each rank takes {each} samples; what the global batch should be is not declared")
