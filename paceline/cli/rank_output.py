"""What the ranks of a running world print, line by line, for `--verbose`.

In: the folder of a run, where torchrun keeps each rank's output. Out: its lines, the rank before each.
Exercise: `paceline run --verbose examples/train.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.5


class RankOutput:
    """Follows the output of one run until it is told to stop; then nothing is left unread."""

    def __init__(self, run_dir: Path, show: Callable[[str], None]) -> None:
        self._run_dir, self._show = run_dir, show
        self._offsets: dict[Path, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stop.wait(POLL_S):
            self._read(whole_lines=True)
        self._read(whole_lines=False)

    def _read(self, *, whole_lines: bool) -> None:
        for path in sorted(self._run_dir.glob("logs/*/attempt_*/*/std*.log")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            if whole_lines:
                data = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(data)
            for line in data.decode(errors="replace").splitlines():
                self._show(f"[rank {path.parent.name}] {line}")
