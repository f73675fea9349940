"""What a virtual device costs beside the plain CPU.

The same step on both, in turns within every round, and the ratio taken within the round: an MLP of
DIM 1024 (the claim: at most 1.15 times the CPU), and single operations on small tensors, where the way to
the kernel is all there is. Beside the wall time stands the processor time, which other programs on the
machine disturb less.

    python benchmarks/virtual.py --rounds 40
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from record_result import write_result
from torch import Tensor, nn

import paceline.virtual as virtual

DIM = 1024
BATCH = 128
MAX_RATIO = 1.15
SMALL_CALLS = 2000
Step = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Comparison:
    """Median seconds on each side, and the ratio of every round."""

    cpu_s: float
    virtual_s: float
    ratios: list[float]

    def summary(self) -> dict[str, float | list[float]]:
        low, *_, high = statistics.quantiles(self.ratios, n=20)
        return {
            "cpu_s": self.cpu_s,
            "virtual_s": self.virtual_s,
            "ratio": statistics.median(self.ratios),
            "ratio_5th_to_95th_percentile": [low, high],
        }


def make_step(device: str) -> Step:
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(DIM, DIM), nn.ReLU()))).to(device)
    # One form of the optimizer for both: by default PyTorch takes foreach on an accelerator alone.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    x = torch.randn(BATCH, DIM).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def make_small_operations(device: str) -> dict[str, Step]:
    x, y = torch.randn(8, 8).to(device), torch.randn(8, 8).to(device)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10))).to(device)

    def train() -> Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss

    return {
        "add": lambda: x + y,
        "add_": lambda: x.add_(y),
        "matmul": lambda: x @ y,
        "view": lambda: x.view(64),
        "empty": lambda: torch.empty(8, device=device),
        "sum": lambda: x.sum(),
        "ten layers, forward and backward": train,
    }


def time_in_turns(on_cpu: Step, on_device: Step, rounds: int, times: int, clock: Clock) -> Comparison:
    for step in (on_cpu, on_device):
        time_s(step, 3, clock)
    cpu_s, device_s = [], []
    for number in range(rounds):
        # Whoever goes second finds warmer caches, so they change places.
        order = [(on_cpu, cpu_s), (on_device, device_s)]
        for step, seconds in order if number % 2 else reversed(order):
            seconds.append(time_s(step, times, clock))
    ratios = [there / here for here, there in zip(cpu_s, device_s, strict=True)]
    return Comparison(statistics.median(cpu_s), statistics.median(device_s), ratios)


def time_s(step: Step, times: int, clock: Clock) -> float:
    began = clock()
    for _ in range(times):
        step()
    return (clock() - began) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    virtual.install(devices=1)

    steps = make_step("cpu"), make_step("virtual:0")
    wall = time_in_turns(*steps, options.rounds, 1, time.perf_counter).summary()
    processor = time_in_turns(*steps, options.rounds, 1, time.process_time).summary()
    print(f"MLP step, DIM {DIM}: {wall['ratio']:.3f} × the CPU's wall time")
    print(f"MLP step, DIM {DIM}: {processor['ratio']:.3f} × the CPU's processor time")

    small = {}
    on_cpu, on_device = make_small_operations("cpu"), make_small_operations("virtual:0")
    for name in on_cpu:
        times = SMALL_CALLS // (100 if "layers" in name else 1)
        rounds = max(5, options.rounds // 4)
        found = time_in_turns(on_cpu[name], on_device[name], rounds, times, time.process_time)
        small[name] = found.summary()
        print(f"{name}: cpu {found.cpu_s * 1e6:.2f} µs, virtual {found.virtual_s * 1e6:.2f} µs")

    numbers = {
        "threads": options.threads,
        "mlp_step": {
            "dim": DIM,
            "batch": BATCH,
            "wall": wall,
            "processor": processor,
            "claim": MAX_RATIO,
            "holds": wall["ratio"] <= MAX_RATIO,
        },
        "small_operations_processor_time": small,
    }
    write_result("virtual", numbers)


if __name__ == "__main__":
    main()
