"""A lab from the command to the PDF, with real ranks: measured, reported again, and resumed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def paceline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline", "lab", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_part_of_practical7_is_measured_and_handed_in(tmp_path: Path) -> None:
    measured = paceline(tmp_path, "run", "practical7", "--scale", "tiny", "--task", "2", "--author", "Ada")
    assert measured.returncode == 0, measured.stderr
    assert "3 runs to do" in measured.stderr
    folder = tmp_path / "submission" / "practical7"
    for name in ("report.pdf", "report.html", "commands.txt", "machine.json", "practical7_accumulation.py"):
        assert (folder / name).stat().st_size > 0
    page = (folder / "report.html").read_text()
    # The weights stand still, so the two gradients differ by the division alone, whatever the machine's pace.
    assert re.search(r"without the division is <strong>4 times</strong>", page)
    assert "paceline lab run practical7 --task 3" in page  # not measured yet
    assert "launched once" in page

    again = paceline(tmp_path, "run", "practical7", "--scale", "tiny", "--task", "1")
    assert again.returncode == 0, again.stderr
    assert "1 run to do" in again.stderr

    (folder / "report.html").unlink()
    reported = paceline(tmp_path, "report", "practical7", "--author", "Grace")
    assert reported.returncode == 0, reported.stderr
    page = (folder / "report.html").read_text()
    assert "Grace" in page
    assert "No: on 1 of 4" in page


def test_a_rank_that_dies_leaves_a_marked_cell_and_exit_code_1(tmp_path: Path) -> None:
    """Every launch fails at once without the network interface that gloo is told to use."""
    broken = {"GLOO_SOCKET_IFNAME": "nonesuch0"}
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "lab", "run", "practical7", "--scale", "tiny", "--task", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **broken},
    )
    assert done.returncode == 1
    assert "Code 1: failed: " in done.stderr
    page = (tmp_path / "submission" / "practical7" / "report.html").read_text()
    assert "Cannot be answered: failed: " in page
