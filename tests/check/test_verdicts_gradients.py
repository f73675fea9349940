"""The judges of accumulation, losses and gradients, on observations written by hand."""

from __future__ import annotations

import itertools

import pytest

from paceline.check.observations import Event, read_rank
from paceline.check.trainings import read_trainings
from paceline.check.verdicts import accumulation, gradients, loss
from tests.check.written import backward, forward, model, move, seen, train, world

# What ACCUM_STEPS is.


def accumulation_of(events: list[Event]) -> tuple[int, str]:
    (training,) = read_trainings(read_rank(0, events))
    return training.expected, training.origin


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([{"ACCUM_STEPS": 8, "BATCH": 4}] * 2, (8, "ACCUM_STEPS")),
        ([{"flags.accum": 8, "ACCUM_STEPS": 8}] * 2, (8, "ACCUM_STEPS")),
        ([{"accum_batch": 128, "accum_steps": 4}] * 2, (4, "accum_steps")),
        ([{"accumulated": 2}, {"accumulated": 3}], (4, "the micro-steps between two optimizer steps")),
    ],
)
def test_accumulation_is_the_constant_of_that_name(
    names: list[dict[str, int]], expected: tuple[int, str]
) -> None:
    looks = [seen("declared", names=look) for look in names]
    assert accumulation_of([*looks, *train(3, 4)]) == expected


def test_accumulation_is_deduced_from_a_divided_loss_when_the_optimizer_moves_too_often() -> None:
    steps = train(8, 1, ratio=0.25)
    assert accumulation_of(steps)[0] == 4
    verdict = accumulation.judge_accumulation(world([steps] * 2))
    assert verdict.answer == "fail"
    assert verdict.line == 13


def test_steps_of_different_sizes_fail() -> None:
    events = [*train(3, 4, 0.25), *train(1, 6, 0.25), *train(3, 4, 0.25)]
    verdict = accumulation.judge_accumulation(world([events] * 2))
    assert verdict.answer == "fail"
    assert "after 6 micro-steps" in verdict.reason


@pytest.mark.parametrize(
    ("sizes", "answer"),
    [
        ([4, 4, 3], "pass"),  # what the data set had left
        ([4, 4, 3, 4, 4, 3, 4, 4, 3], "pass"),  # in each epoch
        ([1, 4, 4, 4], "fail"),  # step % 4 == 0 instead of (step + 1) % 4 == 0
        ([4, 4, 3, 4, 3, 4], "fail"),
        ([4, 4, 7, 4, 4, 7], "fail"),  # the next epoch's first gradients on top
    ],
)
def test_the_end_of_the_data_may_make_a_shorter_step(sizes: list[int], answer: str) -> None:
    named = seen("declared", names={"ACCUM_STEPS": 4})
    for divisors in ([4] * len(sizes), sizes):
        parts = [train(1, size, 1 / divisor) for size, divisor in zip(sizes, divisors, strict=True)]
        both = world([[named, *itertools.chain(*parts)]] * 2)
        assert accumulation.judge_accumulation(both).answer == answer
        assert answer == "fail" or loss.judge_loss_division(both).answer == "pass"


def test_a_crash_does_not_count_as_lost_micro_steps() -> None:
    events = [*train(3, 4, 0.25), forward(), backward(ratio=0.25)]
    assert accumulation.judge_accumulation(world([events] * 2)).answer == "fail"
    assert accumulation.judge_accumulation(world([events] * 2, failure="raised")).answer == "pass"


def test_an_optimizer_that_is_never_reached_after_a_crash_stays_open() -> None:
    events = [seen("declared", names={"ACCUM_STEPS": 4}), forward(), backward(ratio=0.25)]
    assert accumulation.judge_accumulation(world([events] * 2)).answer == "fail"
    assert accumulation.judge_accumulation(world([events] * 2, failure="raised")).answer == "unknown"


def test_an_optimizer_of_another_models_parameters_is_told_from_a_missing_zero_grad() -> None:
    for weights, said in (([1.0], "other parameters"), ([0.5], "they add up")):
        events = [model(weights=weights), *train(3)]
        for event in events[4:]:
            if event["what"] == "backward":
                event["had_gradients"] = True
        verdict = gradients.judge_zero_grad(world([events] * 2))
        assert (verdict.answer, said in verdict.reason) == ("fail", True), verdict


# Synchronisation by hand, and the loss.


