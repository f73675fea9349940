"""Chooses its threads before it imports torch, as scripts do, and says how many it got."""

import importlib.util
import os
import sys
from pathlib import Path

seen = dict(os.environ)
early = [name for name in ("torch", "numpy") if name in sys.modules]
assert importlib.util.find_spec("torch")
if len(sys.argv) > 2:
    os.environ["OMP_NUM_THREADS"] = sys.argv[2]

import torch  # noqa: E402

Path(sys.argv[1]).write_text(f"{early} {seen.get('OMP_NUM_THREADS')} {torch.get_num_threads()}")
weights = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=1e-3)
for _ in range(60):
    weights.sum().backward()
    optimizer.step()
