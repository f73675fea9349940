"""Code 1 in functions: constants at the top, no_sync() chosen per micro-step, a loss module."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUM_STEPS = 4
BATCH = 8
STEPS = 6


def build_model():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(build_model())
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    inputs, targets = torch.randn(64, 16), torch.randn(64, 4)

    for step in range(STEPS * ACCUM_STEPS):
        first = step * BATCH % 64
        x, y = inputs[first : first + BATCH], targets[first : first + BATCH]
        last = (step + 1) % ACCUM_STEPS == 0
        with contextlib.nullcontext() if last else model.no_sync():
            output = model(x)
            loss = loss_fn(output, y) / ACCUM_STEPS
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


main()
