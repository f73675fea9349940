"""The launcher's hold on an agent process: start a world in it, wait for the end, leave nothing running.

In: the path of a JSON file for agent.py. Out: torchrun's exit code and the ranks that failed. The process
stays between worlds, since importing torch is most of a launch, and ends with this one, however that ends.
Exercise: `pytest tests/gloo/test_launch.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.processes import kill_descendants

STOP_S = 6.0  # longer than the agent's own grace for its ranks


class Agent:
    """One `python -m paceline.agent`, idle or with one world."""

    def __init__(self) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # Ctrl-C is for the launcher, which then stops this
            # A process that forks should have one thread; worlds get their own environment.
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self.pid = self._process.pid

    def start_world(self, spec: Path) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it died: wait() tells
            self._process.stdin.write(f"{spec}\n".encode())
            self._process.stdin.flush()

    def wait(self, timeout_s: float) -> dict[str, Any] | None:
        """How the world ended, None while it runs; "exit_code" is None when its agent died."""
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return None
        answer = self._process.stdout.readline()
        return json.loads(answer) if answer else {"exit_code": None, "failures": []}

    def complaints(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace")

    def is_usable(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the world, its ranks warned first, and the agent; a second interrupt kills all at once."""
        assert self._process.stdin
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait(STOP_S)
        except BaseException as interrupt:
            self.kill()
            if not isinstance(interrupt, subprocess.TimeoutExpired):
                raise
        self._close()

    def kill(self) -> None:
        kill_descendants(self.pid)
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process.stdout
        self._process.stdout.close()
        self._complaints.close()


_idle: list[Agent] = []


@contextlib.contextmanager
def borrow_agent() -> Iterator[Agent]:
    """An agent for one world, idle or new. Whatever goes wrong, it is stopped together with its world."""
    agent = _idle.pop() if _idle else Agent()
    if not agent.is_usable():
        agent.kill()
        agent = Agent()
    try:
        yield agent
    except BaseException:
        agent.stop()
        raise
    if agent.is_usable():
        _idle.append(agent)
    else:
        agent.kill()


@atexit.register
def stop_idle_agents() -> None:
    """Nothing waits for another world any more."""
    while _idle:
        _idle.pop().stop()
