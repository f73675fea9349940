"""Two ranks, 20 ms of work each; rank 1 comes later by 10 ms, always or at every seventh step."""

import argparse
import gc
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--every", type=int, default=1)
args = parser.parse_args()

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(200):
    late = dist.get_rank() == 1 and step % args.every == 0
    time.sleep(0.030 if late else 0.020)
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del model
gc.collect()
dist.destroy_process_group()
