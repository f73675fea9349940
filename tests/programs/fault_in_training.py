"""Trains a little model; one rank does what the first argument says after so many steps (the second).

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

fault, at_step = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
last = dist.get_rank() == dist.get_world_size() - 1
if fault == "children":  # two that nobody waits for, one of them in a session of its own
    for new_session in (False, True):
        subprocess.Popen(["sleep", "287"], start_new_session=new_session)
if fault == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(10_000):
    if last and step == at_step:
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "hang":
            time.sleep(600)
        elif fault == "raise":
            raise ValueError(f"bad batch {step}")
        elif fault == "memory":
            raise MemoryError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 TB")
        elif fault == "leave":
            os._exit(0)
        elif fault == "exit":
            sys.exit(3)
    if fault in ("children", "stubborn") and step >= at_step:
        time.sleep(0.2)
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
