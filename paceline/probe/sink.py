"""Where a rank writes what it sees, apart from its steps: one JSON object per line, in its own file.

Enters: facts as keyword arguments. Leaves: `rank{R}.jsonl` in the run's folder. Every line is handed to the
kernel at once, so a rank that is killed loses nothing that it had measured.

    python -m paceline.worker script.py    (with PACELINE_SPEC naming a launcher's spec.json)
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

DISK_FULL_EXIT_CODE = 74  # EX_IOERR of sysexits.h: the launcher tells a full disk by it


class Sink:
    """An append-only file of JSON lines, silent in forked children (DataLoader workers)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._open = True
        os.register_at_fork(after_in_child=self.close)

    def write(self, event: str, **values: Any) -> None:
        """Append one line, handed to the kernel at once."""
        if not self._open:
            return
        line = json.dumps({"event": event, **values}, separators=(",", ":"), default=str) + "\n"
        try:
            written = os.write(self._file, line.encode())
        except OSError as error:
            self.give_up(error)
            return
        if written < len(line):  # a nearly full disk takes half a line
            self.give_up(OSError("only half of a line fitted on the disk"))

    def close(self) -> None:
        self._open = False

    def give_up(self, error: OSError) -> None:
        """End this process: the disk takes no more."""
        # Training on without recording would waste the user's time: end here, and say why on
        # stderr, which the launcher keeps.
        self._open = False
        message = f"paceline: cannot write {self.path}: {error.strerror or error}\n"
        with contextlib.suppress(OSError):  # stderr is a file too, perhaps on the same disk
            os.write(2, message.encode())
        os._exit(DISK_FULL_EXIT_CODE)
