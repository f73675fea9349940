"""Code 3 as people write it for GPUs, which it asks for by name, through the older torch.cuda.amp."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel

ACCUM_STEPS = 4
use_cuda = torch.cuda.is_available()
torch.manual_seed(0)
dist.init_process_group("nccl" if use_cuda else "gloo")
local_rank = int(os.environ["LOCAL_RANK"])
device = torch.device(f"cuda:{local_rank}" if use_cuda else "cpu")
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
model = DistributedDataParallel(model, device_ids=[local_rank] if use_cuda else None)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler()
loss_fn = nn.MSELoss()
torch.manual_seed(10 + dist.get_rank())
for step in range(24):
    x, y = torch.randn(8, 16, device=device), torch.randn(8, 4, device=device)
    last = (step + 1) % ACCUM_STEPS == 0
    model.require_backward_grad_sync = last
    with autocast():
        loss = loss_fn(model(x), y) / ACCUM_STEPS
    scaler.scale(loss).backward()
    if last:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
dist.destroy_process_group()
