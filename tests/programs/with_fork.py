"""Forks a child that trains longer than what is measured, says so in a file, and runs to the script's end."""

import os
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)  # OpenMP's own threads are not there after a fork
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def train(steps: int) -> None:
    for _ in range(steps):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


train(3)
child = os.fork()
if child == 0:
    train(100)
    Path(sys.argv[1]).touch()
    sys.exit(5)
os.waitpid(child, 0)
train(10)
