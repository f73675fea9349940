"""Four micro-steps per optimizer step; synchronises at the last only, or at each with --sync-always."""

import contextlib
import gc
import sys

import torch
import torch.distributed as dist

ACCUM_STEPS = 4
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(60 * ACCUM_STEPS):
    last = (step + 1) % ACCUM_STEPS == 0
    wait = contextlib.nullcontext() if last or "--sync-always" in sys.argv else model.no_sync()
    with wait:
        (model(torch.ones(8, 64)).square().mean() / ACCUM_STEPS).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
del model
gc.collect()
dist.destroy_process_group()
