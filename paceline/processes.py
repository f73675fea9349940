"""The tree of processes below one process: who they are, and how none of them is left.

In: a process id. Out: the ids of everything that descends from it, or nothing left alive there.
Linux keeps the tree in /proc; elsewhere `ps` tells it. Standard library only.

    python -c "from paceline.processes import find_descendants; print(find_descendants(1))"
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with_parent(sig: signal.Signals) -> None:
    """Have the kernel send `sig` to this process when its parent is gone, however the parent went."""
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent:  # it went in between
        os.kill(os.getpid(), sig)


def adopt_orphans() -> None:
    """Let descendants whose parent ends become children of this process instead of init's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def list_parents() -> dict[int, int]:
    """Every live process → its parent. A zombie is not alive."""
    if not Path("/proc/self/stat").exists():
        lines = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True).stdout
        rows = (line.split() for line in lines.splitlines())
        return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                # The command stands in parentheses and may hold spaces: read what follows the last one.
                state, parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(name)] = int(parent)
    return parents


def find_descendants(pid: int) -> list[int]:
    parents = list_parents()
    found: list[int] = []
    layer = {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        found += sorted(layer)
    return found


def kill_descendants(pid: int, within_s: float = 5.0) -> None:
    """SIGKILL all that descends from `pid`, again and again while more appear, but not `pid` itself."""
    deadline = time.monotonic() + within_s
    while (alive := find_descendants(pid)) and time.monotonic() < deadline:
        for descendant in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(descendant, signal.SIGKILL)
        if pid == os.getpid():
            reap_children()
        time.sleep(0.02)


def reap_children() -> None:
    """Take the exit codes of ended children that nobody waits for, adopted ones above all."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
