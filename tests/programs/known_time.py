"""Steps of 20 ms, of which 5 ms are data and 6 forward; every seventh takes 50 ms when asked to.

On a busy machine even these waits last longer; so the program can keep its own account of them.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--slow-every", type=int, default=0)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--log", help="where to write each step's own account of its data and forward seconds")
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


log = open(args.log, "w", buffering=1) if args.log else None  # noqa: SIM115 (until the process is ended)
model = Model(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
step_began = step_ended = time.perf_counter()
for step, x in enumerate(DataLoader(Slow(), batch_size=None)):
    optimizer.zero_grad()
    data_ended = time.perf_counter()
    loss = model(x).sum()
    forward_ended = time.perf_counter()
    loss.backward()
    # On an absolute schedule, so that the overhead of a step is part of its 20 ms.
    step_began += 0.050 if args.slow_every and step % args.slow_every == 0 else 0.020
    wait_until(step_began)
    optimizer.step()
    step_ended_now = time.perf_counter()
    if log:
        account = {"data_s": data_ended - step_ended, "forward_s": forward_ended - data_ended}
        log.write(json.dumps(account) + "\n")
    step_ended = step_ended_now
    if step == args.steps:
        break
