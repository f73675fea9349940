"""Trains a little model; one rank does what the first argument says after so many steps (the second).
Several faults are joined by a plus.

torchrun --nproc-per-node 2 fault_in_training.py kill 10
"""

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

faults, at_step = sys.argv[1].split("+"), int(sys.argv[2])
dist.init_process_group("gloo")
last = dist.get_rank() == dist.get_world_size() - 1
# Children that nobody waits for.
if "child" in faults or "children" in faults:
    subprocess.Popen(["sleep", "287"])
if "children" in faults:  # one more, in a session of its own
    subprocess.Popen(["sleep", "287"], start_new_session=True)
if "stubborn" in faults:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(10_000):
    if last and step == at_step:
        if "kill" in faults:
            os.kill(os.getpid(), signal.SIGKILL)
        elif "hang" in faults:
            time.sleep(600)
        elif "raise" in faults:
            raise ValueError(f"bad batch {step}")
        elif "memory" in faults:
            raise MemoryError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 TB")
        elif "leave" in faults:
            os._exit(0)
        elif "exit" in faults:
            sys.exit(3)
    if {"child", "children", "stubborn"} & {*faults} and step >= at_step:
        time.sleep(0.2)
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
