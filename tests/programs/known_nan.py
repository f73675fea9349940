"""The loss of rank 1 becomes NaN at step 12, and stays finite on rank 0 until then."""

import gc

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(60):
    x = torch.ones(4, 8)
    if step == 12 and dist.get_rank() == 1:
        x[0, 0] = float("nan")
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
del model
gc.collect()
dist.destroy_process_group()
