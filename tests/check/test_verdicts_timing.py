"""The judges of clocks and devices, on observations written by hand."""

from __future__ import annotations

import itertools

import pytest

from paceline.check.check import judge
from paceline.check.observations import Event
from paceline.check.scripts import SCRIPTS
from paceline.check.verdicts import devices, timing, warmup
from tests.check.written import backward, clock, forward, model, move, seen, train, world

# Timing.


def timed(num_steps: int, report: str, *, wait: bool = True, device: str = "cpu") -> list[Event]:
    """Step k takes k + 1 milliseconds, so that every mean is known."""
    now = itertools.count(step=1.0)
    events: list[Event] = [model([device])]
    for step in range(num_steps):
        start = next(now)
        events += [clock(start), forward(), backward(), move()]
        events += [seen("wait", function="synchronize")] * wait
        events.append(clock(start + (step + 1) * 1e-3))
    return [*events, seen("print", 30, text=report)]


@pytest.mark.parametrize(
    ("report", "answer"),
    [
        ("mean 20.500 ms", "pass"),  # (6 + … + 35) / 30
        ("mean 0.02050 s", "pass"),
        ("median 20.50", "pass"),
        ("total 0.615 s", "pass"),
        ("48.78 steps per second", "pass"),
        ("mean 23.000 ms, of all steps 18.000 ms", "pass"),  # 10 left out
        ("18.000 ms in 0.63000 s, steady 20.500 ms", "pass"),
        ("mean 25.500 ms", "pass"),  # 15 left out
        ("mean 18.000 ms", "fail"),  # all 35
        ("mean 19.00 ms", "fail"),  # the first two left out
        ("mean 17.77 ms", "unknown"),
        ("about 20 ms", "unknown"),
        ("done", "unknown"),
    ],
)
def test_the_reported_mean_tells_whether_warmup_is_in_it(report: str, answer: str) -> None:
    verdict = warmup.judge_warmup(world([timed(35, report)] * 2))
    assert verdict.answer == answer, verdict


def test_a_clock_that_starts_after_warmup_passes_and_one_around_everything_fails() -> None:
    late = [model(), *train(5), clock(1.0), *train(30), clock(2.0), seen("print", text="33.333 ms")]
    assert warmup.judge_warmup(world([late] * 2)).answer == "pass"
    whole = [model(), clock(1.0), *train(35), clock(2.0), seen("print", text="28.571 ms")]
    dated = [*whole, clock(3.0, function="time")]
    for events in (whole, dated):
        assert warmup.judge_warmup(world([events] * 2)).answer == "fail"
    assert timing.judge_timing(world([whole] * 2)).answer == "pass"


def test_a_mean_that_fits_with_and_without_warmup_says_nothing() -> None:
    events = [model(), *itertools.chain(*([clock(step), *train(1)] for step in range(40))), clock(40)]
    events.append(seen("print", text="1000.000 ms"))
    assert warmup.judge_warmup(world([events] * 2)).answer == "unknown"


@pytest.mark.parametrize("program", ["perf_counter", "time"])  # the whole script's clock: the same, another
@pytest.mark.parametrize(
    ("report", "answer"),
    [
        ("33.333 ms, whole script: 1.500 s", "pass"),
        ("whole script: 1.500 s", "unknown"),
        ("42.857 ms", "fail"),  # 1.5 s over all 35 steps
    ],
)
def test_the_whole_scripts_time_may_be_told_too(program: str, report: str, answer: str) -> None:
    began, ended = clock(1.0, function=program), clock(2.5, function=program)
    printed = seen("print", text=report)
    loop = [model(), began, *train(5), clock(1.2), *train(30), clock(2.2), ended, printed]
    # With another clock alone what is printed of the first is not told apart from its own whole interval.
    expected = "pass" if program == "time" else answer
    assert warmup.judge_warmup(world([loop] * 2)).answer == expected
    each = itertools.chain(*([clock(k), *train(1), clock(k + 1 / 30)] for k in range(30)))
    events = [model(), began, *train(5), *each, ended, printed]
    assert warmup.judge_warmup(world([events] * 2)).answer == expected


def test_only_homework_1_asks_to_leave_warmup_out() -> None:
    measured = world([timed(35, "mean 18.000 ms")] * 2)
    answers = {name: judge(script, measured)["warmup"].answer for name, script in SCRIPTS.items()}
    assert {name for name, answer in answers.items() if answer == "fail"} == {"ddp", "dataparallel"}
    assert "no fault" in judge(SCRIPTS["both"], measured)["warmup"].reason


def test_an_accelerator_must_be_waited_for() -> None:
    assert timing.judge_waiting(world([timed(9, "", device="cuda:0")])).answer == "pass"
    assert timing.judge_waiting(world([timed(9, "", wait=False, device="cuda:0")])).answer == "fail"
    assert timing.judge_waiting(world([timed(9, "", wait=False)])).answer == "pass"


