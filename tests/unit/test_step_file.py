"""Steps written by one process are read by another, at any moment."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

from paceline.step_file import COLUMNS, NUM_TIMES, ROWS_AT_ONCE, StepFile, count_rows, read_rows, read_steps

VALUES = [float(place) for place in range(1, NUM_TIMES)]


def test_rows_come_back_under_their_names(tmp_path: Path) -> None:
    file = StepFile(tmp_path / "rank0.steps")
    file.append([0.0, *VALUES])
    file.fill(0, "loss", 7.0)
    (row,) = read_steps(tmp_path / "rank0.steps")
    assert row["step"] == 0
    assert [row[name] for name in COLUMNS[1:NUM_TIMES]] == VALUES
    assert row["loss"] == 7.0
    assert math.isnan(row["skipped"])


def test_the_file_grows_and_can_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "rank0.steps"
    file = StepFile(path)
    assert count_rows(path) == 0
    for step in range(ROWS_AT_ONCE + 3):
        file.append([step, *VALUES])
    assert count_rows(path, known=10) == ROWS_AT_ONCE + 3
    assert [row["step"] for row in read_rows(path, ROWS_AT_ONCE)] == [
        ROWS_AT_ONCE + place for place in range(3)
    ]


def test_where_a_rank_started_over_only_the_rest_counts(tmp_path: Path) -> None:
    file = StepFile(tmp_path / "rank0.steps")
    for step in (0, 1, 2, 0, 1, 0, 1, 2, 3):
        file.append([step, *VALUES])
    assert [row["step"] for row in read_steps(tmp_path / "rank0.steps")] == [0, 1, 2, 3]


def test_a_killed_rank_loses_no_step(tmp_path: Path) -> None:
    path = tmp_path / "rank0.steps"
    program = (
        "import os, signal, sys; from pathlib import Path; from paceline.step_file import *\n"
        "file = StepFile(Path(sys.argv[1]))\n"
        "for step in range(7): file.append([step] * NUM_TIMES)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], env=dict(os.environ), timeout=30)
    assert done.returncode == -signal.SIGKILL
    assert len(read_steps(path)) == 7
