"""GradScaler must hold the optimizer back at steps 7 and 11, where a gradient is infinite."""

import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(60):
    loss = model(torch.ones(4, 8)).square().mean()
    scaler.scale(loss).backward()
    if step in (7, 11):
        model.weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
