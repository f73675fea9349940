"""torchrun's agents, one per world, forked from a process that has imported torch once.

In: on standard input, one path per line of a JSON file with "arguments" (torchrun's command line),
"environment", "directory" (where to run) and "out". Out: on standard output one line of JSON per world,
after everything that it started is gone: torchrun's exit code and the ranks that failed; in `out` agent.log.
The end of standard input, in the middle of a world as well, means that the launcher ended or wants an
end: all is stopped then.

A fresh agent would spend more time on importing torch than on anything else. Ranks are not forked:
torchrun's own code starts them as always, with the environment that torchrun would give them.

    echo '{"arguments": ["--standalone", "train.py"], "environment": {"PATH": "/usr/bin"}, "directory": ".",
           "out": "/tmp"}' > agent.json && echo agent.json | python -m paceline.agent
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed.run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from paceline.processes import adopt_orphans, die_with_parent, kill_descendants, reap_children

torchrun: Any = torch.distributed.run  # it has no type hints
GRACE_S = 3.0  # for ranks to end by themselves after SIGTERM


def list_failures(error: ChildFailedError) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "local_rank": failure.local_rank,
            "exit_code": failure.exitcode,
            "signal": failure.signal_name() if failure.exitcode < 0 else None,
            "unix_s": failure.timestamp,
            "pid": failure.pid,
        }
        for rank, failure in error.failures.items()
    ]


def run_torchrun(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Be torchrun for one world; which ranks failed, and how."""
    os.chdir(spec["directory"])
    os.environ.clear()
    os.environ.update(spec["environment"])
    random.seed()  # the fork copied its state
    log = os.open(Path(spec["out"]) / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    arguments = torchrun.parse_args(spec["arguments"])
    arguments.shutdown_timeout = int(GRACE_S) - 1
    try:
        torchrun.run(arguments)
    except ChildFailedError as error:
        return list_failures(error)
    return []


def start_world(path: str) -> tuple[int, int]:
    """Fork an agent: its pid, and a pipe with its answer that ends when it does."""
    answer, written = os.pipe()
    pid = os.fork()
    if pid:
        os.close(written)
        return pid, answer
    ended: dict[str, Any] = {"exit_code": 1, "failures": []}
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(signal.SIGTERM)
        adopt_orphans()
        ended["failures"] = run_torchrun(json.loads(Path(path).read_text()))
        ended["exit_code"] = int(bool(ended["failures"]))
    except BaseException:
        # Such as torchrun's SignalException, or no rendezvous. The log may be on a full disk.
        with contextlib.suppress(OSError):
            sys.excepthook(*sys.exc_info())
    finally:
        kill_descendants(os.getpid())
        os.write(written, json.dumps(ended).encode())
        os._exit(0)


def stop_world(pid: int) -> None:
    """SIGTERM to the agent, which passes it to its ranks; what is still there afterwards is killed."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG)[0] == 0:
        time.sleep(0.02)


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
        pid, answer = start_world(pending.decode().strip())
        pending = b""
        ready, _, _ = select.select([commands, answer], [], [])
        if answer not in ready:
            stop_world(pid)
            kill_descendants(os.getpid())
            return
        with open(answer) as pipe:
            ended = pipe.read() or json.dumps({"exit_code": None, "failures": []})  # it was killed
        os.waitpid(pid, 0)
        kill_descendants(os.getpid())
        reap_children()
        print(ended, flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # taking torch apart would take longer than all else here
