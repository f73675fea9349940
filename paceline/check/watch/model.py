"""Watches the model: each outermost call, its layers and their devices, autocast, moves between devices.

Enters: PyTorch's own hooks on every module. Leaves: "model" once, then "forward" for each call; and the
calls' arguments to whoever wants to repeat them.

    pytest tests/check/test_check_programs.py
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from paceline.check.watch.fingerprint import fingerprint_data, fingerprint_weights
from paceline.check.watch.trace import Trace
from paceline.probe.collectives import flatten

DDP = torch.nn.parallel.DistributedDataParallel
OnForward = Callable[[tuple[Any, ...], dict[str, Any], Any], None]


def own_parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    """Not those of the modules inside it. DataParallel's replicas keep theirs under another name."""
    own: Any = getattr(module, "_former_parameters", None) or module._parameters
    return [parameter for parameter in own.values() if parameter is not None]


def find_wrapped(module: Any) -> torch.nn.Module | None:
    """The model inside a wrapper of PyTorch's, torch.compile()'s too."""
    name = "module" if isinstance(module, DDP | torch.nn.DataParallel) else "_orig_mod"
    wrapped: torch.nn.Module | None = getattr(module, name, None)
    return wrapped


class ModelWatch:
    """The call under way, and the model that the script calls."""

    def __init__(self, trace: Trace, on_forward: OnForward) -> None:
        self._trace = trace
        self._on_forward = on_forward
        self._model: weakref.ref[torch.nn.Module] | None = None
        self._ddp: weakref.ref[torch.nn.Module] | None = None  # the first that the call went through
        self._stack: list[torch.nn.Module] = []
        self._layers: list[list[Any]] = []  # of this call: [name, device, autocast, type of the output]
        self._moves: list[list[Any]] = []
        self._is_moving = False
        self._other_devices: set[str] = set()  # used by threads: DataParallel's replicas
        self._names: dict[int, str] = {}
        self._thread = threading.get_ident()

    @property
    def model(self) -> torch.nn.Module | None:
        """What the script called last: perhaps a wrapper."""
        return self._model() if self._model is not None else None

    @property
    def unwrapped(self) -> torch.nn.Module | None:
        model = self.model
        while (inner := find_wrapped(model)) is not None:
            model = inner
        return model

    @property
    def is_called(self) -> bool:
        return bool(self._stack)

    def has_gradients(self) -> bool:
        """Does any parameter hold a gradient that is not zero?"""
        model = self.model
        parameters = model.parameters() if model is not None else ()
        return any(p.grad is not None and bool(p.grad.any()) for p in parameters)

    def compare_with_gradients(self, tensors: list[torch.Tensor]) -> tuple[bool, float]:
        """Are these gradients themselves; and as what share of all gradients would they count as copies?"""
        if not self.has_gradients():
            return False, 0.0
        assert self.model is not None
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        places = {gradient.untyped_storage().data_ptr() for gradient in gradients}
        largest = max((tensor.numel() for tensor in tensors if tensor.is_floating_point()), default=0)
        own = any(tensor.untyped_storage().data_ptr() in places for tensor in tensors)
        return own, largest / sum(gradient.numel() for gradient in gradients)

    def synchronises(self) -> bool | None:
        """DDP's own switch, None for a call that went through none."""
        ddp: Any = self._ddp() if self._ddp is not None else None
        return bool(ddp.require_backward_grad_sync) if ddp is not None else None

    def device_type(self) -> str:
        model = self.model
        first = next(model.parameters(), None) if model is not None else None
        return first.device.type if first is not None else "cpu"

    def install(self) -> None:
        register_module_forward_pre_hook(self._began)
        register_module_forward_hook(self._ended, with_kwargs=True, always_call=True)
        self._watch_moves()

    def _began(self, module: torch.nn.Module, args: Any) -> None:
        if threading.get_ident() != self._thread:
            self._other_devices.update(str(parameter.device) for parameter in own_parameters(module))
        elif self._trace.listens:
            if not self._stack and next(module.parameters(), None) is not None:
                self._root_began(module)
            if self._ddp is None and isinstance(module, DDP):
                self._ddp = weakref.ref(module)
            self._stack.append(module)

    def _root_began(self, module: torch.nn.Module) -> None:
        if self.model is not module:
            self._model = weakref.ref(module)
            self._names = {id(part): name for name, part in module.named_modules()}
            self._describe(module)
        self._layers, self._moves, self._ddp = [], [], None
        self._other_devices.clear()

    def _ended(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if threading.get_ident() != self._thread or not self._trace.listens or not self._stack:
            return
        self._stack.pop()
        parameter = next(iter(own_parameters(module)), None)
        if parameter is not None:
            device = parameter.device
            kind = str(output.dtype) if isinstance(output, torch.Tensor) else ""
            autocast = torch.is_autocast_enabled(device.type)
            self._layers.append([self._names.get(id(module), ""), str(device), autocast, kind])
        if not self._stack and module is self.model:
            self._trace.guard(self._root_ended)(args, kwargs, output)

    def _root_ended(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        tensors = flatten([*args, *kwargs.values()])
        first = next((t for t in tensors if t.dim()), None)
        autocast = [layer for layer in self._layers if layer[2]]
        kinds = sorted({layer[3] for layer in autocast})
        self._trace.write(
            "forward",
            grad=torch.is_grad_enabled(),
            batch=len(first) if first is not None else None,
            sync=self.synchronises(),
            data=fingerprint_data(tensors),
            layers=len(self._layers),
            autocast=len(autocast),
            autocast_types=kinds,
            path=[[name, device] for name, device, _, _ in self._layers] if self._spread() else [],
            moves=self._moves,
            devices=sorted({layer[1] for layer in self._layers} | self._other_devices),
        )
        self._on_forward(args, kwargs, output)

    def _spread(self) -> bool:
        """Is one model on several devices?"""
        return len({layer[1] for layer in self._layers}) > 1

    def _describe(self, module: torch.nn.Module) -> None:
        inner = self.unwrapped
        assert inner is not None
        layers = [
            [name, str(next(iter(own)).device), sum(p.numel() for p in own)]
            for name, part in inner.named_modules()
            if (own := own_parameters(part))
        ]
        self._trace.write(
            "model",
            kind=type(module).__name__,
            ddp=isinstance(module, DDP),
            data_parallel=isinstance(module, torch.nn.DataParallel),
            replicas=len(getattr(module, "device_ids", None) or []),
            layers=layers,
            weights=fingerprint_weights(inner),
        )

    def _watch_moves(self) -> None:
        for name in ("to", "cuda", "cpu"):
            setattr(torch.Tensor, name, self._watch_move(getattr(torch.Tensor, name)))

    def _watch_move(self, move: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(move)
        def moved(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            # Under a function mode, as virtual devices have one, PyTorch calls this again inside the call.
            within, self._is_moving = self._is_moving, True
            try:
                result = move(tensor, *args, **kwargs)
            finally:
                self._is_moving = within
            if self._stack and not within and self._trace.listens and result.device != tensor.device:
                line = self._trace.stand().get("line")
                self._moves.append([str(tensor.device), str(result.device), len(self._layers), line])
            return result

        return moved
