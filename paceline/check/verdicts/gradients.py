"""The gradients that the optimizer gets: cleared in time, and those of one large batch.

Exercise: `pytest tests/check/test_verdicts_gradients.py`.
"""

from __future__ import annotations

import math

from paceline.check.observations import Event, Seen, Step
from paceline.check.verdicts.verdict import Verdict, fails, passes, unknown

# Relative error of the gradient: rounding is far below, a lost or doubled micro-step far above.
GRADIENT_TOLERANCE = {False: 1e-3, True: 0.1}  # by whether 16-bit types took part


def judge_zero_grad(seen: Seen) -> Verdict:
    """Are gradients cleared once per optimizer step, between the optimizer and the next backward?"""
    steps = seen.main.steps
    if not steps and seen.main.micros and seen.failure is None:
        return fails(
            "gradients are computed and never used: the optimizer never moved",
            "call optimizer.step() after backward",
            seen.main.micros[-1].backward,
        )
    if not steps:
        return unknown("no optimizer step was seen")
    for step in steps:
        problem = find_clearing_within(step)
        if problem is not None:
            return problem
    for before, step in zip(steps, [*steps[1:], seen.main.leftover], strict=True):
        if step.micros and step.micros[0].backward.get("had_gradients"):
            if never_changes(steps, seen.main.first("model")):
                return fails(
                    "the optimizer holds other parameters: neither the model's weights nor gradients change",
                    "make the optimizer from this model's parameters()",
                    before.move,
                )
            return fails(
                f"optimizer step {before.number + 2} begins with gradients of the one before: they add up",
                "call optimizer.zero_grad() once after each optimizer step",
                before.move,
            )
    return passes("gradients are cleared once per optimizer step, after the optimizer has moved")


def never_changes(steps: list[Step], model: Event | None) -> bool:
    """Are the model's weights after every optimizer step those that it began with?"""
    began = model["weights"] if model else None
    return all(step.move is not None and step.move["weights"] == began for step in steps)


def find_clearing_within(step: Step) -> Verdict | None:
    """Gradients that are cleared after a backward and before the optimizer has used them."""
    size = len(step.micros)
    for after, event in step.clears:
        if 0 < after < size:
            return fails(
                "gradients are cleared between the micro-steps of one optimizer step: only the last counts",
                "clear them only after the optimizer has moved",
                event,
            )
        if 0 < after == size:
            return fails(
                "gradients are cleared before the optimizer uses them: it has nothing to move by",
                "call optimizer.zero_grad() after optimizer.step(), or before the first backward",
                event,
            )
    used = step.move is not None and step.move["had_gradients"]
    for micro in step.micros[1:]:
        if used and micro.backward.get("had_gradients") is False:  # cleared without zero_grad()
            return fails(
                "gradients vanish between the micro-steps of one optimizer step: only the last counts",
                "clear them only after the optimizer has moved",
                micro.backward,
            )
    return None


def judge_large_batch(seen: Seen) -> Verdict:
    """Is the gradient that the optimizer gets that of one large batch of all micro-steps of all ranks?"""
    compared = [rank.all("large_batch") for rank in seen.ranks]
    reasons = [event["reason"] for events in compared for event in events if "reason" in event]
    if reasons:
        return unknown(reasons[0])
    numbers = set.intersection(*({e["step"] for e in events} for events in compared)) if compared else set()
    if not numbers or len(compared) < seen.num_ranks:
        return unknown("no optimizer step had finite gradients and equal micro-batches on all ranks")
    half = any(forward["autocast_types"] for forward in seen.main.all("forward")) or any(
        event.get("half") for events in compared for event in events
    )
    tolerance = GRADIENT_TOLERANCE[half]
    worst = 0.0
    for number in sorted(numbers):
        events = [next(e for e in rank if e["step"] == number) for rank in compared]
        large = [sum(values) / len(events) for values in zip(*(e["large"] for e in events), strict=True)]
        for event in events:
            factor = fit_factor(event["actual"], large) if event.get("sums") else 1.0
            worst = max(worst, relative_error(event["actual"], [value * factor for value in large]))
            if worst > tolerance or factor <= 0:
                verdict = compare(event["actual"], large, tolerance)
                return fails(
                    f"the gradient of optimizer step {number + 1} {verdict}",
                    "the mean over all micro-steps of all ranks is wanted; see the checks before this one",
                    event,
                )
    if any(event.get("sums") for events in compared for event in events):
        return unknown(
            "the gradient points where that of one large batch does; the loss function sums, so how "
            "long it should be is not known"
        )
    return passes(
        f"the gradient is that of one large batch: relative error {worst:.1e}"
        f" (up to {tolerance:g} is rounding{' in 16 bits' if half else ''})"
    )


def compare(actual: list[float], large: list[float], tolerance: float) -> str:
    """In words: a multiple of the right gradient, or another one altogether."""
    factor = fit_factor(actual, large)
    if factor and relative_error([value / factor for value in actual], large) < tolerance:
        return f"is {factor:.3g} × that of one large batch"
    return f"differs from that of one large batch by {min(relative_error(actual, large), 99):.0%}"


def relative_error(actual: list[float], expected: list[float]) -> float:
    size = math.sqrt(sum(value * value for value in expected))
    difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(actual, expected, strict=True)))
    if size == 0.0:
        return 0.0 if difference == 0.0 else math.inf
    return difference / size


def fit_factor(actual: list[float], expected: list[float]) -> float:
    """The number that `expected` must be multiplied by to come nearest to `actual`."""
    squares = sum(value * value for value in expected)
    return sum(a * b for a, b in zip(actual, expected, strict=True)) / squares if squares else 0.0
