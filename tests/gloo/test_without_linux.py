"""A system that is not Linux, such as macOS: the same results, and nothing is left running there either."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_faults import TRAINING, wait_until_gone

from paceline.processes import find_descendants
from paceline.step_file import count_rows

LAUNCHER = """
import json, sys
from pathlib import Path
from paceline.launch import run_world
from paceline.study import Config, Options
program, fault, step, timeout_s, run_dir = sys.argv[1:]
record = run_world(
    Config(program, (fault, step), 2, "tuned"),
    Options(steps=20, warmup=2, sampled=2, timeout_s=float(timeout_s)),
    study="s", round=0, key="k", cores_per_rank=1, run_dir=Path(run_dir), on_progress=lambda progress: None)
print(json.dumps([record.status, record.cause, [len(rank.series["kind"]) for rank in record.ranks]]))
"""


def start(run_dir: Path, fault: str, step: int, mark: str, timeout_s: float = 60) -> "subprocess.Popen[str]":
    """The launcher and all that it starts find no Linux: see sitecustomize.py there."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path("tests/without_linux").resolve()),
        "PACELINE_TEST_MARK": mark,
    }
    command = [sys.executable, "-c", LAUNCHER, TRAINING, fault, str(step), str(timeout_s), str(run_dir)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run(tmp_path: Path, fault: str, step: int, timeout_s: float = 60) -> tuple[str, str | None, list[int]]:
    launcher = start(tmp_path / "run", fault, step, mark := f"{fault}-{tmp_path}", timeout_s)
    answer, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0
    assert wait_until_gone(mark, 0) == []
    status, cause, num_steps = json.loads(answer)
    return status, cause, num_steps


def test_a_world_is_measured_and_its_children_end_with_it(tmp_path):
    assert run(tmp_path, "child", 100) == ("ok", None, [24, 24])


def test_a_killed_rank_is_named_and_what_it_started_is_ended(tmp_path):
    status, cause, _ = run(tmp_path, "child+kill", 10)
    assert (status, cause) == ("failed", "rank 1 was killed by SIGKILL after 10 steps")


def test_a_hang_tells_where_every_rank_stands(tmp_path):
    status, cause, _ = run(tmp_path, "hang", 5, timeout_s=10)
    assert status == "hung"
    assert "rank 0 stands at fault_in_training.py" in cause
    assert "rank 1 stands at fault_in_training.py" in cause


@pytest.mark.parametrize("victim", ["launcher", "agent"])
def test_nothing_outlives_a_launcher_or_an_agent_that_is_killed(tmp_path, victim):
    mark = f"{victim}-{tmp_path}"
    launcher = start(tmp_path / "run", "child", 3, mark, timeout_s=600)
    deadline = time.monotonic() + 60
    while count_rows(tmp_path / "run" / "rank1.steps") == 0:
        assert launcher.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(launcher.pid if victim == "launcher" else find_descendants(launcher.pid)[0], signal.SIGKILL)
    launcher.wait(20)
    assert wait_until_gone(mark, 8) == []
