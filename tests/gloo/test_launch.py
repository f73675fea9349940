"""A world that goes well: what its ranks find, what its record holds, that nothing is left of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.run import parse_args

from paceline.launch import Progress, run_world
from paceline.machine import usable_cores
from paceline.processes import find_descendants
from paceline.record import WARMUP, RunRecord
from paceline.spec import build_arguments
from paceline.study import Config, Options
from paceline.torchrun import _idle, stop_idle_agents

PROGRAM = "tests/programs/launch_report.py"
ROOT = Path(__file__).parents[2]
# What no two runs of torchrun share.
OWN = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "PYTEST_CURRENT_TEST"}


def read_reports(folder: Path) -> list[dict[str, object]]:
    return [json.loads((folder / f"report{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def tuned(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[RunRecord, list[Progress], list[dict[str, object]]]:
    folder = tmp_path_factory.mktemp("tuned")
    progress: list[Progress] = []
    record = run_world(
        Config(PROGRAM, (str(folder), "--flag"), 2, "tuned"),
        Options(steps=5, warmup=2, sampled=1),
        study="launch",
        round=1,
        key="abc",
        cores_per_rank=1,
        run_dir=folder / "run",
        on_progress=progress.append,
    )
    return record, progress, read_reports(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    folder = tmp_path_factory.mktemp("plain")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, PROGRAM, str(folder), "--flag"]
    # As Python sees its environment: readline adds to what C sees.
    subprocess.run(command, cwd=ROOT, env=dict(os.environ), check=True, capture_output=True)
    return read_reports(folder)


def test_the_record_holds_what_was_run(tuned):
    record, _, _ = tuned
    assert (record.status, record.cause, record.failed_rank) == ("ok", None, None)
    assert (record.study, record.round, record.key, record.world) == ("launch", 1, "abc", 2)
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert all(len(rank.series["step_time_s"]) == 8 for rank in record.ranks)
    assert "--nproc-per-node" in record.command
    assert record.command[-2:] == record.arguments
    assert record.environment["MALLOC_MMAP_MAX_"] == "0"
    assert not any("PATH" in name for name in record.environment)
    assert record.versions["torch"].startswith("2.")
    assert record.machine["cores"] == len(usable_cores())
    assert record.options["steps"] == 5
    assert len(record.git_commit.rstrip("+")) == 40
    assert 0 < record.wall_s < 60


def test_progress_begins_at_once_and_ends_with_the_last_step(tuned):
    _, progress, _ = tuned
    assert progress[0] == Progress(0, 8, None, WARMUP)
    assert progress[-1].step == 8
    assert progress[-1].step_time_s > 0


def test_each_rank_has_its_own_cores_and_as_many_threads(tuned):
    _, _, reports = tuned
    cores = usable_cores()
    assert [report["cores"] for report in reports] == [[cores[0]], [cores[1 % len(cores)]]]
    assert [report["threads"] for report in reports] == [1, 1]


def test_gloo_threads_give_way_and_nothing_else_does(tuned):
    for report in tuned[2]:
        nice = report["nice"]
        assert nice["gloo_tcp_loop"] == 19
        assert {value for name, value in nice.items() if name != "gloo_tcp_loop"} == {report["main_nice"]}


def test_the_script_finds_what_plain_torchrun_would_give_it(tuned, plain):
    for ours, theirs in zip(tuned[2], plain, strict=True):
        assert ours["argv"][0] == theirs["argv"][0] == PROGRAM
        assert ours["argv"][2:] == theirs["argv"][2:]
        for name in ("directory", "path0", "name", "file"):
            assert ours[name] == theirs[name]
        environments = [
            {k: v for k, v in report["environment"].items() if k not in OWN} for report in (ours, theirs)
        ]
        assert environments[0] == environments[1]


def test_only_the_idle_agent_stays_and_it_goes_when_asked(tuned):
    agents = [agent.pid for agent in _idle]
    assert set(find_descendants(os.getpid())) >= set(agents) != set()
    assert all(find_descendants(agent) == [] for agent in agents)
    stop_idle_agents()
    assert not set(find_descendants(os.getpid())) & set(agents)


def test_a_script_that_is_not_there_is_a_result_that_costs_nothing(tmp_path):
    record = run_world(
        Config("tests/programs/launch_reports.py", (), 1, "tuned"),
        Options(),
        study="launch",
        round=0,
        key="k",
        cores_per_rank=1,
        run_dir=tmp_path / "run",
        on_progress=lambda progress: None,
    )
    assert record.status == "failed"
    assert "launch_report.py" in record.cause
    assert not (tmp_path / "run").exists()


def test_an_option_of_the_script_is_never_taken_for_one_of_torchruns(tmp_path):
    config = Config("train.py", ("--log", "file", "--nnodes", "7"), 1, "plain")
    for probe in (True, False):
        parsed = parse_args(build_arguments(config, Options(), tmp_path, probe))
        assert parsed.training_script_args[-4:] == ["--log", "file", "--nnodes", "7"]
        assert parsed.nnodes != "7"
