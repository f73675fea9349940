"""Trains a little, then says in report{RANK}.json (in the folder of the first argument) what surrounded it.

torchrun --nproc-per-node 2 launch_report.py /tmp --flag
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

before = dict(os.environ)
dist.init_process_group("gloo")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(8))], lr=0.01)


def write_report() -> None:
    threads = {
        int(task.name): (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()
    }
    report = {
        "environment": before,
        "argv": sys.argv,
        "directory": os.getcwd(),
        "path0": sys.path[0],
        "name": __name__,
        "file": __file__,
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "nice": {name: os.getpriority(os.PRIO_PROCESS, task) for task, name in threads.items()},
        "main_nice": os.getpriority(os.PRIO_PROCESS, os.getpid()),
    }
    Path(sys.argv[1], f"report{before['RANK']}.json").write_text(json.dumps(report))


for step in range(9):
    dist.all_reduce(torch.ones(8))
    if step == 6:
        write_report()
    optimizer.step()
dist.barrier()
os._exit(0)
