"""Lets `module.to("virtual:1")` keep its parameters, as `module.to("cuda")` does.

PyTorch moves a parameter between its own devices by giving the same object other memory. For a
backend from outside it makes a new object instead, and an optimizer that was built before the move
would go on training the old one. So the old object takes over what the new one holds.

Enters and leaves: nothing. Exercise: `pytest tests/virtual -k identity`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def install() -> None:
    """Wrap the one function through which a module converts its parameters."""
    convert = nn.Module._apply

    def convert_in_place(
        self: nn.Module, fn: Callable[[Tensor], Tensor], *rest: Any, **named: Any
    ) -> nn.Module:
        before = dict(self._parameters)
        convert(self, fn, *rest, **named)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = self._parameters[name]
            if old is not None and new is not None and new is not old and _moved(old, new):
                _take_over(self, name, old, new)
        return self

    nn.Module._apply = convert_in_place  # type: ignore[method-assign]


def _moved(old: Tensor, new: Tensor) -> bool:
    return "virtual" in (old.device.type, new.device.type) and type(old) is type(new)


def _take_over(module: nn.Module, name: str, old: nn.Parameter, new: nn.Parameter) -> None:
    own_attributes = dict(old.__dict__)
    try:
        torch.utils.swap_tensors(old, new)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return  # a graph or a weak reference holds the old one: PyTorch's own way must do
    old.__dict__.update(own_attributes)
    module._parameters[name] = old
