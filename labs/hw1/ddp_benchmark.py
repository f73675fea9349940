"""Homework 1: time one training step of DistributedDataParallel (DDP).

torchrun --nproc_per_node=2 ddp_benchmark.py

The global batch is fixed and divided over the ranks: more ranks, the same work (strong scaling).
Options: A --delay 0.01, B --batch 32 (64, 128, 256), C --imbalance 0.02
"""

import argparse
import gc
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DIM = 1024  # width of every layer
DEPTH = 2  # number of layers
BATCH = 64  # samples per step of all ranks together
STEPS = 35  # timed steps
WARMUP = 5  # the first of them, which the statistics leave out
SAMPLES = 1024  # the data set of all ranks together, a multiple of BATCH
LEARNING_RATE = 1.0  # large, because a mean over BATCH × DIM outputs has small gradients


class LargeLinearModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def fix_seeds(device):
    """The same random numbers in every run: first the CPU's generator, then that of every accelerator."""
    torch.manual_seed(0)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed_all(0)


def start_rank():
    """Join the other ranks; each takes the accelerator of its number, or the CPU where they are too few."""
    if "RANK" not in os.environ:  # plain `python script.py`: a world of one rank
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
    device = torch.accelerator.current_accelerator(check_available=True)
    too_few = torch.accelerator.device_count() < int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if device is None or too_few or device.type == "mps":  # Apple's mps has no collectives
        device = torch.device("cpu")
    else:
        device = torch.device(device.type, int(os.environ["LOCAL_RANK"]))
        torch.accelerator.set_device_index(device.index)
    dist.init_process_group(dist.get_default_backend_for_device(device))
    return device


def read_clock(device):
    """An accelerator works behind the program's back: its time is known only when it has finished."""
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def train(device, flags):
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(LargeLinearModel().to(device))
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    # Every rank draws the whole data set and keeps its share: any number of ranks trains on the same batches.
    inputs = torch.randn(SAMPLES, DIM, device=device)[rank::world].clone()
    targets = torch.rand(SAMPLES, DIM, device=device)[rank::world].clone()

    times_ms = []
    for step in range(STEPS):
        first = step * BATCH % SAMPLES // world
        x, y = inputs[first : first + BATCH // world], targets[first : first + BATCH // world]
        optimizer.zero_grad()

        start = read_clock(device)
        if flags.imbalance and rank == 0:
            time.sleep(flags.imbalance)  # option C: one rank is slower than the others
        loss = loss_fn(model(x), y)
        if flags.delay:
            time.sleep(flags.delay)  # option A: time that more ranks do not make shorter
        loss.backward()  # and DDP averages the gradients over the ranks meanwhile
        optimizer.step()
        times_ms.append((read_clock(device) - start) * 1e3)

        if rank == 0:
            note = "  (warm-up)" if step < WARMUP else ""
            print(f"step {step + 1:3}  loss {loss.item():.6f}  {times_ms[-1]:8.2f} ms{note}", flush=True)

    if rank == 0:
        steady = times_ms[WARMUP:] or times_ms
        print(f"{world} ranks on {device.type}, {BATCH // world} samples each: ", end="")
        print(f"mean {statistics.mean(steady):.2f} ms, standard deviation {statistics.pstdev(steady):.2f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--batch", type=int, default=BATCH, help="samples per step of all ranks together")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--no-seed", action="store_true", help="leave the random numbers to chance")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that every rank sleeps (option A)")
    parser.add_argument("--imbalance", type=float, default=0.0, help="seconds that rank 0 sleeps (option C)")
    flags = parser.parse_args()
    DIM, DEPTH, BATCH, STEPS = flags.dim, flags.depth, flags.batch, flags.steps
    if SAMPLES % BATCH or BATCH % int(os.environ.get("WORLD_SIZE", "1")):
        parser.error(f"--batch {BATCH} must divide {SAMPLES} samples, and the ranks must divide it")

    device = start_rank()
    if not flags.no_seed:
        fix_seeds(device)
    train(device, flags)
    gc.collect()  # the model lets go of its process group before the group is destroyed
    dist.destroy_process_group()
