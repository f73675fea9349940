"""Homework 3: one model cut in two. The first half of its layers lives on device 0, the second on device 1.

python model_parallel.py
"""

import argparse
import statistics
import time

import torch
from torch import nn

DIM = 1024  # width of every layer
DEPTH = 6  # number of layers
BATCH = 64  # samples per step
STEPS = 35
WARMUP = 5  # the first steps, which the median leaves out
LEARNING_RATE = 1.0  # large, because a mean over BATCH × DIM outputs has small gradients


class LargeLinearModelMP(nn.Module):
    def __init__(self, dim, depth, devices):
        super().__init__()
        self.layers = nn.ModuleList()
        self.layer_devices = []
        self.trace = False  # print every move of the data between devices
        for i in range(depth):
            if i < depth // 2:
                device = devices[0]
            else:
                device = devices[1]
            self.layers.append(nn.Linear(dim, dim).to(device))
            self.layer_devices.append(device)

    def forward(self, x):
        for i, (layer, layer_device) in enumerate(zip(self.layers, self.layer_devices, strict=True)):
            if self.trace and x.device != layer_device:
                print(f"before layer {i}: x {tuple(x.shape)} moves from {x.device} to {layer_device}")
            x = x.to(layer_device)  # a copy where the device changes, nothing where it does not
            x = torch.relu(layer(x))
        return x


def find_devices():
    found = torch.accelerator.device_count()
    if found < 2:
        raise SystemExit(
            f"this needs 2 accelerators, the machine has {found}."
            " Virtual ones will do: paceline run --virtual 2 model_parallel.py"
        )
    kind = torch.accelerator.current_accelerator().type
    return [torch.device(kind, 0), torch.device(kind, 1)]


def train(devices):
    torch.manual_seed(0)  # the same weights and data in every run
    model = LargeLinearModelMP(DIM, DEPTH, devices)
    for device in devices:
        layers = [i for i, layer_device in enumerate(model.layer_devices) if layer_device == device]
        print(f"{device}: {len(layers)} layers {layers}")
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    # The data goes in where the first layer is, and the loss is computed where the last one is.
    x = torch.randn(BATCH, DIM).to(model.layer_devices[0])
    y = torch.rand(BATCH, DIM).to(model.layer_devices[-1])

    times_ms = []
    for step in range(STEPS):
        start = time.perf_counter()
        model.trace = step == 0
        output = model(x)
        loss = loss_fn(output, y)
        loss.backward()  # the gradients go back through the same cut
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        for device in devices:
            torch.accelerator.synchronize(device)  # each device runs behind the program's back
        times_ms.append((time.perf_counter() - start) * 1e3)
        print(f"step {step + 1:3}  loss {value:.6f}  {times_ms[-1]:8.2f} ms", flush=True)

    median_ms = statistics.median(times_ms[WARMUP:] or times_ms)
    print(f"{DEPTH} layers on {len(devices)} devices: median step {median_ms:.2f} ms")
    for device in devices:
        print(f"{device}: peak memory {torch.accelerator.max_memory_allocated(device) / 2**20:.1f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--batch", type=int, default=BATCH, help="samples per step")
    parser.add_argument("--steps", type=int, default=STEPS)
    flags = parser.parse_args()
    DIM, DEPTH, BATCH, STEPS = flags.dim, flags.depth, flags.batch, flags.steps
    train(find_devices())
