"""One rank's steps as rows of numbers in a memory-mapped file: what a timed step can afford to write.

Enters: the times of a step as it ends, the rest of STEP_METRICS when it is known. Leaves:
`rank{R}.steps`, which another process can read at any time. A row costs one copy into memory that the
kernel owns, so a rank that is killed loses no step, and no system call runs inside a step. A line of JSON
cost ten times as much, which showed on steps of 10 ms.

    pytest tests/unit/test_step_file.py
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from paceline.record import STEP_METRICS

NUM_TIMES = STEP_METRICS.index("micro_steps") + 2  # the step's number and its times, known when a step ends
# A row counts once "written" is 1; it stands behind the times, so that one call writes both, in this order.
COLUMNS = ("step", *STEP_METRICS[: NUM_TIMES - 1], "written", *STEP_METRICS[NUM_TIMES - 1 :])
ROW = struct.Struct(f"<{len(COLUMNS)}d")
TIMES = struct.Struct(f"<{NUM_TIMES + 1}d")
PLACES = {name: place * 8 for place, name in enumerate(COLUMNS)}  # of a column in its row, in bytes
UNWRITTEN = ROW.pack(*(0.0 if name == "written" else math.nan for name in COLUMNS))
ROWS_AT_ONCE = 2048  # the file grows by as many: some 350 KB


class StepFile:
    """The writing side. OSError when the disk is full: at growth, never in the middle of a row."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self.num_rows = 0
        self._capacity = 0
        self._grow()

    def append(self, times: Sequence[float]) -> None:
        """Add the row of a step, with the first NUM_TIMES of COLUMNS; `fill` puts in the others."""
        if self.num_rows == self._capacity:
            self._grow()
        TIMES.pack_into(self._rows, self.num_rows * ROW.size, *times, 1.0)
        self.num_rows += 1

    def fill(self, row: int, metric: str, *values: float) -> None:
        """Put in what was not known yet when the row was written; several values: the columns that follow."""
        struct.pack_into(f"<{len(values)}d", self._rows, row * ROW.size + PLACES[metric], *values)

    def _grow(self) -> None:
        new = UNWRITTEN * ROWS_AT_ONCE
        length = self._capacity * ROW.size + len(new)
        # Written, not only made longer: on a full disk a sparse file would end in SIGBUS, later.
        if os.pwrite(self._file, new, length - len(new)) < len(new):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._rows = mmap.mmap(self._file, length)
        self._capacity += ROWS_AT_ONCE
        # Once more through the mapping: this takes its page faults here, not in a step.
        self._rows[length - len(new) :] = new


def read_rows(path: Path, first: int = 0) -> list[dict[str, float]]:
    """The rows written so far, from number `first` on, each under the names of COLUMNS."""
    try:
        with path.open("rb") as file:
            file.seek(first * ROW.size)
            data = file.read()
    except FileNotFoundError:
        return []
    rows = []
    for values in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size]):
        row = dict(zip(COLUMNS, values, strict=True))
        if row.pop("written") != 1.0:
            break
        rows.append(row)
    return rows


def read_steps(path: Path) -> list[dict[str, float]]:
    """The steps as they count in the end: where a rank started over, only what came after."""
    rows = read_rows(path)
    pairs = enumerate(pairwise(rows), start=1)
    restarts = [place for place, (before, row) in pairs if row["step"] <= before["step"]]
    return rows[restarts[-1] :] if restarts else rows


def count_rows(path: Path, known: int = 0) -> int:
    """How many rows there are, when there were `known` before: looks at the new ones alone."""
    try:
        with path.open("rb") as file:
            file.seek(known * ROW.size)
            while (row := file.read(ROW.size)) and len(row) == ROW.size and ROW.unpack(row)[NUM_TIMES] == 1.0:
                known += 1
    except FileNotFoundError:
        return 0
    return known
