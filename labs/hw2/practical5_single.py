"""Practical 7, Code 3: Code 1 with automatic mixed precision (AMP) inside its accumulation.

torchrun --nproc_per_node=2 practical5_single.py
"""

import argparse
import contextlib
import gc
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ACCUM_STEPS = 4  # micro-steps (forward and backward) per optimizer step
DIM = 1024  # width of every layer
DEPTH = 2  # number of layers
BATCH = 32  # samples per micro-step on each rank
STEPS = 35  # optimizer steps
WARMUP = 5  # the first of them, which the median leaves out
SAMPLES = 1024  # each rank's data set, a multiple of BATCH
PRECISION = None  # fp16, bf16 or fp32; None: fp16, but bf16 on a CPU, where fp16's backward is very slow
LEARNING_RATE = 1.0  # large, because a mean over BATCH × DIM outputs has small gradients


class LargeLinearModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


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


def train(device, flags):
    rank = dist.get_rank()
    torch.manual_seed(0)  # the same weights on every rank and in every run
    model = DistributedDataParallel(LargeLinearModel().to(device))
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    precision = PRECISION or ("bf16" if device.type == "cpu" else "fp16")
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    mixed = precision != "fp32"  # fp32 switches AMP off: the twin to compare with
    scaler = torch.amp.GradScaler(device.type, enabled=mixed)

    torch.manual_seed(1 + rank)  # other data on every rank, the same in every run
    inputs = torch.randn(SAMPLES, DIM, device=device)
    targets = torch.rand(SAMPLES, DIM, device=device)

    losses, times_ms, step_loss = [], [], torch.zeros((), device=device)
    start = time.perf_counter()
    for step in range(STEPS * ACCUM_STEPS):
        first = step * BATCH % SAMPLES  # the data set is read in order, again and again
        x, y = inputs[first : first + BATCH], targets[first : first + BATCH]

        # DDP decides in forward whether the backward that follows synchronises: no_sync() must cover both.
        last = (step + 1) % ACCUM_STEPS == 0
        with contextlib.nullcontext() if last or flags.no_no_sync else model.no_sync():
            with torch.autocast(device_type=device.type, dtype=dtype, enabled=mixed):
                output = model(x)
                loss = loss_fn(output, y) / ACCUM_STEPS
            if flags.no_divide:  # what happens without the division?
                loss = loss * ACCUM_STEPS
            scaler.scale(loss).backward()  # larger gradients, which fp16 does not round to zero
        step_loss += loss.detach()  # stays on the device: reading it here would wait for the device
        if flags.show_gradients:
            norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
            norm /= scaler.get_scale()  # of the gradients as they are without the scaler
            print(f"rank {rank}  micro-step {step:3}  gradient norm {norm:.6e}", flush=True)

        if (step + 1) % ACCUM_STEPS == 0:
            scaler.step(optimizer)  # unscales the gradients; leaves the step out if one of them is not finite
            scaler.update()  # once per optimizer step: every micro-step of a sum needs the same scale
            optimizer.zero_grad()
            losses.append(step_loss.item())  # item() waits until the device has finished this step
            times_ms.append((time.perf_counter() - start) * 1e3)
            if rank == 0:
                print(f"step {len(losses):3}  loss {losses[-1]:.6f}  {times_ms[-1]:8.2f} ms", flush=True)
            step_loss.zero_()
            start = time.perf_counter()

    if rank == 0:
        median_ms = statistics.median(times_ms[WARMUP:] or times_ms)
        print(f"{dist.get_world_size()} ranks on {device.type}: median step {median_ms:.2f} ms")
        if flags.save:
            torch.save({"losses": losses, "weights": model.module.state_dict()}, flags.save)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accum-steps", type=int, default=ACCUM_STEPS)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--batch", type=int, default=BATCH, help="samples per micro-step on each rank")
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps")
    parser.add_argument("--learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default=PRECISION)
    parser.add_argument("--no-divide", action="store_true", help="do not divide the loss by ACCUM_STEPS")
    parser.add_argument("--no-no-sync", action="store_true", help="synchronise on every micro-step")
    parser.add_argument("--show-gradients", action="store_true", help="print norms on every micro-step")
    parser.add_argument("--save", metavar="FILE", help="keep the losses and the trained weights")
    flags = parser.parse_args()
    ACCUM_STEPS, DIM, DEPTH, BATCH = flags.accum_steps, flags.dim, flags.depth, flags.batch
    STEPS, LEARNING_RATE = flags.steps, flags.learning_rate
    PRECISION = flags.precision
    if SAMPLES % BATCH:
        parser.error(f"--batch {BATCH} does not divide the {SAMPLES} samples; take a power of two")

    device = start_rank()
    train(device, flags)
    gc.collect()  # the model lets go of its process group before the group is destroyed
    dist.destroy_process_group()
