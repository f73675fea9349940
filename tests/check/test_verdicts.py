"""The judges on observations written by hand: what programs rarely do, and what must stay open."""

from __future__ import annotations

import itertools

import pytest

from paceline.check.check import FileReport, as_json, judge
from paceline.check.observations import Event, find_accumulation, read_rank
from paceline.check.scripts import CHECKS, LABS, SCRIPTS, guess_script, recognise_script
from paceline.check.verdicts import accumulation, gradients, loss, precision, ranks
from paceline.check.verdicts.verdict import Verdict
from tests.check.written import backward, forward, model, move, seen, train, world

# What ACCUM_STEPS is.


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([{"ACCUM_STEPS": 8, "BATCH": 4}] * 2, (8, "ACCUM_STEPS")),
        ([{"flags.accum": 8, "ACCUM_STEPS": 8}] * 2, (8, "ACCUM_STEPS")),
        ([{"accumulated": 2}, {"accumulated": 3}], (4, "the micro-steps between two optimizer steps")),
    ],
)
def test_accumulation_is_the_constant_of_that_name(
    names: list[dict[str, int]], expected: tuple[int, str]
) -> None:
    looks = [seen("declared", names=look) for look in names]
    assert find_accumulation(read_rank(0, [*looks, *train(3, 4)])) == expected


def test_accumulation_is_deduced_from_a_divided_loss_when_the_optimizer_moves_too_often() -> None:
    steps = train(8, 1, ratio=0.25)
    assert find_accumulation(read_rank(0, steps))[0] == 4
    verdict = accumulation.judge_accumulation(world([steps] * 2))
    assert verdict.answer == "fail"
    assert verdict.line == 13


def test_steps_of_different_sizes_fail() -> None:
    events = [*train(3, 4, 0.25), *train(1, 6, 0.25), *train(3, 4, 0.25)]
    verdict = accumulation.judge_accumulation(world([events] * 2))
    assert verdict.answer == "fail"
    assert "after 6 micro-steps" in verdict.reason


def test_a_crash_does_not_count_as_lost_micro_steps() -> None:
    events = [*train(3, 4, 0.25), forward(), backward(ratio=0.25)]
    assert accumulation.judge_accumulation(world([events] * 2)).answer == "fail"
    assert accumulation.judge_accumulation(world([events] * 2, failure="raised")).answer == "pass"


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


def large_batch(step: int, actual: list[float], large: list[float]) -> Event:
    return seen("large_batch", 13, step=step, micros=1, actual=actual, large=large)


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


def test_gradients_that_could_not_be_recomputed_stay_open() -> None:
    event = seen("large_batch", step=0, reason="dropout makes every forward pass a different one")
    assert gradients.judge_large_batch(world([[event]] * 2)).reason.startswith("dropout")
    assert gradients.judge_large_batch(world([train(2)] * 2)).answer == "unknown"


# Ranks.


def test_the_step_at_which_ranks_part_is_named() -> None:
    left, right = train(4), train(4)
    right[-1]["weights"] = [1.1]
    verdict = ranks.judge_same_weights(world([left, right]))
    assert verdict.answer == "fail"
    assert "after optimizer step 4" in verdict.reason


def test_ranks_must_make_the_same_number_of_steps() -> None:
    assert "[4, 3]" in ranks.judge_same_weights(world([train(4), train(3)])).reason


def test_a_script_that_was_never_started_is_not_blamed() -> None:
    assert ranks.judge_run(world([[], []], failure="no compiler")).answer == "unknown"
    assert ranks.judge_run(world([[model()], []], failure="raised at x.py:3: SyntaxError: ")).answer == "fail"


def test_a_fault_of_the_listeners_is_not_the_scripts() -> None:
    broken = world([[model()], [model()]], failure="raised at x.py:3: AttributeError: ")
    broken.own_fault = True
    assert ranks.judge_run(broken).answer == "unknown"


def test_ranks_with_equal_data_now_and_then_are_no_failure() -> None:
    left, right = train(4), train(4)
    assert ranks.judge_different_data(world([left, right])).answer == "fail"
    right[0]["data"] = [2.0]
    assert ranks.judge_different_data(world([left, right])).answer == "pass"


