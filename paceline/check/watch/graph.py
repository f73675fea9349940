"""How a loss was scaled after it was computed, read from autograd's graph, whatever the loss function was.

Enters: the tensor that backward is called on. Leaves: the factor between it and the last thing before it
that is no multiplication by a number: 1/4 for `((output - y) ** 2).mean() / 4`.

    pytest tests/check/test_watch.py
"""

from __future__ import annotations

import math
from typing import Any

import torch

ROUNDING = 8  # units in the last place, between a loss as it was computed and as its factor says
PASSING = ("ToCopyBackward0", "AliasBackward0", "CloneBackward0", "SqueezeBackward0")


def read_factor(loss: torch.Tensor, scaled: Any = None) -> tuple[float, bool]:
    """The factor, and whether the graph contains `scaled`, the node GradScaler made, which does not count."""
    factor, found = 1.0, False
    node: Any = loss.grad_fn
    while node is not None:
        inputs = [following for following, _ in node.next_functions]
        others = [following for following in inputs if following is not None]
        if len(others) != 1:
            break
        name = node.name()
        if node is scaled:
            found = True
        elif name in ("MulBackward0", "DivBackward0"):
            number = _saved_number(node, name, inputs)
            if number is None:
                break
            factor = factor / number if name == "DivBackward0" else factor * number
        elif name not in PASSING:
            break
        node = others[0]
    return factor, found


def has_other_terms(loss: torch.Tensor, value: float, expected: float) -> bool:
    """Is the loss more than the loss function's value times the factor, a regularising term perhaps?"""
    rounding = ROUNDING * torch.finfo(loss.dtype).eps
    return math.isfinite(value) and not math.isclose(value, expected, rel_tol=rounding)


def _saved_number(node: Any, name: str, inputs: list[Any]) -> float | None:
    """The other operand, where it is one number."""
    if name == "DivBackward0" and inputs[0] is None:
        return None  # a number divided by the loss
    saved = node._saved_self if inputs[0] is None else node._saved_other
    if not isinstance(saved, torch.Tensor) or saved.numel() != 1:
        return None
    return float(saved) or None
