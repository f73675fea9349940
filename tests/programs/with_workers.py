"""A DataLoader with worker processes, and a finally clause that the end of a measurement must not run."""

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = DataLoader(TensorDataset(torch.randn(4000, 8)), batch_size=4, num_workers=2)
    try:
        for (x,) in data:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        if len(sys.argv) > 1:
            Path(sys.argv[1]).write_text("the finally clause ran")
