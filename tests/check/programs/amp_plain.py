"""Code 2 without functions: zero_grad first, the loss outside of autocast, the output squeezed."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # DDP gives every rank the weights of rank 0
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1)))
loss_fn = nn.BCEWithLogitsLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for _step in range(8):
    optimizer.zero_grad()
    x = torch.randn(16, 16)
    y = (x.sum(dim=1) > 0).float()
    with torch.amp.autocast("cpu", dtype=torch.bfloat16):
        output = model(x)
    loss = loss_fn(output.squeeze(-1).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
