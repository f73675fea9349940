"""Leaves by os._exit, as scripts do that fear a hanging teardown; before its sampled steps are through."""

import os

import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(26):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
os._exit(0)
