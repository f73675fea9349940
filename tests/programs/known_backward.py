"""One micro-step of 8 samples, its loss 4.0, in every way in which a script may ask for gradients."""

import sys
import threading

import torch
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

how = sys.argv[1]
torch.distributed.init_process_group("gloo")
layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in range(3))
for layer in layers:
    torch.nn.init.eye_(layer.weight)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True) if how == "checkpoint" else layer(x)
        return x.sum(1).square().mean() / 4


def load() -> None:
    while True:
        for _ in DataLoader(torch.ones(2, 4)):
            pass


if how == "thread":
    threading.Thread(target=load, daemon=True).start()
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
scaler = ShardedGradScaler("cpu", init_scale=1024.0)
parameters = list(model.parameters())
for _ in range(60):
    x = torch.ones(8, 4, requires_grad=True)
    loss = model(x)
    if how == "scaler":
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    elif how == "grad":
        torch.autograd.grad(loss, x, create_graph=True)[0].square().sum()
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
    else:
        if how == "penalty":
            torch.autograd.grad(loss, x, retain_graph=True)
        loss.backward()
    if how != "scaler":
        optimizer.step()
    optimizer.zero_grad()
