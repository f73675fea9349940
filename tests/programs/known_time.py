"""Steps of exactly 20 ms, of which 5 ms are data; every seventh takes 50 ms when asked to."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--slow-every", type=int, default=0)
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()


def wait_until(moment: float) -> None:
    """Exact to microseconds: sleep most of it, spin the rest."""
    while (left := moment - time.perf_counter()) > 0:
        if left > 0.002:
            time.sleep(left - 0.002)


class Slow(Dataset):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        wait_until(time.perf_counter() + 0.005)
        return torch.ones(1, 4)


class Model(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wait_until(time.perf_counter() + 0.006)
        return super().forward(x)


model = Model(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
step_began = time.perf_counter()
for step, x in enumerate(DataLoader(Slow(), batch_size=None)):
    optimizer.zero_grad()
    model(x).sum().backward()
    # On an absolute schedule, so that the overhead of a step is part of its 20 ms.
    step_began += 0.050 if args.slow_every and step % args.slow_every == 0 else 0.020
    wait_until(step_began)
    optimizer.step()
    if step == args.steps:
        break
