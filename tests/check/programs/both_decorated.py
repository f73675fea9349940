"""Code 3 with autocast as a decorator, DDP's switch set by hand, and a loss of one's own."""

import torch
import torch.distributed as dist
from torch import nn

ACCUM_STEPS = 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.output = nn.Linear(32, 4)

    @torch.autocast(device_type="cpu", dtype=torch.bfloat16)
    def forward(self, x):
        return self.output(torch.relu(self.hidden(x)))


def mean_square(output, y):
    return ((output.float() - y) ** 2).mean()


torch.manual_seed(3)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
data = torch.randn(24, 8, 16)[:, rank::world]
for step, x in enumerate(data):
    last = step % ACCUM_STEPS == ACCUM_STEPS - 1
    model.require_backward_grad_sync = last
    loss = mean_square(model(x), x[:, :4]) / ACCUM_STEPS
    scaler.scale(loss).backward()
    if not last:
        continue
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
dist.destroy_process_group()
