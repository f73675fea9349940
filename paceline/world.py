"""torchrun for one world, in a process of its own: start the ranks, see them to their end, and tell of it.

In: the path of a JSON file with "arguments" (torchrun's command line), "environment", "directory" (where to
run) and "out", and a pipe. Out: into the pipe one object of JSON, when everything that was started is gone:
torchrun's exit code and the ranks that failed; in `out` agent.log.
Exercise: `pytest tests/gloo/test_launch.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed.run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from paceline.processes import adopt_orphans, die_with_parent, kill_descendants

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
    random.seed()  # a fork copied its state
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


def run_world(path: str, answer: int) -> NoReturn:
    """The whole life of this process; `answer` is the pipe, which ends with it."""
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
        os.write(answer, json.dumps(ended).encode())
        os._exit(0)  # taking torch apart would take longer than all else here
    raise AssertionError("os._exit returned")


if __name__ == "__main__":
    run_world(sys.argv[1], int(sys.argv[2]))
