"""Starts the tests that need virtual devices, one process per file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INSIDE = Path(__file__).parent / "inside"


@pytest.mark.parametrize("file", sorted(path.name for path in INSIDE.glob("test_*.py")))
def test_file_passes_on_virtual_devices(library: None, file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(INSIDE / file)]
    environment = {**os.environ, "PACELINE_INSIDE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