def test_a_clock_that_stops_before_the_optimizer_fails_without_a_second_reading() -> None:
    events = [model(), *itertools.chain(*([forward(), clock(1.0), backward(), move()] for _ in range(9)))]
    assert timing.judge_timing(world([events])).answer == "fail"


@pytest.mark.parametrize(
    ("report", "answer"),
    [
        ("mean 25.50 ms", "fail"),  # until before the optimizer, 5 steps left out
        ("mean 25.37 ms", "pass"),  # until the next step
        ("mean 25.50 of 25.37 ms", "unknown"),
        ("done", "unknown"),
    ],
)
def test_a_mean_alone_tells_which_interval_is_meant(report: str, answer: str) -> None:
    """Step k takes k + 1 ms until before the optimizer, then 0.37 ms more."""
    events, now = [model()], 0.0
    for step in range(45):
        events += [clock(now), forward(), backward(), clock(now + (step + 1) * 1e-3), move()]
        now += (step + 1.37) * 1e-3
    events.append(seen("print", text=report))
    verdict = timing.judge_timing(world([events] * 2))
    assert verdict.answer == answer, verdict


@pytest.mark.parametrize(
    ("functions", "answer"),
    [
        (["process_time"], "fail"),
        (["thread_time_ns"], "fail"),
        (["process_time", "perf_counter"], "pass"),
    ],
)
def test_a_clock_of_the_cpu_leaves_waiting_out(functions: list[str], answer: str) -> None:
    events = [model()]
    for step in range(9):
        readings = [clock(step, function=function) for function in functions]
        events += [*readings, *train(1), *readings]
    assert timing.judge_timing(world([events] * 2)).answer == answer
    if answer == "fail":
        whole = [clock(0.0, function="time"), *events, clock(9.0, function="time")]
        assert timing.judge_timing(world([whole] * 2)).answer == "unknown"


# Devices.


def placed(layers: list[str], available: int) -> list[Event]:
    path = [[f"layers.{i}", device] for i, device in enumerate(layers)]
    return [
        seen("machine", accelerators=available, virtual=True),
        model(layers),
        forward(path=path, layers=len(layers), devices=sorted(set(layers))),
        backward(),
        move(),
    ]


def on(*counts: int) -> list[str]:
    return [f"virtual:{device}" for device, number in enumerate(counts) for _ in range(number)]


@pytest.mark.parametrize(
    ("layers", "available", "answer", "said"),
    [
        (on(3, 2, 2), 3, "pass", "3 on virtual:0"),
        (on(4, 4, 4, 4, 4), 5, "pass", "20 layers"),
        (on(1, 1), 3, "pass", "2 layers, 3 devices"),
        (on(2, 2, 3), 3, "fail", "remainder"),
        (on(5, 1, 1), 3, "fail", "uneven"),
        (on(4, 3), 3, "fail", "2 of 3 devices"),
        (["virtual:0", "virtual:1", "virtual:0", "virtual:1"], 2, "fail", "jump"),
    ],
)
def test_layers_are_spread_evenly(layers: list[str], available: int, answer: str, said: str) -> None:
    verdict = devices.judge_even_split(world([placed(layers, available)]))
    assert (verdict.answer, said in verdict.reason) == (answer, True), verdict


@pytest.mark.parametrize(
    ("counts", "answer"), [((3, 3), "pass"), ((3, 4), "pass"), ((4, 3), "fail"), ((7,), "fail")]
)
def test_the_first_half_of_the_layers_is_on_device_0(counts: tuple[int, ...], answer: str) -> None:
    assert devices.judge_halves(world([placed(on(*counts), 2)])).answer == answer


def test_moves_and_unused_layers_are_counted() -> None:
    events = placed(on(2, 2), 2)
    events[2]["moves"] = [["cpu", "virtual:0", 0, 20], ["virtual:0", "virtual:1", 2, 21]]
    assert devices.judge_moves(world([events])).answer == "pass"
    events[2]["moves"] += [["virtual:1", "virtual:0", 3, 22], ["virtual:0", "virtual:1", 3, 23]]
    verdict = devices.judge_moves(world([events]))
    assert (verdict.answer, verdict.line) == ("fail", 22)
    assert devices.judge_all_layers(world([events])).answer == "pass"
    events[2]["path"].pop()
    assert "layers.3" in devices.judge_all_layers(world([events])).reason


def test_data_parallel_must_use_several_devices() -> None:
    events = placed(["virtual:0"], 2)
    assert devices.judge_replicas(world([events])).answer == "fail"
    events[1].update(data_parallel=True)
    assert devices.judge_replicas(world([events])).answer == "fail"
    events[2].update(devices=["virtual:0", "virtual:1"])
    assert devices.judge_replicas(world([events])).answer == "pass"
