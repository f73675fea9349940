"""On an accelerator all is known: the device's own time of a step, its bytes, its losses, two skipped steps.

The host runs far ahead of the device: a clock that stops when Python returns would see a tenth of a step.
Its own account is written when all is over, so that nothing in the loop waits for the device.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

device = torch.device(torch.accelerator.current_accelerator().type, 0)
dist.init_process_group(dist.get_default_backend_for_device(device))
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1024, 1024, bias=False, device=device), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=False)
scaler = torch.amp.GradScaler(device.type, init_scale=256.0)
x = torch.ones(64, 1024, device=device)
heavy = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
losses, ends = [], []
for step in range(60):
    for _ in range(8):
        torch.mm(heavy, heavy)  # milliseconds of the device, microseconds of the host
    with torch.autocast(device.type, torch.float16):
        loss = model(x).float().square().mean()
    scaler.scale(loss).backward()
    if step in (8, 15):
        model.module.weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    losses.append(loss.detach())
    ends.append(torch.Event(device=device, enable_timing=True))
    ends[-1].record()
    if step == 43:  # the probe has seen all of its 5 + 30 + 4 steps: the account is complete
        torch.accelerator.synchronize()
        times_s = [a.elapsed_time(b) / 1000 for a, b in pairwise(ends)]
        account = {"step_time_s": times_s, "loss": [float(one) for one in losses]}
        Path(sys.argv[1]).write_text(json.dumps(account))
dist.destroy_process_group()
