"""Code 1 in nested loops, the numbers written out, gradients divided instead of the loss, zero_grad first."""

import os

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(7)
distributed.init_process_group(backend="gloo")
generator = torch.Generator().manual_seed(int(os.environ["RANK"]))


def draw():
    return torch.randn(8, 16, generator=generator), torch.randint(0, 4, (8,), generator=generator)


network = DistributedDataParallel(nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 4)))
adam = torch.optim.AdamW(network.parameters(), lr=1e-2)
for _update in range(5):
    adam.zero_grad(set_to_none=True)
    with network.no_sync():
        for _ in range(2):
            x, y = draw()
            functional.cross_entropy(network(x), y).backward()
    x, y = draw()
    functional.cross_entropy(network(x), y).backward()
    for parameter in network.parameters():
        parameter.grad /= 3
    adam.step()
distributed.destroy_process_group()
