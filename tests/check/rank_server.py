"""Starts ranks by forking a process that has imported torch, so that a test's world costs a second, not four.

In: on standard input, per world a line of JSON: script, its arguments, folder for the run,
number of ranks. Out: a line with
the ranks' exit codes. The ranks themselves run paceline.worker as always.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

import torch._dynamo
import torch.distributed
import torch.utils.data

from paceline import worker
from paceline.check import observer  # noqa: F401 (what each rank would import)

WITHIN_S = 40.0


def find_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_rank(order: dict[str, Any], rank: int, port: int) -> None:
    ranks, run_dir, script = str(order["ranks"]), order["run_dir"], order["script"]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PACELINE_SPEC=f"{run_dir}/spec.json")
    log = os.open(f"{run_dir}/rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(os.path.dirname(script))
    torch.seed()  # forked ranks would all draw what their parent would have drawn
    sys.argv = ["worker", script, *order["arguments"]]
    worker.main()


def start_rank(order: dict[str, Any], rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        run_rank(order, rank, port)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def wait_for_ranks(pids: list[int]) -> list[int]:
    """As torchrun: when one fails, the others are stopped."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + WITHIN_S
    while len(codes) < len(pids):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
            if codes[pid]:
                deadline = min(deadline, time.monotonic() + 0.5)
        elif time.monotonic() > deadline:
            for signal_number in (worker.STACKS_SIGNAL, signal.SIGKILL):
                for other in set(pids) - codes.keys():
                    os.kill(other, signal_number)
                time.sleep(0.5)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        port = find_port()
        pids = [start_rank(order, rank, port) for rank in range(order["ranks"])]
        print(json.dumps(wait_for_ranks(pids)), flush=True)


if __name__ == "__main__":
    main()
