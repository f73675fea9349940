"""Two ranks train on virtual devices over gloo, by DDP and by FSDP, and compare with one process."""

from __future__ import annotations

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import paceline.virtual as virtual

WORLD = 2


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train_and_compare(model: nn.Module, reference: nn.Module, rank: int, device: torch.device) -> None:
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, reference)]
    for _ in range(3):
        batch = torch.randn(WORLD, 4, 8)
        model(batch[rank].to(device)).square().mean().backward()
        sum(reference(part).square().mean() / WORLD for part in batch).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for parameter, expected in zip(model.parameters(), reference.parameters(), strict=True):
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        assert whole.device == device
        torch.testing.assert_close(whole.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)


def check_collectives(rank: int, device: torch.device) -> None:
    x = torch.full((3,), float(rank + 1), device=device)
    work = dist.all_reduce(x, async_op=True)
    assert work.get_future().wait()[0].device == device
    assert x.tolist() == [3, 3, 3]
    gathered = [torch.empty(3, device=device) for _ in range(WORLD)]
    dist.all_gather(gathered, x * rank)
    assert [part[0].item() for part in gathered] == [0, 3]
    halves = torch.empty(1, device=device)
    dist.reduce_scatter_tensor(halves, torch.arange(2.0, device=device))
    assert halves.item() == 2 * rank
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    dist.broadcast(x, 0)
    dist.barrier()


def main() -> None:
    rank = int(os.environ["LOCAL_RANK"])
    virtual.install(devices=2)
    torch.accelerator.set_device_index(rank)
    device = torch.device("virtual", rank)
    dist.init_process_group()  # no name: the accelerator's default is gloo
    check_collectives(rank, device)
    for as_view in (False, True):
        model = make_model()
        ddp = DistributedDataParallel(copy.deepcopy(model).to(device), gradient_as_bucket_view=as_view)
        train_and_compare(ddp, model, rank, device)
    model = make_model()
    sharded = copy.deepcopy(model).to(device)
    mesh = init_device_mesh("virtual", (WORLD,))
    for part in (sharded[0], sharded[2], sharded):
        fully_shard(part, mesh=mesh)
    train_and_compare(sharded, model, rank, device)
    print(f"rank {rank} agrees\n", end="", flush=True)  # one write, so that ranks do not mix
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
