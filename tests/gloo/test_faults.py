"""Worlds that go wrong: the cause is told, the steps before it are kept, and nothing is left running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.launch import run_world
from paceline.record import RunRecord
from paceline.step_file import ROWS_AT_ONCE, count_rows
from paceline.study import Config, Options

PROGRAMS = "tests/programs"
TRAINING = f"{PROGRAMS}/fault_in_training.py"
SHORT = {"steps": 20, "warmup": 2, "sampled": 2}


def launch(folder: Path, program: str, *arguments: str, world: int = 2, **options: float) -> RunRecord:
    return run_world(
        Config(program, arguments, world, "tuned"),
        Options(**options),
        study="faults",
        round=0,
        key="k",
        cores_per_rank=1,
        run_dir=folder / "run",
        on_progress=lambda progress: None,
    )


def find_marked(mark: str) -> list[str]:
    """Command lines of all processes that inherited the mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes() and int(path.name) != os.getpid():
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def wait_until_gone(mark: str, within_s: float) -> list[str]:
    deadline = time.monotonic() + within_s
    while (left := find_marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def test_a_killed_rank_is_named_and_its_steps_are_kept(tmp_path):
    record = launch(tmp_path, TRAINING, "kill", "10", **SHORT)
    assert (record.status, record.failed_rank) == ("failed", 1)
    assert record.cause == "rank 1 was killed by SIGKILL after 10 steps"
    assert [len(rank.series["step_time_s"]) for rank in record.ranks] == [10, 10]


def test_a_hang_tells_where_every_rank_stands(tmp_path):
    record = launch(tmp_path, TRAINING, "hang", "10", timeout_s=10, **SHORT)
    lines = Path(TRAINING).read_text().splitlines()
    sleeping = next(i for i, line in enumerate(lines, 1) if "time.sleep(600)" in line)
    waiting = next(i for i, line in enumerate(lines, 1) if ".backward()" in line)
    assert (record.status, record.failed_rank) == ("hung", 1)
    assert f"rank 0 stands at fault_in_training.py:{waiting} in backward" in record.cause
    assert f"rank 1 stands at fault_in_training.py:{sleeping}" in record.cause
    assert "rank 1\nCurrent thread" in record.traceback
    assert len(record.ranks[0].series["step_time_s"]) == 10


def test_a_syntax_error_is_shown_with_its_line(tmp_path):
    record = launch(tmp_path, f"{PROGRAMS}/syntax_error.py", world=1)
    assert record.status == "failed"
    assert record.last_line.startswith("SyntaxError: invalid syntax (syntax_error.py, line 4)")
    assert "model = = torch" in record.traceback


def test_no_step_is_no_result(tmp_path):
    record = launch(tmp_path, f"{PROGRAMS}/fault_no_steps.py", "0", world=1)
    assert record.status == "failed"
    assert "no optimizer step was seen" in record.cause


def test_fewer_steps_than_warm_up_are_no_result(tmp_path):
    record = launch(tmp_path, f"{PROGRAMS}/fault_no_steps.py", "3", world=1)
    assert record.status == "failed"
    assert "ended after 3 steps, the warm-up alone takes 5" in record.cause


def test_an_error_after_the_measured_steps_does_not_discard_them(tmp_path):
    record = launch(tmp_path, TRAINING, "raise", "23", **SHORT)
    assert (record.status, record.cause) == ("ok", None)
    assert any("bad batch 23" in note["text"] for note in record.ranks[0].notes)


def test_children_of_a_rank_end_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_TEST_MARK", mark := f"children-{tmp_path}")
    record = launch(tmp_path, TRAINING, "children", "100", **SHORT)
    assert record.status == "ok"
    # The agent itself stays for the next world.
    assert [line for line in find_marked(mark) if "paceline.agent" not in line] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount a small disk here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_said_to_be_one(small_disk):
    record = launch(small_disk, TRAINING, "none", "0", world=1, steps=5000, warmup=2)
    assert record.status == "failed"
    # The second piece of the file of steps did not fit.
    assert (
        record.cause
        == f"disk full: rank 0 could not write after {ROWS_AT_ONCE} steps (no space left on device)"
    )
    assert len(record.ranks[0].series["step_time_s"]) == ROWS_AT_ONCE


LAUNCHER = f"""
import sys
from pathlib import Path
from paceline.launch import run_world
from paceline.study import Config, Options
run_world(Config({TRAINING!r}, (sys.argv[2], "3"), 2, "tuned"), Options(), study="s", round=0, key="k",
          cores_per_rank=1, run_dir=Path(sys.argv[1]), on_progress=lambda progress: None)
"""


def start_launcher(run_dir: Path, fault: str, mark: str) -> "subprocess.Popen[bytes]":
    """A launcher of its own, in the middle of a run: its second rank has taken steps."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(run_dir), fault],
        env={**os.environ, "PACELINE_TEST_MARK": mark},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while count_rows(run_dir / "rank1.steps") == 0:
        assert launcher.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return launcher


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_nothing_outlives_a_launcher_that_is_killed(tmp_path, number, code):
    mark = f"killed-{number}-{tmp_path}"
    launcher = start_launcher(tmp_path / "run", "children", mark)
    launcher.send_signal(number)
    assert launcher.wait(10) == code
    # Asked to end, the launcher ends last. Killed, it leaves its agent to clean up.
    assert wait_until_gone(mark, 8 if number == signal.SIGKILL else 0) == []


def test_ctrl_c_twice_kills_at_once(tmp_path):
    mark = f"interrupted-{tmp_path}"
    launcher = start_launcher(tmp_path / "run", "stubborn", mark)
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert launcher.poll() is None  # its ranks do not heed SIGTERM
    launcher.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert launcher.wait(10) == -signal.SIGINT
    assert time.monotonic() - began < 1.2
    assert find_marked(mark) == []