@pytest.mark.parametrize(("batch", "answer"), [(32, "pass"), (64, "fail"), (48, "unknown")])
def test_the_handouts_global_batch_is_known(batch: int, answer: str) -> None:
    events = [forward(batch=batch), backward(), move()]
    assert ranks.judge_global_batch(world([events] * 2)).answer == answer


# Mixed precision on a machine that lacks what the script names.


def test_what_is_off_for_want_of_an_accelerator_stays_open() -> None:
    machine = seen("machine", accelerators=0, cuda=False)
    events = [
        machine,
        seen("scaler", enabled=False, device="cuda"),
        seen("autocast", device="cuda", enabled=False),
        *train(3),
    ]
    for judged in (
        precision.judge_scaled_loss,
        precision.judge_autocast_forward,
        precision.judge_scaler_step,
    ):
        assert judged(world([events] * 2)).answer == "unknown"


def test_a_scaler_that_is_switched_off_fails() -> None:
    machine = seen("machine", accelerators=1, cuda=True)
    events = [machine, seen("scaler", 7, enabled=False, device="cuda"), *train(3)]
    verdict = precision.judge_scaled_loss(world([events] * 2))
    assert (verdict.answer, verdict.line) == ("fail", 7)


def test_update_twice_fails_and_skipped_steps_do_not() -> None:
    step = [forward(), backward(scaled=True), move(through_scaler=True, skipped=True)]
    scaler, update = seen("scaler", enabled=True, device="cpu"), seen("update", 14)
    once, twice = [scaler, *[*step, update] * 3], [scaler, *[*step, update, update] * 3]
    assert precision.judge_scaler_update(world([once] * 2)).answer == "pass"
    assert precision.judge_scaler_update(world([twice] * 2)).answer == "fail"
    assert "left out 3" in precision.judge_scaler_step(world([once] * 2)).reason


def test_unscaling_in_the_middle_of_accumulation_fails() -> None:
    events = [
        seen("scaler", enabled=True, device="cpu"),
        *(forward(), backward(), seen("unscale", 11), forward(), backward(), move()),
    ]
    verdict = precision.judge_unscale(world([events] * 2))
    assert (verdict.answer, verdict.line) == ("fail", 11)


# Which script, and what leaves.


def test_scripts_are_told_apart_by_what_they_do() -> None:
    autocast, scaler = (
        seen("autocast", device="cpu", enabled=True),
        seen("scaler", enabled=True, device="cpu"),
    )
    guess = SCRIPTS["accumulation"]
    kinds = {
        "accumulation": train(3, 4, 0.25),
        "amp": [autocast, scaler, *train(3)],
        "both": [autocast, scaler, *train(3, 4, 0.25)],
    }
    for kind, events in kinds.items():
        assert recognise_script("practical7", guess, world([events] * 2)).name == kind
    assert guess_script("hw1", "dp.py", "model = nn.DataParallel(model)").name == "dataparallel"
    assert guess_script("hw3", "dynamic_mp.py", "").name == "dynamic"


def test_every_check_of_every_lab_exists_and_takes_any_observations() -> None:
    for name in itertools.chain(*LABS.values()):
        for events in ([], [model()], [model(), forward()], [model(), *train(2)]):
            for failure in (None, "raised"):
                verdicts = judge(SCRIPTS[name], world([events] * 2, failure))
                assert set(verdicts) == set(SCRIPTS[name].checks) <= set(CHECKS)


def test_json_says_everything() -> None:
    verdicts = {
        "run": Verdict("pass", "the script ran to its end"),
        "zero_grad": Verdict("fail", "they add up", 13, None, "call zero_grad"),
    }
    document = as_json([FileReport("a.py", "hw2", SCRIPTS["both"], verdicts, 1.23456)])
    assert document["version"] == 1
    file = document["files"][0]
    assert (file["answer"], file["passed"], file["failed"], file["unknown"]) == ("fail", 1, 1, 0)
    assert file["checks"][1] == {
        "check": "zero_grad",
        "title": "gradients are cleared once per optimizer step",
        "answer": "fail",
        "reason": "they add up",
        "line": 13,
        "file": None,
        "change": "call zero_grad",
    }
