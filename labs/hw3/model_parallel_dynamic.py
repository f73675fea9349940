"""Homework 3: one model spread over all accelerators of the machine, as evenly as its layers allow.

python model_parallel_dynamic.py
"""

import argparse
import statistics
import time

import torch
from torch import nn

DIM = 1024  # width of every layer
DEPTH = 20  # number of layers
BATCH = 64  # samples per step
STEPS = 35
WARMUP = 5  # the first steps, which the median leaves out
LEARNING_RATE = 1.0  # large, because a mean over BATCH × DIM outputs has small gradients


def split_layers(depth, num_devices):
    """The device of each layer: blocks of neighbours, the remainder one each to the first devices.

    7 layers on 3 devices: [0, 0, 0, 1, 1, 2, 2]. With fewer layers than devices the last ones stay empty.
    """
    layers_each, remainder = divmod(depth, num_devices)
    device_of_layer = []
    for device in range(num_devices):
        num_layers = layers_each + 1 if device < remainder else layers_each
        device_of_layer += [device] * num_layers
    return device_of_layer


class LargeLinearModelMP(nn.Module):
    def __init__(self, dim, depth, devices):
        super().__init__()
        self.layers = nn.ModuleList()
        self.layer_devices = []
        self.trace = False  # print every move of the data between devices
        for index in split_layers(depth, len(devices)):
            device = devices[index]
            self.layers.append(nn.Linear(dim, dim).to(device))
            self.layer_devices.append(device)

    def forward(self, x):
        for i, (layer, layer_device) in enumerate(zip(self.layers, self.layer_devices, strict=True)):
            if self.trace and x.device != layer_device:
                print(f"before layer {i}: x {tuple(x.shape)} moves from {x.device} to {layer_device}")
            x = x.to(layer_device)  # a copy where the device changes, nothing where it does not
            x = torch.relu(layer(x))
        return x


def find_devices(wanted):
    """The first accelerators of this machine: as many as wanted, all of them for 0."""
    found = torch.accelerator.device_count()
    if found < max(wanted, 1):
        raise SystemExit(
            f"this needs {max(wanted, 1)} accelerators, the machine has {found}."
            f" Virtual ones will do: paceline run --virtual {max(wanted, 2)} model_parallel_dynamic.py"
        )
    kind = torch.accelerator.current_accelerator().type
    return [torch.device(kind, index) for index in range(wanted or found)]


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
    parser.add_argument("--devices", type=int, default=0, help="how many accelerators to use (0: all)")
    flags = parser.parse_args()
    DIM, DEPTH, BATCH, STEPS = flags.dim, flags.depth, flags.batch, flags.steps
    train(find_devices(flags.devices))
