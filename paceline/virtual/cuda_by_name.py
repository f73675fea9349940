"""Lets a script that says `cuda` by name run on virtual devices.

A mode translates every device that a torch function is given, `torch.cuda` gets the functions of
`torch.virtual`, and the few Python functions that compare names (autocast, GradScaler, torch.load,
init_process_group, init_device_mesh) are told the other name. What cannot be translated is a comparison
in the script itself, `x.device.type == "cuda"`, which is false here since the tensor says `virtual`, and
`torch.Generator("cuda")`, which PyTorch makes without asking any mode.

Enters and leaves: nothing. Exercise: `python -m paceline.virtual --as-cuda script.py`
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from paceline.virtual import device_module

_CUDA = re.compile(r"cuda(?=:\d+$|$)")

# What torch.cuda and torch.virtual have both.
_SHARED = [name for name in vars(device_module) if name[0] != "_" and hasattr(torch.cuda, name)]


def install() -> None:
    """From now on `cuda` means `virtual` in this process."""
    if getattr(torch.cuda, "_paceline_virtual", False):
        return
    torch.cuda._paceline_virtual = True  # type: ignore[attr-defined]
    for owner in (torch.cuda, torch.cuda.memory):
        for name in _SHARED:
            setattr(owner, name, getattr(device_module, name))
    torch.cuda.is_current_stream_capturing = _never
    _translate_names()
    _enter_mode_in_threads()
    _enter_mode_in_backward()
    CudaByName().__enter__()  # type: ignore[no-untyped-call]


def translate(value: Any) -> Any:
    """The same value with `cuda` devices replaced, inside lists, tuples and dictionaries too."""
    if isinstance(value, str):
        return _CUDA.sub("virtual", value) if value.startswith("cuda") else value
    if isinstance(value, torch.device):
        return torch.device("virtual", value.index) if value.type == "cuda" else value
    if type(value) in (list, tuple):
        return type(value)(map(translate, value))
    if type(value) is dict:
        return {key: translate(item) for key, item in value.items()}
    return value


class CudaByName(TorchFunctionMode):
    """Translates the devices in the arguments of every torch function."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return _to_device(*args, **kwargs)
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return args[0].device.type == "virtual"
        return func(*(translate(a) for a in args), **{k: translate(v) for k, v in kwargs.items()})


def _to_device(
    tensor: torch.Tensor,
    device: device_module.DeviceLike = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    place = torch.device("virtual", device_module.index_of(translate(device)))
    return tensor.to(place, non_blocking=non_blocking, memory_format=memory_format)


def _never() -> bool:
    return False


def _translate_names() -> None:
    for owner, name in (
        (torch.amp.autocast_mode.autocast, "__init__"),
        (torch.amp.GradScaler, "__init__"),
        (torch.amp, "custom_fwd"),
        (torch.amp.autocast_mode, "custom_fwd"),
        (torch.amp, "custom_bwd"),
        (torch.amp.autocast_mode, "custom_bwd"),
        (torch, "get_autocast_dtype"),
        (torch, "set_autocast_dtype"),
        (torch, "set_autocast_enabled"),
        (torch, "load"),
        (dist, "init_device_mesh"),
        (dist.device_mesh, "init_device_mesh"),
    ):
        setattr(owner, name, _translating(getattr(owner, name), translate))
    is_autocast_enabled = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda device_type="cuda": is_autocast_enabled(translate(device_type))
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("virtual")
    # PyTorch would time kernels by CUDA's events and print a stack for each one that it cannot record.
    profile = torch.autograd.profiler.profile
    profile.__init__ = _translating(profile.__init__, _without_cuda)  # type: ignore[method-assign]
    for owner in (dist, dist.distributed_c10d):
        for name in ("init_process_group", "new_group"):
            setattr(owner, name, _translating(getattr(owner, name), _translate_backend))
    # nn.DataParallel asks torch.cuda first, and would then look for tensors that say cuda.
    torch.nn.parallel.data_parallel._get_available_device_type = lambda: "virtual"  # type: ignore[attr-defined]
    torch._utils._get_available_device_type = lambda: "virtual"
    torch.serialization.register_package(15, lambda storage: None, _load_cuda_storage)  # type: ignore[arg-type]


def _translating(function: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def translated(*args: Any, **kwargs: Any) -> Any:
        return function(*map(change, args), **{key: change(value) for key, value in kwargs.items()})

    return translated


def _translate_backend(value: Any) -> Any:
    if isinstance(value, str) and "nccl" in value:
        return value.replace("cuda:nccl", "virtual:gloo").replace("nccl", "gloo")
    return translate(value)


def _without_cuda(value: Any) -> Any:
    return None if value == "cuda" else value


def _load_cuda_storage(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
    """Data that was saved on a GPU goes to the virtual device of the same number."""
    if not location.startswith("cuda"):
        return None
    index = device_module.index_of(translate(location))
    moved: torch.UntypedStorage = storage.virtual(index)  # type: ignore[attr-defined]
    return moved


def _enter_mode_in_threads() -> None:
    """A mode belongs to one thread, and nn.DataParallel starts others."""
    start = threading.Thread.start

    def start_in_mode(self: threading.Thread) -> None:
        run = self.run

        def run_in_mode() -> None:
            with CudaByName():
                run()

        self.run = run_in_mode  # type: ignore[method-assign]
        start(self)

    threading.Thread.start = start_in_mode  # type: ignore[method-assign]


def _enter_mode_in_backward() -> None:
    """A mode is off inside its own handler, and there `Tensor.backward` runs hooks and checkpoints."""
    run_backward = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run_in_mode(*args: Any, **kwargs: Any) -> Any:
        with CudaByName():
            return run_backward(*args, **kwargs)

    torch.autograd._engine_run_backward = run_in_mode  # type: ignore[attr-defined]
