"""A loop as Lightning Fabric's documentation has it."""

import os

import torch
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric(accelerator="cpu", strategy="ddp", devices=int(os.environ["WORLD_SIZE"]))
fabric.launch()
model = torch.nn.Linear(32, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=1e-2))
data = DataLoader(TensorDataset(torch.randn(512, 32), torch.randn(512, 1)), batch_size=4)
data = fabric.setup_dataloaders(data)
for _ in range(3):
    for x, y in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        fabric.backward(loss)
        optimizer.step()
