"""Watches the loss functions of torch.nn.functional, which the modules of torch.nn call as well.

Enters: their calls. Leaves: "loss", and the call itself to whoever wants to repeat it.

    pytest tests/check/test_check_programs.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from paceline.check.watch.large_batch import LossCall
from paceline.check.watch.trace import Trace

NAMES = ("_loss", "cross_entropy", "kl_div", "_with_logits")


def watch_losses(trace: Trace, on_loss: Callable[[LossCall], None]) -> None:
    functional: Any = torch.nn.functional
    depth = 0  # a function mode (virtual devices have one) calls the same function again inside the call

    def watch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def compute_loss(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                loss = function(*args, **kwargs)
            finally:
                depth -= 1
            if depth == 0 and isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
                note(args, kwargs, loss)
            return loss

        @trace.guard
        def note(args: Any, kwargs: Any, loss: torch.Tensor) -> None:
            value = float(loss.detach())
            trace.write(
                "loss",
                function=name,
                value=value,
                autocast=torch.is_autocast_enabled(loss.device.type),
                reduction=kwargs.get("reduction", "mean"),
            )
            on_loss(LossCall(function, name, detach(args), detach(kwargs), value))

        return compute_loss

    for name in dir(functional):
        if name.endswith(NAMES) and name[0] != "_":
            setattr(functional, name, watch(name, getattr(functional, name)))


def detach(value: Any) -> Any:
    """The same arguments without their graphs."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {name: detach(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        items = [detach(inner) for inner in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value
