"""The judges on observations written by hand: what programs rarely do, and what must stay open."""

from __future__ import annotations

import itertools

import pytest

from paceline.check.check import FileReport, as_json, judge
from paceline.check.scripts import CHECKS, LABS, SCRIPTS, guess_script, recognise_script
from paceline.check.verdicts import precision, ranks
from paceline.check.verdicts.verdict import Verdict
from tests.check.written import backward, clock, forward, model, move, seen, train, world

# Ranks.


def test_the_step_at_which_ranks_part_is_named() -> None:
    left, right = train(4), train(4)
    right[-1]["weights"] = [1.1]
    verdict = ranks.judge_same_weights(world([left, right]))
    assert verdict.answer == "fail"
    assert "after optimizer step 4" in verdict.reason


def test_ranks_must_make_the_same_number_of_steps() -> None:
    assert "[4, 3]" in ranks.judge_same_weights(world([train(4), train(3)])).reason
    idle = [event for event in train(4) if event["what"] != "move"]
    assert "[4, 0]" in ranks.judge_same_weights(world([train(4), idle])).reason
    assert ranks.judge_same_weights(world([train(4), idle], failure="raised")).answer == "unknown"


def test_a_script_that_trains_nothing_fails() -> None:
    assert ranks.judge_run(world([[seen("machine", accelerators=0, virtual=False)]] * 2)).answer == "fail"
    assert ranks.judge_run(world([train(1)] * 2)).answer == "pass"


def test_a_script_that_was_never_started_is_not_blamed() -> None:
    assert ranks.judge_run(world([[], []], failure="no compiler")).answer == "unknown"
    assert ranks.judge_run(world([[model()], []], failure="raised at x.py:3: SyntaxError: ")).answer == "fail"


@pytest.mark.parametrize(("busy", "answer"), [(True, "unknown"), (False, "fail")])
def test_a_slow_script_is_not_a_stuck_one(busy: bool, answer: str) -> None:
    stopped = world([[model(), *train(3)]] * 2, "did not end within 120 s")
    stopped.out_of_time, stopped.still_busy = True, busy
    assert ranks.judge_run(stopped).answer == answer


def test_a_fault_of_the_listeners_is_not_the_scripts() -> None:
    broken = world([[model()], [model()]], failure="raised at x.py:3: AttributeError: ")
    broken.own_fault = True
    assert ranks.judge_run(broken).answer == "unknown"


@pytest.mark.parametrize(("virtual", "answer"), [(True, "unknown"), (False, "fail")])
def test_what_virtual_accelerators_cannot_do_is_not_the_scripts_fault(virtual: bool, answer: str) -> None:
    machine = seen("machine", accelerators=2, virtual=virtual)
    failure = "rank 0 raised at x.py:3: RuntimeError: Cannot get CUDA generator without ATen_cuda library"
    assert ranks.judge_run(world([[machine]] * 2, failure)).answer == answer


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
    machine = seen("machine", accelerators=0, virtual=False)
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
    machine = seen("machine", accelerators=1, virtual=False)
    events = [machine, seen("scaler", 7, enabled=False, device="cuda"), *train(3)]
    verdict = precision.judge_scaled_loss(world([events] * 2))
    assert (verdict.answer, verdict.line) == ("fail", 7)


def test_bfloat16_does_without_the_scaler() -> None:
    events = [seen("scaler", enabled=False, device="cuda"), *train(3)]
    for event in events:
        if event["what"] == "forward":
            event.update(autocast=1, autocast_types=["torch.bfloat16"])
    assert precision.judge_scaled_loss(world([events] * 2)).answer == "unknown"


def test_update_twice_fails_and_skipped_steps_do_not() -> None:
    step = [forward(), backward(scaled=True), move(through_scaler=True, skipped=True)]
    scaler, update = seen("scaler", enabled=True, device="cpu"), seen("update", 14)
    once, twice = [scaler, *[*step, update] * 3], [scaler, *[*step, update, update] * 3]
    assert precision.judge_scaler_update(world([once] * 2)).answer == "pass"
    assert precision.judge_scaler_update(world([twice] * 2)).answer == "fail"
    assert "left out 3" in precision.judge_scaler_step(world([once] * 2)).reason


def test_a_scaler_for_each_step_never_adapts() -> None:
    scaler = seen("scaler", 8, enabled=True, device="cpu")
    step = [scaler, forward(), backward(scaled=True), move(through_scaler=True), seen("update", 14)]
    verdict = precision.judge_scaler_update(world([step * 3] * 2))
    assert (verdict.answer, verdict.line) == ("fail", 8)


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
    assert guess_script("hw3", "Dynamic_mp.py", "").name == "dynamic"
    for used, kind in ((2, "static"), (3, "dynamic")):
        spread = world([[model([f"cuda:{device}" for device in range(used)])]])
        assert recognise_script("hw3", SCRIPTS["static"], spread).name == kind


def test_every_check_of_every_lab_exists_and_takes_any_observations() -> None:
    for name in itertools.chain(*LABS.values()):
        unmoved = [model(), clock(1.0), forward(), backward(), clock(2.0), seen("print", text="1.000 s")]
        for events in ([], [model()], [model(), forward()], [model(), *train(2)], unmoved):
            for failure in (None, "raised"):
                verdicts = judge(SCRIPTS[name], world([events] * 2, failure))
                assert set(verdicts) == set(SCRIPTS[name].checks) <= set(CHECKS)
        assert judge(SCRIPTS[name], world([unmoved] * 2))["zero_grad"].answer == "fail"


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
