"""How a loss was scaled after it was computed, read from autograd's graph, whatever the loss function was.

Enters: the tensor that backward is called on. Leaves: the factor between it and the last thing before it
that is no multiplication by a number: 1/4 for `((output - y) ** 2).mean() / 4`.

    pytest tests/check/test_watch.py
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

ROUNDING = 8  # units in the last place, between a loss as it was computed and as its factor says
PASSING = ("ToCopyBackward0", "AliasBackward0", "CloneBackward0", "SqueezeBackward0")


class Scaling(NamedTuple):
    """What happened to a loss between the loss function and backward."""

    factor: float
    by_scaler: bool  # does the graph contain the node that GradScaler made, which does not count?
    is_sum: bool  # is what was scaled a sum of several things that have gradients?


def read_factor(loss: torch.Tensor, scaled: Any = None) -> Scaling:
    """`scaled` is the node that GradScaler made."""
    factor, found = 1.0, False
    node: Any = loss.grad_fn
    while node is not None:
        inputs = [following for following, _ in node.next_functions]
        others = [following for following in inputs if following is not None]
        if len(others) != 1:
            return Scaling(factor, found, len(others) > 1)
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
    return Scaling(factor, found, False)


def has_other_terms(loss: torch.Tensor, value: float, called: float, scaling: Scaling) -> bool:
    """Is the loss more than a multiple of `called`, what the loss function gave? By a penalty on the weights,
    perhaps; a term that is zero changes nothing."""
    rounding = ROUNDING * torch.finfo(loss.dtype).eps
    as_expected = math.isclose(value, called * scaling.factor, rel_tol=rounding)
    return scaling.is_sum and math.isfinite(value) and not as_expected


def _saved_number(node: Any, name: str, inputs: list[Any]) -> float | None:
    """The other operand, where it is one number."""
    if name == "DivBackward0" and inputs[0] is None:
        return None  # a number divided by the loss
    saved = node._saved_self if inputs[0] is None else node._saved_other
    if not isinstance(saved, torch.Tensor) or saved.numel() != 1:
        return None
    return float(saved) or None
