"""What the probe costs: the time of a step with it over the time of the same step without it.

Both kinds of step alternate in one process, in an order drawn anew for each pair, so that drift hits
both alike. "Without" means that every one of the probe's hooks is taken out for that step. The claim: at
most 1.01 on steps of about 10 ms. The batch is chosen so that a step lasts that long on this machine.

    python benchmarks/overhead.py --pairs 1500
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.optim.optimizer as optimizer_module
from record_result import write_result
from torch.utils.data.dataloader import _BaseDataLoaderIter

from paceline.machine import describe_machine
from paceline.placement import tuned_environment
from paceline.probe.attach import attach
from paceline.probe.sink import Sink

LIMIT = 1.01
STEP_S = 0.010
BLOCK = 50  # pairs that are resampled together, since neighbours resemble each other
PATCHED: list[tuple[Any, str]] = [
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (torch.nn.Sequential, "__call__"),
    (torch.amp.GradScaler, "step"),
    (torch.amp.GradScaler, "scale"),
    (_BaseDataLoaderIter, "__next__"),
    (optimizer_module, "_global_optimizer_pre_hooks"),
    (optimizer_module, "_global_optimizer_post_hooks"),
]


class Hooks:
    """All that the probe put into PyTorch, as one switch."""

    def __init__(self, originals: list[Any]) -> None:
        self._without = originals
        self._with = read_patched()

    def switch(self, on: bool) -> None:
        for (owner, name), value in zip(PATCHED, self._with if on else self._without, strict=True):
            setattr(owner, name, value)


def read_patched() -> list[Any]:
    """The present values; dictionaries are copied, since the probe adds to them in place."""
    values = [getattr(owner, name) for owner, name in PATCHED]
    return [type(value)(value) if hasattr(value, "items") else value for value in values]


def make_step(dim: int, depth: int, batch: int) -> Callable[[], float]:
    """A training step that returns its seconds."""
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(dim, dim), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(batch, dim), torch.randn(batch, dim)

    def step() -> float:
        began_s = time.perf_counter()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began_s

    return step


def find_batch(dim: int, depth: int) -> int:
    """The batch with which a step lasts STEP_S, by the line through two of them: weights cost time too."""
    times_s = []
    for batch in (32, 96):
        step = make_step(dim, depth, batch)
        times_s.append(float(np.median([step() for _ in range(60)][10:])))
    per_sample_s = (times_s[1] - times_s[0]) / (96 - 32)
    return max(1, round(32 + (STEP_S - times_s[0]) / per_sample_s))


def measure(step: Callable[[], float], num_pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each step with the probe and without it, pair by pair."""
    originals = read_patched()
    with tempfile.TemporaryDirectory() as folder:
        spec = {"warmup": 5, "steps": 10**9, "sampled": 0, "placement": "plain", "step_marker": "auto"}
        sink = Sink(Path(folder) / "rank0.jsonl")
        attach(spec, sink, sorted(os.sched_getaffinity(0))[:1], lambda stage: None, lambda: None)
        for _ in range(20):
            step()  # the probe learns which modules are the outermost, and settles
        hooks = Hooks(originals)
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(num_pairs):
            for on in random.sample([True, False], 2):
                hooks.switch(on)
                times[on].append(step())
    return np.array(times[True]), np.array(times[False])


def interval_of_ratio(with_s: np.ndarray, without_s: np.ndarray) -> tuple[float, float, float]:
    """The median of the ratios within pairs and its 95 % interval, by resampling blocks of 50 pairs.

    The two steps of a pair are neighbours, so a slow minute of the machine cancels out of their ratio.
    """
    rng = np.random.default_rng(0)
    ratios = with_s / without_s
    blocks = ratios[: len(ratios) // BLOCK * BLOCK].reshape(-1, BLOCK)
    drawn = [np.median(blocks[rng.integers(0, len(blocks), len(blocks))]) for _ in range(2000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=2)
    args = parser.parse_args()
    describe_machine()  # as it is, before this process keeps to one core of it
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    torch.set_num_threads(1)
    batch = find_batch(args.dim, args.depth)
    with_s, without_s = measure(make_step(args.dim, args.depth, batch), args.pairs)
    ratio, low, high = interval_of_ratio(with_s, without_s)
    step_ms = float(np.median(without_s)) * 1e3
    print(f"step without the probe  {step_ms:8.3f} ms (median of {len(without_s)}, batch {batch})")
    print(f"with / without          {ratio:8.4f}    95 % interval {low:.4f} to {high:.4f}, limit {LIMIT}")
    write_result(
        "overhead",
        {
            "step_without_ms": step_ms,
            "ratio": ratio,
            "low": low,
            "high": high,
            "pairs": args.pairs,
            "batch": batch,
            "limit": LIMIT,
        },
    )
    sys.exit(ratio > LIMIT)


if __name__ == "__main__":
    if "MALLOC_MMAP_MAX_" not in os.environ:  # the tuned allocator: page faults are the largest noise
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **tuned_environment(1)})
    main()
