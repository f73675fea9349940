"""Gradient accumulation: when the optimizer moves, and when the ranks synchronise.

Exercise: `pytest tests/check/test_verdicts_gradients.py`.
"""

from __future__ import annotations

from paceline.check.observations import Event, Micro, Seen, Step
from paceline.check.trainings import Training, read_trainings
from paceline.check.verdicts.verdict import Verdict, count, fails, passes, unknown


def judge_accumulation(seen: Seen) -> Verdict:
    """Does the optimizer move once every ACCUM_STEPS micro-steps?"""
    steps = seen.main.steps
    trainings = read_trainings(seen.main)
    if not seen.main.micros:
        return unknown("no backward was seen")
    if all(training.expected == 1 for training in trainings):
        at = steps[0].move if steps else None
        return fails(
            "the optimizer moves after every backward: nothing is accumulated",
            "call backward ACCUM_STEPS times, then optimizer.step() once",
            at,
        )
    if not steps and seen.failure is not None:
        return unknown("the script ended before the optimizer moved")
    if not steps:
        return fails(
            f"{count(len(seen.main.micros), 'backward call')} and the optimizer never moved",
            "call the optimizer's step when (step + 1) % ACCUM_STEPS == 0",
            seen.main.micros[-1].backward,
        )
    problem = next(filter(None, map(find_wrong_size, trainings)), None)
    if problem is not None:
        return problem
    left = len(seen.main.leftover.micros)
    if left and seen.failure is None:
        return fails(
            f"the last {count(left, 'micro-step')} never reached the optimizer: their gradients are lost",
            f"make the number of micro-steps a multiple of {trainings[-1].expected}, "
            "or step once more after the loop",
            seen.main.leftover.micros[-1].backward,
        )
    return passes("; then ".join(map(describe, trainings)))


def find_wrong_size(training: Training) -> Verdict | None:
    steps, expected, rests = training.steps, training.expected, training.rests
    wrong = [step for step in steps if len(step.micros) != expected and step.number not in rests]
    if not wrong:
        return None
    found = len(wrong[0].micros)
    return fails(
        f"optimizer step {wrong[0].number + 1} came after {count(found, 'micro-step')}, "
        f"not {expected} ({training.origin}); so did {len(wrong)} of {len(steps)}",
        f"let the optimizer move only when (step + 1) % {expected} == 0",
        wrong[0].move,
    )


def describe(training: Training) -> str:
    rests = len(training.rests)
    return (
        f"{count(len(training.steps), 'optimizer step')}, each after "
        f"{count(training.expected, 'micro-step')} ({training.origin})"
        + (f", {rests} of them at the end of the data after fewer" if rests else "")
    )


def judge_synchronisation(seen: Seen) -> Verdict:
    """Do the ranks average their gradients once per optimizer step, with the last micro-step?"""
    if seen.num_ranks < 2:
        return unknown("one rank has nobody to synchronise with")
    steps = seen.main.steps
    if not any(step.micros for step in steps):
        return unknown("no optimizer step was seen")
    patterns = [step.synchronised for step in steps if step.micros]
    if not any(any(pattern) for pattern in patterns):
        return _explain_silence(steps)
    for step in steps:
        for place, synchronised in enumerate(step.synchronised[:-1]):
            if synchronised:
                return _explain_excess(step, place)
    for step in steps:
        if step.micros and not step.synchronised[-1]:
            return fails(
                f"optimizer step {step.number + 1} used gradients that were not averaged over the ranks",
                "let only the micro-steps before the last one of each optimizer step run in no_sync()",
                _where(step.micros[-1]),
            )
    size = max(len(pattern) for pattern in patterns)
    if size == 1:
        return passes("every backward synchronises, and the optimizer moves after every backward")
    return passes(f"one synchronisation per optimizer step, with the last of {size} micro-steps")


def _explain_silence(steps: list[Step]) -> Verdict:
    micro = steps[0].micros[-1]
    if any(m.forward and m.forward.get("sync") is False for step in steps for m in step.micros):
        return fails(
            "no micro-step synchronises: all of them ran in no_sync()",
            "leave no_sync() out for the last micro-step of each optimizer step",
            _where(micro),
        )
    return fails(
        "no gradient was ever averaged over the ranks: each trains a model of its own",
        "wrap the model in DistributedDataParallel and call the wrapper",
        _where(micro),
    )


def _explain_excess(step: Step, place: int) -> Verdict:
    micro = step.micros[place]
    total, size = sum(step.synchronised), len(step.micros)
    seen = f"{total} of {size} micro-steps of optimizer step {step.number + 1} synchronise, one should"
    forward_open = micro.forward is not None and micro.forward.get("sync") is True
    if forward_open and micro.backward.get("sync") is False:
        return fails(
            f"{seen}: no_sync() covers backward but not forward, where DDP decides",
            "put the forward pass inside no_sync() as well",
            micro.forward,
        )
    if total == 1:
        return fails(
            f"micro-step {place + 1} of {size} synchronises instead of the last one: "
            "what the later ones add is never averaged",
            "synchronise when (step + 1) % ACCUM_STEPS == 0, together with the optimizer step",
            micro.forward,
        )
    return fails(
        seen,
        "run all but the last micro-step, forward included, inside model.no_sync()",
        _where(micro),
    )


def _where(micro: Micro) -> Event:
    return micro.forward or micro.backward
