"""Train a stack of large linear layers on random data, on one device or, under torchrun, on many.

    python examples/train.py
    torchrun --nproc-per-node 2 examples/train.py --accum-steps 4 --precision bfloat16

Needs torch alone. The batch is the one of an optimizer step, over all ranks and micro-steps: more ranks
share the same work.
"""

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class LargeLinearModel(nn.Module):
    def __init__(self, dim: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(layer for _ in range(depth) for layer in (nn.Linear(dim, dim), nn.ReLU()))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument(
        "--batch", type=int, default=64, help="samples per optimizer step, all ranks together"
    )
    parser.add_argument("--accum-steps", type=int, default=1, help="micro-steps per optimizer step")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    arguments = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    shares = world * arguments.accum_steps
    if arguments.batch % shares:
        nearest = max(1, round(arguments.batch / shares)) * shares
        parser.error(
            f"--batch {arguments.batch} cannot be shared by {world} ranks × {arguments.accum_steps} "
            f"micro-steps; try {nearest}"
        )
    return arguments


def main() -> None:
    arguments = parse_arguments()
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    world = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cpu")
    if torch.accelerator.is_available():
        torch.accelerator.set_device_index(local_rank)
        device = torch.device(torch.accelerator.current_accelerator().type, local_rank)
    torch.manual_seed(0)  # the same weights on every rank
    model = LargeLinearModel(arguments.dim, arguments.depth).to(device)
    if world > 1:
        dist.init_process_group(dist.get_default_backend_for_device(device))
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn = nn.MSELoss()
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "bfloat16")

    torch.manual_seed(rank + 1)  # other data on every rank
    micro_batch = arguments.batch // world // arguments.accum_steps
    x = torch.randn(micro_batch, arguments.dim, device=device)
    y = torch.randn(micro_batch, arguments.dim, device=device)
    for step in range(arguments.steps):
        for micro_step in range(arguments.accum_steps):
            # Only the last micro-step needs the other ranks' gradients.
            is_last = micro_step == arguments.accum_steps - 1
            with nullcontext() if is_last or world == 1 else model.no_sync():
                with autocast:
                    loss = loss_fn(model(x), y) / arguments.accum_steps
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {loss.item() * arguments.accum_steps:.4f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
