"""Runs torchrun for one world after the other, and leaves nothing of them running.

In: on standard input, one path per line of the JSON file that world.py reads. Out: on standard output one
line of JSON per world, world.py's answer, after everything that it started is gone. The end of standard
input, in the middle of a world as well, means that the launcher ended or wants an end: all is stopped then.

On Linux a world's process is forked from this one, which has imported torch once: a fresh one would spend
more time on that than on anything else. Elsewhere it is a fresh one: on macOS, what torch brings in may not
be used after a fork. Ranks are not forked: torchrun's own code starts them as always, with the
environment that torchrun would give them.

    echo '{"arguments": ["--standalone", "train.py"], "environment": {"PATH": "/usr/bin"}, "directory": ".",
           "out": "/tmp"}' > agent.json && echo agent.json | python -m paceline.agent
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

from paceline.ingest import read_ranks
from paceline.processes import ON_LINUX, adopt_orphans, kill_descendants, kill_groups, reap_children

STOP_S = 3.0  # for torchrun to stop its ranks


def start_world(path: str) -> tuple[int, int]:
    """Start a world's process: its pid, and a pipe with its answer that ends when it does."""
    answer, written = os.pipe()
    if ON_LINUX:
        from paceline.world import run_world

        pid = os.fork()
        if pid == 0:
            run_world(path, written)
    else:
        os.set_inheritable(written, True)
        command = [sys.executable, "-m", "paceline.world", path, str(written)]
        pid = os.posix_spawn(sys.executable, command, os.environ)
    os.close(written)
    return pid, answer


def stop_world(pid: int) -> None:
    """SIGTERM to torchrun, which passes it to its ranks."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG)[0] == 0:
        time.sleep(0.02)


def clean_up(path: str) -> None:
    """Kill whatever a world has left."""
    kill_descendants(os.getpid())
    reap_children()
    if not ON_LINUX:  # where a rank's children are nobody's after its end
        with contextlib.suppress(OSError, ValueError):  # the file that was named is none
            folder = Path(json.loads(Path(path).read_text())["out"])
            starts = [log.record.start for log in read_ranks(folder).values()]
            kill_groups(start["pid"] for start in starts if "pid" in start)  # a torn line names nobody


def main() -> None:
    adopt_orphans()
    commands = sys.stdin.fileno()
    pending = b""
    while True:
        received = os.read(commands, 65536)
        if not received:
            return
        pending += received
        if not pending.endswith(b"\n"):
            continue
        path = pending.decode().strip()
        pending = b""
        pid, answer = start_world(path)
        ready, _, _ = select.select([commands, answer], [], [])
        if answer not in ready:
            stop_world(pid)
            clean_up(path)
            return
        with open(answer) as pipe:
            ended = pipe.read() or json.dumps({"exit_code": None, "failures": []})  # it was killed
        os.waitpid(pid, 0)
        clean_up(path)
        print(ended, flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # taking torch apart would take longer than all else here
