"""Computes without ever taking an optimizer step, or takes as many as the argument says.

torchrun --nproc-per-node 1 fault_no_steps.py 0
"""

import sys

import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