def test_gradients_averaged_by_hand_synchronise_the_last_micro_step() -> None:
    plain = [
        event
        for _ in range(3)
        for event in (
            forward(sync=None),
            backward(collectives=0, sync=None),
            seen("collective", gradients=True),
            move(),
        )
    ]
    assert accumulation.judge_synchronisation(world([plain] * 2)).answer == "pass"
    quiet = [event for event in plain if event["what"] != "collective"]
    assert accumulation.judge_synchronisation(world([quiet] * 2)).answer == "fail"


def test_a_regularising_term_does_not_hide_the_division() -> None:
    events = train(3, 4, 0.25)
    for event in events:
        if event["what"] == "backward":
            event["ratio"] = 0.31  # the loss function's value is not all of the loss
    assert loss.judge_loss_division(world([events] * 2)).answer == "pass"


def test_a_summing_loss_stays_open() -> None:
    summed = seen("loss", function="mse_loss", value=8.0, autocast=False, reduction="sum")
    events = [
        e
        for _ in range(3)
        for e in (
            forward(),
            summed,
            backward(ratio=1 / 32, factor=1 / 32),
            forward(),
            summed,
            backward(),
            move(),
        )
    ]
    assert loss.judge_loss_division(world([events] * 2)).answer == "unknown"


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1.0, "4 × too large"),
        (1 / 16, "twice by 4"),
        (1 / 8, "by the 2 ranks too"),
        (4.0, "multiplied by 4"),
        (1 / 5, "by 5 where 4 is needed"),
    ],
)
def test_what_is_wrong_with_a_division_is_said(ratio: float, said: str) -> None:
    named = seen("declared", names={"ACCUM_STEPS": 4})
    verdict = loss.judge_loss_division(world([[named, *train(3, 4, ratio)]] * 2))
    assert (verdict.answer, said in verdict.reason) == ("fail", True), verdict


@pytest.mark.parametrize(
    ("factor", "calls", "answer"),
    [
        (1 / 4, 0, "pass"),
        (1.0, 0, "fail"),
        (1 / 16, 0, "fail"),  # twice
        (1 / 4096, 0, "unknown"),  # a sum, divided by how many it is of as well
        (1.0, 2, "unknown"),  # l1 / 4 + l2 / 4
    ],
)
def test_a_loss_of_ones_own_is_judged_by_the_graph(factor: float, calls: int, answer: str) -> None:
    events = train(3, 4)
    for event in events:
        if event["what"] == "backward":
            event.update(ratio=None, factor=factor, loss_calls=calls)
    assert loss.judge_loss_division(world([events] * 2)).answer == answer


def large_batch(step: int, actual: list[float], large: list[float], sums: bool = False) -> Event:
    return seen("large_batch", 13, step=step, micros=1, actual=actual, large=large, sums=sums)


@pytest.mark.parametrize(
    ("actual", "answer", "said"),
    [
        ([2.0, 3.0], "pass", "relative error 0"),
        ([2.0, 3.001], "pass", "relative error"),
        ([8.0, 12.0], "fail", "is 4 × that"),
        ([3.0, 2.0], "fail", "differs"),
    ],
)
def test_gradients_are_compared_with_the_mean_over_ranks(actual: list[float], answer: str, said: str) -> None:
    both = [[forward(), large_batch(1, actual, local)] for local in ([1.0, 4.0], [3.0, 2.0])]
    verdict = gradients.judge_large_batch(world(both))
    assert (verdict.answer, said in verdict.reason) == (answer, True), verdict


@pytest.mark.parametrize(
    ("actual", "answer"), [([2.0, 3.0], "unknown"), ([0.02, 0.03], "unknown"), ([3.0, 2.0], "fail")]
)
def test_of_a_summing_loss_the_gradients_direction_is_compared(actual: list[float], answer: str) -> None:
    both = [[forward(), large_batch(1, actual, local, sums=True)] for local in ([1.0, 4.0], [3.0, 2.0])]
    assert gradients.judge_large_batch(world(both)).answer == answer


def test_gradients_that_could_not_be_recomputed_stay_open() -> None:
    event = seen("large_batch", step=0, reason="dropout makes every forward pass a different one")
    assert gradients.judge_large_batch(world([[event]] * 2)).reason.startswith("dropout")
    assert gradients.judge_large_batch(world([train(2)] * 2)).answer == "unknown"
