"""No torch.distributed, no module, no DataLoader: a loop over tensors; and what a script sees of itself."""

import json
import os
import sys

import torch

if len(sys.argv) > 1:
    seen = {
        "argv": sys.argv,
        "name": __name__,
        "file": __file__,
        "path0": sys.path[0],
        "cwd": os.getcwd(),
        "main": sys.modules["__main__"].__dict__ is globals(),
        "environment": sorted(name for name in os.environ),
    }
    with open(sys.argv[1], "w") as file:
        json.dump(seen, file)
weights = torch.randn(64, 64, requires_grad=True)
optimizer = torch.optim.Adam([weights])
for _ in range(200):
    (torch.randn(8, 64) @ weights).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
