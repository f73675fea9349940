"""The loss: what happens to it between the loss function and backward.

Exercise: `pytest tests/check/test_verdicts_gradients.py`.
"""

from __future__ import annotations

import math

from paceline.check.observations import Micro, Seen, read_ratio
from paceline.check.trainings import read_trainings
from paceline.check.verdicts.gradients import judge_large_batch
from paceline.check.verdicts.verdict import Verdict, fails, passes, unknown

RATIO_TOLERANCE = 0.02  # a 16-bit loss has two to three digits


def judge_loss_division(seen: Seen) -> Verdict:
    """Is backward called on the loss function's value over ACCUM_STEPS?"""
    trainings = read_trainings(seen.main)
    known = [
        (training, step, micro)
        for training in trainings
        for step in training.steps
        for micro in step.micros
        if list_ratios(micro)
    ]
    if not known:
        return unknown("the loss could not be followed from the loss function to backward")
    for training, step, micro in known:
        # The end of the data may be divided by its own number, or as usual: both are common, and taught.
        at_the_end = {len(step.micros)} if step.number in training.rests else set()
        wanted = {training.expected, *at_the_end}
        if not any(is_near(ratio * number, 1.0) for ratio in list_ratios(micro) for number in wanted):
            if step is seen.main.steps[0] and judge_large_batch(seen).answer == "pass":
                return passes("the loss is not divided itself, but the gradients come out divided")
            return explain_division(micro, training.expected, training.origin, seen.num_ranks)
    divided = [f"{t.expected} ({t.origin})" for t in trainings if t.expected > 1]
    if not divided:
        return passes("backward gets the loss as the loss function gave it")
    return passes(f"backward gets the loss divided by {', then '.join(divided)}")


def is_near(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=RATIO_TOLERANCE)


def list_ratios(micro: Micro) -> list[float]:
    """By value and by graph: a regularising term spoils the one, a loss function of one's own the other."""
    ratios = [micro.backward.get("ratio"), micro.backward.get("factor")]
    return [ratio for ratio in ratios if ratio and math.isfinite(ratio)]


def explain_division(micro: Micro, wanted: int, origin: str, num_ranks: int) -> Verdict:
    if micro.losses and micro.losses[0].get("reduction") == "sum":
        return unknown("the loss function sums instead of averaging: what it must be divided by is not known")
    if micro.backward.get("loss_calls", 1) > 1:
        return unknown(
            "several loss functions make up the loss: what it was divided by could not be followed"
        )
    ratio = read_ratio(micro) or 1.0
    divisor = 1 / ratio
    by_graph_alone = micro.backward.get("ratio") is None
    if by_graph_alone and not (is_near(ratio, 1.0) or is_near(divisor, wanted**2)):
        return unknown(
            f"the script's own loss is divided by {divisor:.4g}: what it is a mean of is not known"
        )
    if is_near(ratio, 1.0):
        reason = f"backward gets the whole loss: the gradients become {wanted} × too large"
    elif is_near(divisor, wanted**2):
        reason = f"the loss is divided by {divisor:.4g}: twice by {wanted}"
    elif is_near(divisor, wanted * num_ranks):
        reason = f"the loss is divided by the {num_ranks} ranks too, over which gradients are averaged anyway"
    elif divisor < 1:
        reason = f"the loss is multiplied by {ratio:.4g}, where it must be divided by {wanted} ({origin})"
    else:
        reason = f"the loss is divided by {divisor:.4g} where {wanted} is needed ({origin})"
    change = f"call backward on loss / {wanted}" if wanted > 1 else "call backward on the loss itself"
    return fails(reason, change, micro.backward)
