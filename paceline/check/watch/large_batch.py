"""What the gradient would be if all micro-batches of an optimizer step were one large batch.

Enters: the calls of one optimizer step: model inputs and loss targets of every micro-step. Leaves: values of
the gradient that the optimizer gets and of the gradient recomputed in one go, in single precision, from this
rank's data; the mean of the latter over the ranks is what the former should be.

    pytest tests/check/test_watch.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from paceline.check.watch.fingerprint import pick

MOST_VALUES = 4096  # of all parameters together


class CannotTellError(Exception):
    """Why the large batch cannot be recomputed, in words for a person."""


@dataclass
class LossCall:
    """A call of a loss function: what it was, and all its arguments."""

    function: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: float


@dataclass
class MicroBatch:
    """One micro-step: what the model was called with, what came out, and the loss call that followed; all
    tensors detached."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    loss: LossCall | None
    has_other_terms: bool = False  # was anything added to the loss before backward?


def compare_gradients(module: torch.nn.Module, micros: list[MicroBatch], scale: float) -> dict[str, Any]:
    """Picked values of both gradients, parameter after parameter."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    actual = {name: p.grad for name, p in parameters.items()}
    large = compute_gradients(module, micros)
    per_parameter = max(8, MOST_VALUES // max(1, len(parameters)))
    values: dict[str, list[float]] = {"actual": [], "large": []}
    for name, gradient in large.items():
        ours = actual[name]
        expected = pick(gradient, per_parameter).double()
        got = pick(ours, per_parameter).double() / scale if ours is not None else expected * 0
        values["large"] += expected.tolist()
        values["actual"] += got.tolist()
    return values


def compute_gradients(module: torch.nn.Module, micros: list[MicroBatch]) -> dict[str, torch.Tensor]:
    """The gradient of the mean loss over everything in `micros`, from the weights as they are now."""
    refuse_randomness(module)
    if any(micro.has_other_terms for micro in micros):
        raise CannotTellError("backward gets more than a multiple of the loss function's value")
    calls = [micro.loss for micro in micros]
    first = calls[0]
    if first is None or any(call is None or call.name != first.name for call in calls):
        raise CannotTellError("the loss is not a function of torch.nn.functional")
    losses = [call for call in calls if call is not None]
    args = [join([micro.args[i] for micro in micros]) for i in range(len(micros[0].args))]
    kwargs = {name: join([micro.kwargs[name] for micro in micros]) for name in micros[0].kwargs}
    weights = {
        name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in module.named_parameters()
    }
    device = next(iter(weights.values())).device
    with torch.enable_grad(), torch.autocast(device.type, enabled=False), keep_randomness(device):
        before = random_states(device)
        with without_ddp(module):
            output = torch.func.functional_call(module, weights, tuple(args), kwargs)
        if any(not torch.equal(a, b) for a, b in zip(before, random_states(device), strict=True)):
            raise CannotTellError("the model draws random numbers: every forward pass is a different one")
        shaped = follow_shape(output, micros[0])
        targets = [join([call.args[i] for call in losses]) for i in range(1, len(first.args))]
        options = {name: join([call.kwargs[name] for call in losses]) for name in first.kwargs}
        options.pop("input", None)
        loss = first.function(shaped, *targets, **options)
        wanted = {name: weight for name, weight in weights.items() if weight.requires_grad}
        gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    return {name: g for name, g in zip(wanted, gradients, strict=True) if g is not None}


@contextmanager
def without_ddp(module: torch.nn.Module) -> Iterator[None]:
    """DDP within a module calls collectives in forward, to which another rank may not come."""
    wrappers = [part for part in module.modules() if isinstance(part, DistributedDataParallel)]
    for wrapper in wrappers:
        wrapper.forward = wrapper.module.__call__  # type: ignore[method-assign]  # of this object alone
    try:
        yield
    finally:
        for wrapper in wrappers:
            del wrapper.forward


def keep_randomness(device: torch.device) -> AbstractContextManager[None]:
    """What is drawn inside is not missing from the script's own random numbers."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)


def random_states(device: torch.device) -> list[torch.Tensor]:
    own = [] if device.type == "cpu" else [torch.get_device_module(device).get_rng_state(device)]
    return [torch.get_rng_state(), *own]


def refuse_randomness(module: torch.nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.training:
            raise CannotTellError("batch normalisation makes a sample's gradient depend on its micro-batch")
        if isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p > 0 and part.training:
            raise CannotTellError("dropout makes every forward pass a different one")


def join(values: list[Any]) -> Any:
    """One batch from several: tensors along their first dimension, anything else as it was."""
    first = values[0]
    if not isinstance(first, torch.Tensor) or first.dim() == 0:
        return first
    if any(value.shape != first.shape for value in values):
        raise CannotTellError("micro-batches differ in size")
    return torch.cat([value.detach() for value in values])


def follow_shape(output: Any, micro: MicroBatch) -> torch.Tensor:
    """The script may have reshaped or cast the model's output before the loss function got it."""
    assert micro.loss is not None
    given = micro.loss.args[0] if micro.loss.args else micro.loss.kwargs.get("input")
    ours = micro.output
    if not isinstance(ours, torch.Tensor) or not isinstance(given, torch.Tensor):
        raise CannotTellError("the model's output is not one tensor that goes to the loss function")
    assert isinstance(output, torch.Tensor)
    same = given.numel() == ours.numel() and torch.allclose(
        given.float().reshape(-1), ours.float().reshape(-1)
    )
    if not same:
        raise CannotTellError("the loss function gets something else than the model's output")
    if given.dtype.is_floating_point and output.dtype != torch.float32:
        output = output.float()
    shaped: torch.Tensor = output.reshape(-1, *given.shape[1:])
    return shaped
