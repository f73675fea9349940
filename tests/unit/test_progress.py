"""What is shown while a measurement goes on: on a terminal, in a log, and of the ranks' own output."""

import io

import pytest
from rich.console import Console
from synthetic import make_run

from paceline.cli.progress import LiveReporter, PlainReporter, median_step_time_s
from paceline.cli.rank_output import RankOutput
from paceline.launch import Progress
from paceline.measure import Plan
from paceline.study import Config, Options, Study


@pytest.fixture
def study():
    configs = [Config("train.py", (), world, "tuned") for world in (1, 2)]
    return Study("demo", configs, 3, options=Options())


def make_console(**settings) -> Console:
    return Console(file=io.StringIO(), width=80, **settings)


def test_a_terminal_has_one_line_per_configuration(study, tmp_path):
    console = make_console(force_terminal=True, height=24)
    reporter = LiveReporter(study, console)
    first, second = study.configs
    reporter.remaining_s = 42.4
    reporter.begin_run(first, 1, tmp_path)
    reporter.show_progress(first, 1, Progress(12, 39, 0.0104, 1))
    shown = Console(width=80, file=io.StringIO())
    shown.print(reporter.render())
    lines = [line.split() for line in shown.file.getvalue().splitlines()]
    assert lines == [
        ["▸", "1", "rank", "round", "1/3", "step", "12/39", "10.4", "ms"],
        ["2", "ranks", "waiting"],
        ["about", "42", "s", "left"],
    ]
    reporter.end_run(first, make_run(step_times_s=[0.02] * 30, round=1), tmp_path, None)
    assert reporter.states[first] == "round 1/3  20.0 ms per step"
    assert reporter.running is None
    assert console.file.getvalue() == ""  # a good run leaves no line behind
    assert second not in reporter.states


def test_a_small_terminal_follows_the_running_configuration(study):
    many = Study("demo", [Config("train.py", ("--n", str(n)), 1, "tuned") for n in range(40)], 1)
    reporter = LiveReporter(many, make_console(force_terminal=True, height=10))
    reporter.running = many.configs[30]
    shown = reporter.shown_configs()
    assert len(shown) == 5
    assert many.configs[30] in shown
    reporter.running = many.configs[39]
    assert reporter.shown_configs() == many.configs[35:]


def test_a_log_has_one_line_per_run(study, tmp_path):
    console = make_console()
    failed = make_run(world=2, status="failed", cause="rank 1 raised ValueError", round=1, wall_s=3.0)
    with PlainReporter(study, console) as reporter:
        reporter.begin(Plan(study, 1, 5, 1, [failed]), 65.0)
        reporter.begin_run(study.configs[0], 1, tmp_path)
        reporter.show_progress(study.configs[0], 1, Progress(1, 39, 0.01, 0))
        reporter.end_run(study.configs[0], make_run(round=1, wall_s=3.0), tmp_path, 12.0)
        reporter.end_run(study.configs[1], failed, tmp_path, None)
    assert console.file.getvalue().splitlines() == [
        "demo: 2 configurations × 3 rounds, 5 runs to do, 1 in the store already, about 1 min 5 s",
        "kept: 2 ranks, round 1: failed: rank 1 raised ValueError (--retry runs it again)",
        "1 rank, round 1: 20.0 ms per step (3.00 s, about 12 s left)",
        f"2 ranks, round 1: failed: rank 1 raised ValueError (3.00 s); its files are in {tmp_path}",
    ]


def test_the_first_impression_is_the_slowest_rank_over_timed_steps():
    run = make_run(world=2, step_times_s=[[0.02] * 30, [0.03] * 30])
    run.ranks[0].series["step_time_s"][:5] = [9.0] * 5  # warm-up
    assert median_step_time_s(run) == 0.03
    assert median_step_time_s(make_run(ranks=[])) is None


def test_output_of_ranks_is_followed_line_by_line(tmp_path):
    lines = []
    output = RankOutput(tmp_path, lines.append)
    folder = tmp_path / "logs" / "run_x" / "attempt_0" / "1"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("step 0\nstep 1\nno end")
    (folder / "stderr.log").write_bytes(b"\xff warning\n")
    output.stop()
    assert sorted(lines) == ["[rank 1] no end", "[rank 1] step 0", "[rank 1] step 1", "[rank 1] � warning"]
