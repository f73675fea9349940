"""A few numbers that stand for a tensor or a model, so that ranks can be compared without sending them.

Enters: tensors. Leaves: lists of numbers, the same positions on every rank.

    pytest tests/check/test_watch.py
"""

from __future__ import annotations

import math
from typing import Any

import torch

from paceline.probe.collectives import flatten

MOST_PARAMETERS = 16
VALUES_PER_PARAMETER = 4


def pick(tensor: torch.Tensor, num_values: int) -> torch.Tensor:
    """Values at evenly spaced positions, all of them when there are no more."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() <= num_values:
        return flat
    # An odd stride walks through all columns of a matrix instead of down one.
    positions = torch.arange(num_values, device=flat.device) * (flat.numel() // num_values | 1)
    return flat[positions % flat.numel()]


def fingerprint_data(values: Any) -> list[float] | None:
    """Of one call's arguments: sums and single values of the first tensors."""
    digest: list[float] = []
    for tensor in flatten([*values])[:4]:
        if tensor.numel():
            numbers = tensor.detach().double()
            digest += [_plain(numbers.sum()), *(_plain(v) for v in pick(numbers, 4))]
    return digest or None


def fingerprint_weights(module: torch.nn.Module) -> list[float]:
    parameters = list(module.parameters())
    step = max(1, math.ceil(len(parameters) / MOST_PARAMETERS))
    return [_plain(value) for p in parameters[::step] for value in pick(p, VALUES_PER_PARAMETER)]


def _plain(value: torch.Tensor) -> float:
    return float(value)
