"""Homework 1: time one training step of nn.DataParallel, one process with several accelerators.

python dataparallel_benchmark.py

The global batch is fixed and divided over the devices. In every step device 0 sends the weights and the
samples to the others, gathers their outputs, computes the loss, and sums up their gradients.
"""

import argparse
import statistics
import time

import torch
from torch import nn

DIM = 1024  # width of every layer
DEPTH = 2  # number of layers
BATCH = 64  # samples per step of all devices together
STEPS = 35  # timed steps
WARMUP = 5  # the first of them, which the statistics leave out
SAMPLES = 1024  # the data set, a multiple of BATCH
LEARNING_RATE = 1.0  # large, because a mean over BATCH × DIM outputs has small gradients


class LargeLinearModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def find_devices(wanted):
    """The first accelerators of this machine: as many as wanted, all of them for 0."""
    found = torch.accelerator.device_count()
    if found < max(wanted, 1):
        raise SystemExit(
            f"this needs {max(wanted, 1)} accelerators, the machine has {found}."
            f" Virtual ones will do: paceline run --virtual {wanted or 4} dataparallel_benchmark.py"
        )
    kind = torch.accelerator.current_accelerator().type
    return [torch.device(kind, index) for index in range(wanted or found)]


def train(devices, flags):
    model = nn.DataParallel(LargeLinearModel().to(devices[0]), device_ids=devices)
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    inputs = torch.randn(SAMPLES, DIM, device=devices[0])
    targets = torch.rand(SAMPLES, DIM, device=devices[0])

    times_ms = []
    for step in range(STEPS):
        first = step * BATCH % SAMPLES
        x, y = inputs[first : first + BATCH], targets[first : first + BATCH]
        optimizer.zero_grad()

        torch.accelerator.synchronize()  # device 0 waits for all the others, so its end is the end
        start = time.perf_counter()
        output = model(x)  # replicate the model, scatter x, run in parallel, gather the outputs on device 0
        loss = loss_fn(output, y)
        loss.backward()  # and the gradients of all replicas are added up on device 0
        optimizer.step()
        torch.accelerator.synchronize()
        times_ms.append((time.perf_counter() - start) * 1e3)

        note = "  (warm-up)" if step < WARMUP else ""
        print(f"step {step + 1:3}  loss {loss.item():.6f}  {times_ms[-1]:8.2f} ms{note}", flush=True)

    steady = times_ms[WARMUP:] or times_ms
    print(f"{len(devices)} devices of type {devices[0].type}, {BATCH // len(devices)} samples each: ", end="")
    print(f"mean {statistics.mean(steady):.2f} ms, standard deviation {statistics.pstdev(steady):.2f} ms")
    for device in devices:
        print(f"{device}: peak memory {torch.accelerator.max_memory_allocated(device) / 2**20:.1f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--batch", type=int, default=BATCH, help="samples per step of all devices together")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--devices", type=int, default=0, help="how many accelerators to use (0: all)")
    flags = parser.parse_args()
    DIM, DEPTH, BATCH, STEPS = flags.dim, flags.depth, flags.batch, flags.steps
    if SAMPLES % BATCH:
        parser.error(f"--batch {BATCH} does not divide the {SAMPLES} samples; take a power of two")

    devices = find_devices(flags.devices)
    torch.manual_seed(0)  # the same weights and data in every run
    torch.get_device_module().manual_seed_all(0)
    train(devices, flags)
