"""Practical 7, Part 4: which share of the gradients becomes zero in fp16, and which loss scale prevents it.

python practical7_underflow.py

Small, and always on the CPU: fp16 rounds in the same way on every device. One fp32 backward tells which
gradients are not zero. One fp16 backward per loss scale tells how many of those are lost.
"""

import argparse
import copy
import json

import torch
from torch import nn

DIM = 256  # width of every layer
DEPTH = 12  # number of layers: on the way back every one makes the gradients smaller
BATCH = 32  # samples
SCALES = [2.0**exponent for exponent in range(0, 33, 4)]  # GradScaler begins with 2 ** 16


class LargeLinearModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(DEPTH))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def compute_gradients(model, x, y, dtype, scale):
    """All gradients of the loss as one vector, multiplied by the scale."""
    model = copy.deepcopy(model).to(dtype)
    loss = nn.functional.mse_loss(model(x.to(dtype)).float(), y)  # as under autocast, the loss is in fp32
    (loss * scale).backward()
    return torch.cat([parameter.grad.float().flatten() for parameter in model.parameters()])


def measure_underflow():
    torch.manual_seed(0)
    model = LargeLinearModel()
    x, y = torch.randn(BATCH, DIM), torch.rand(BATCH, DIM)
    exact = compute_gradients(model, x, y, torch.float32, scale=1.0)
    nonzero = exact != 0  # ReLU makes true zeros, which are no loss

    rows = []
    for scale in SCALES:
        scaled = compute_gradients(model, x, y, torch.float16, scale)
        rows.append(
            {
                "scale": scale,
                "underflow_share": ((scaled == 0) & nonzero).sum().item() / nonzero.sum().item(),
                "overflow_share": (~scaled.isfinite()).sum().item() / scaled.numel(),
            }
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--json-out", metavar="FILE", help="write the table for other programs too")
    flags = parser.parse_args()
    DIM, DEPTH, BATCH = flags.dim, flags.depth, flags.batch

    rows = measure_underflow()
    print("  loss scale   lost to zero   overflown")
    for row in rows:
        print(f"{row['scale']:12.0f}   {row['underflow_share']:12.2%}   {row['overflow_share']:9.2%}")
    if flags.json_out:
        with open(flags.json_out, "w") as file:
            json.dump(rows, file)
