"""The step clock on a made-up time line: no torch, no sleeping."""

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.probe.clock import StepClock, Window
from paceline.probe.phases import BACKWARD_BEGAN, BACKWARD_ENDED, MODEL_CALLED
from paceline.record import SAMPLED, STEP_METRICS, TIMED, WARMUP

SHORT = Window(warmup=1, steps=2, sampled=1)


class Script:
    """A training script on a clock that only moves when told."""

    def __init__(self, marker: str = "auto", window: Window = SHORT) -> None:
        self.time_s = 100.0
        self.rows: list[dict[str, float]] = []
        self.ended: list[int] = []
        self.restarts: list[str] = []
        self.clock = StepClock(
            window,
            lambda times: self.rows.append(dict(zip(("step", *STEP_METRICS), times, strict=False))),
            self.ended.append,
            lambda reason, step: self.restarts.append(reason),
            marker,
            now=lambda: self.time_s,
        )

    def wait(self, seconds: float) -> None:
        self.time_s += seconds

    def micro_step(self) -> None:
        self.wait(0.005)
        self.clock.note(MODEL_CALLED)
        self.wait(0.010)
        self.clock.note(BACKWARD_BEGAN)
        self.wait(0.020)
        self.clock.note(BACKWARD_ENDED)

    def optimizer_step(self, optimizer: object) -> None:
        self.wait(0.001)
        self.clock.optimizer_began(optimizer)
        self.wait(0.004)
        self.clock.optimizer_ended(optimizer)


SGD = object()


def test_every_moment_of_a_step_belongs_to_one_phase() -> None:
    script = Script()
    for _ in range(4):
        script.micro_step()
        script.micro_step()
        script.optimizer_step(SGD)
    for line in script.rows:
        assert line["micro_steps"] == 2
        assert line["step_time_s"] == pytest.approx(0.075)
        assert line["data_s"] == pytest.approx(0.010)
        assert line["forward_s"] == pytest.approx(0.020)
        assert line["backward_s"] == pytest.approx(0.040)
        assert line["other_s"] == pytest.approx(0.001)
        assert line["optimizer_s"] == pytest.approx(0.004)
    assert [line["kind"] for line in script.rows] == [WARMUP, TIMED, TIMED, SAMPLED]
    assert script.ended == [0, 1, 2, 3]


def test_an_optimizer_inside_an_optimizer_is_one_step() -> None:
    script = Script()
    script.micro_step()
    script.clock.optimizer_began("outer")
    script.clock.optimizer_began("inner")
    script.wait(0.004)
    script.clock.optimizer_ended("inner")
    script.clock.optimizer_ended("outer")
    assert len(script.rows) == 1


def test_an_optimizer_that_raised_is_forgotten_when_it_steps_again() -> None:
    script = Script()
    script.optimizer_step("outer")
    script.clock.optimizer_began("outer")
    script.clock.optimizer_began("inner")  # raises; the script catches it, and goes on
    for _ in range(2):
        script.micro_step()
        script.optimizer_step("outer")
    assert [line["step"] for line in script.rows] == [0, 1, 2]


def test_an_optimizer_whose_class_calls_the_one_above_is_one_step() -> None:
    script = Script()
    for _ in range(2):
        script.micro_step()
        script.clock.optimizer_began(SGD)
        script.optimizer_step(SGD)
        script.clock.optimizer_ended(SGD)
    assert [line["optimizer_s"] for line in script.rows] == [pytest.approx(0.005)] * 2


def test_a_closure_runs_forward_and_backward_inside_the_optimizer() -> None:
    script = Script()
    script.clock.optimizer_began(SGD)
    script.micro_step()
    script.wait(0.003)
    script.clock.optimizer_ended(SGD)
    (line,) = script.rows
    assert line["optimizer_s"] == pytest.approx(0.008)
    assert (line["forward_s"], line["backward_s"]) == (pytest.approx(0.010), pytest.approx(0.020))


def test_two_optimizers_make_one_step_once_their_order_is_known() -> None:
    script = Script()
    critic, generator = object(), object()
    for _ in range(4):
        for optimizer in (critic, generator):
            script.micro_step()
            script.optimizer_step(optimizer)
    assert len(script.restarts) == 1
    after = script.rows[1:]
    assert [line["step"] for line in after] == [0, 1, 2]
    assert all(line["step_time_s"] == pytest.approx(0.080) for line in after)


def test_marks_take_over_from_optimizers() -> None:
    script = Script()
    for _ in range(3):
        script.micro_step()
        script.optimizer_step(SGD)
        script.micro_step()
        script.optimizer_step(SGD)
        script.clock.mark()
    assert [line["step_time_s"] for line in script.rows][-2:] == [pytest.approx(0.080)] * 2


def test_an_optimizer_can_be_named_as_the_marker() -> None:
    script = Script(marker="list")
    script.optimizer_step({})
    script.optimizer_step([])
    assert len(script.rows) == 1


def test_a_full_disk_ends_the_rank_with_its_reason() -> None:
    program = (
        "from pathlib import Path\nfrom paceline.probe.sink import Sink\nSink(Path('/dev/full')).write('x')"
    )
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 74
    assert "No space left" in done.stderr
