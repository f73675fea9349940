"""What ACCUM_STEPS is, in scripts that train once and in scripts that compare several values."""

from __future__ import annotations

import itertools

import pytest

from paceline.check.observations import Event, read_rank
from paceline.check.trainings import read_trainings
from paceline.check.verdicts import accumulation, loss, precision
from tests.check.written import backward, forward, move, seen, train, world

UNDECLARED: list[dict[str, int]] = [{}]


def steps_of(sizes: list[int], names: list[dict[str, int]], optimizers: list[int]) -> list[Event]:
    """One optimizer step of each size; what is declared in each, and who moves."""
    events: list[Event] = []
    for size, declared, optimizer in zip(sizes, itertools.cycle(names), optimizers, strict=False):
        step = train(1, size, 1 / size)
        step[-1]["optimizer"] = optimizer
        events += [seen("declared", names=declared), *step]
    return events


@pytest.mark.parametrize(
    ("sizes", "names", "optimizers", "expected"),
    [
        # The name says it, whether the optimizer is a new one or not.
        ([4, 4, 8, 8], [{"accum": 4}, {"accum": 4}, {"accum": 8}, {"accum": 8}], [0] * 4, [(2, 4), (2, 8)]),
        ([4, 4, 8], [{"accum": 4}, {"accum": 4}, {"accum": 8}], [0, 0, 1], [(2, 4), (1, 8)]),
        # A counter says nothing.
        ([4] * 4, [{"accumulated": n} for n in (4, 8, 12, 16)], [0] * 4, [(4, 4)]),
        # Nothing is declared: a new optimizer begins a training, or the sizes do.
        ([4, 4, 3, 8, 8, 8], UNDECLARED, [0, 0, 0, 1, 1, 1], [(3, 4), (3, 8)]),
        ([8, 4, 4, 2, 2], UNDECLARED, [0, 1, 1, 2, 2], [(1, 8), (2, 4), (2, 2)]),
        ([8, 4, 4], [{"accum": 8}, {"accum": 4}, {"accum": 4}], [0, 1, 1], [(1, 8), (2, 4)]),
        ([4, 4, 4, 8, 8, 8], UNDECLARED, [0] * 6, [(3, 4), (3, 8)]),
        ([4, 4, 4, 3], UNDECLARED, [0] * 4, [(4, 4)]),  # what the data had left
        ([4, 4, 4, 8, 4, 4], UNDECLARED, [0] * 6, [(6, 4)]),
        # Two models that train each other, and an optimizer made again in the loop.
        ([1] * 6, UNDECLARED, [0, 1, 0, 1, 0, 1], [(6, 1)]),
        ([4] * 3, UNDECLARED, [0, 1, 2], [(2, 4), (1, 4)]),
    ],
)
def test_trainings_are_told_apart(
    sizes: list[int], names: list[dict[str, int]], optimizers: list[int], expected: list[tuple[int, int]]
) -> None:
    trainings = read_trainings(read_rank(0, steps_of(sizes, names, optimizers)))
    assert [(len(training.steps), training.expected) for training in trainings] == expected


def test_every_value_of_a_sweep_is_judged_by_itself() -> None:
    names = [{"accum": 1}] * 3 + [{"accum": 4}] * 3 + [{"accum": 8}] * 3
    right = steps_of([1] * 3 + [4] * 3 + [8] * 3, names, [0] * 9)
    both = world([right] * 2)
    assert accumulation.judge_accumulation(both).answer == "pass"
    assert loss.judge_loss_division(both).answer == "pass"
    wrong = world([steps_of([1] * 3 + [4] * 3 + [6, 8, 8], names, [0] * 9)] * 2)
    verdict = accumulation.judge_accumulation(wrong)
    assert (verdict.answer, "step 7 came after 6 micro-steps, not 8" in verdict.reason) == ("fail", True)


@pytest.mark.parametrize(("optimizer", "answer"), [(0, "fail"), (1, "pass")])
def test_each_training_may_have_a_scaler_of_its_own(optimizer: int, answer: str) -> None:
    events: list[Event] = []
    for number in (0, optimizer):
        events.append(seen("scaler", 8, enabled=True, device="cpu"))
        for _ in range(3):
            events += [forward(), backward(scaled=True), move(through_scaler=True, optimizer=number)]
            events.append(seen("update", 14))
    assert precision.judge_scaler_update(world([events] * 2)).answer == answer
