"""The model of two benchmarks: square linear layers under SGD, with DDP where there are several ranks.

torchrun --nproc-per-node 2 benchmarks/linear_layers.py --dim 1024 --depth 2 --batch 64
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--dim", type=int, default=1024)
parser.add_argument("--depth", type=int, default=2)
parser.add_argument("--batch", type=int, default=64, help="samples of all ranks together")
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--steps", type=int, default=1_000_000)
args = parser.parse_args()

world = int(os.environ.get("WORLD_SIZE", "1"))
layers = [
    layer for _ in range(args.depth) for layer in (torch.nn.Linear(args.dim, args.dim), torch.nn.ReLU())
]
model: torch.nn.Module = torch.nn.Sequential(*layers)
if world > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
inputs = torch.randn(args.batch // world, args.dim)
for _ in range(args.steps):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
        loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
