"""The tree of processes below one process: who they are, and how none of them is left.

In: a process id. Out: the ids of everything that descends from it, or nothing left alive there.
Linux keeps the tree in /proc, and its kernel ends and adopts on request; elsewhere `ps` tells the tree, and
a thread watches. Standard library only.

    python -c "from paceline.processes import find_descendants; print(find_descendants(1))"
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ON_LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WATCH_S = 0.5  # how long a process may live on without its parent where the kernel does not end it


class Process(NamedTuple):
    parent: int
    group: int


def die_with_parent(sig: signal.Signals) -> None:
    """Have this process get `sig` when its parent is gone, however the parent went."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os.kill(os.getpid(), sig)

    if not ON_LINUX:
        threading.Thread(target=watch, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, sig, 0, 0, 0)
    if os.getppid() != parent:  # it went in between
        os.kill(os.getpid(), sig)


def adopt_orphans() -> None:
    """Let descendants whose parent ends become children of this process, where the kernel can do that."""
    if ON_LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def list_processes() -> dict[int, Process]:
    """Every live process by its id. A zombie is not alive."""
    return _read_proc() if ON_LINUX else _ask_ps()


def _read_proc() -> dict[int, Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                # The command stands in parentheses and may hold spaces: read what follows the last one.
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    found[int(name)] = Process(int(fields[1]), int(fields[2]))
    return found


def _ask_ps() -> dict[int, Process]:
    found = {}
    with subprocess.Popen(["ps", "-axo", "pid=,ppid=,pgid=,stat="], stdout=subprocess.PIPE, text=True) as ps:
        assert ps.stdout
        for pid, parent, group, state in map(str.split, ps.stdout):
            # ps sees itself, but is gone when the list is read.
            if not state.startswith("Z") and int(pid) != ps.pid:
                found[int(pid)] = Process(int(parent), int(group))
    return found


def find_descendants(pid: int) -> list[int]:
    processes = list_processes()
    found: list[int] = []
    layer = {pid}
    while layer:
        layer = {child for child, process in processes.items() if process.parent in layer}
        found += sorted(layer)
    return found


def kill_descendants(pid: int, within_s: float = 5.0) -> None:
    """SIGKILL all that descends from `pid`, again and again while more appear, but not `pid` itself."""
    deadline = time.monotonic() + within_s
    while (alive := find_descendants(pid)) and time.monotonic() < deadline:
        _kill(alive)
        if pid == os.getpid():
            reap_children()
        time.sleep(0.02)


def kill_groups(leaders: Iterable[int]) -> None:
    """SIGKILL what is left of the groups of processes that are gone. It finds orphans that nobody adopted:
    torchrun makes each rank the leader of a group, and what a rank starts stays in it."""
    processes = list_processes()
    gone = set(leaders) - processes.keys()  # an id that lives belongs to somebody else by now
    _kill(pid for pid, process in processes.items() if process.group in gone)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def reap_children() -> None:
    """Take the exit codes of ended children that nobody waits for, adopted ones above all."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
