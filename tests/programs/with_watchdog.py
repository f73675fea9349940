"""Ended by a thread of its own, in the step of the number on the command line."""

import os
import sys
import threading

import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(100):
    loss = model(torch.ones(4, 8)).sum()
    if step == int(sys.argv[1]):
        watchdog = threading.Thread(target=os._exit, args=(3,))
        watchdog.start()
        watchdog.join()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
