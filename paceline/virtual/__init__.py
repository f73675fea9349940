"""N accelerators in CPU memory: code for several GPUs, on a machine without any.

    import paceline.virtual as virtual

    virtual.install(devices=5)
    model.to("virtual:3")
    virtual.memory(3)       # live, peak, limit
    virtual.transfers()     # from device → to device: count, bytes

Enters: how many devices, how much memory each, what joins them. Leaves: a process whose
`torch.accelerator` is these devices, until it ends; `docs/virtual.md` says how real they are.
Exercise: `python -m paceline.virtual --devices 5 script.py`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.virtual.native import Library

__all__ = [
    "CompilerMissing",
    "Memory",
    "Transfers",
    "install",
    "is_installed",
    "memory",
    "reset_peak",
    "reset_transfers",
    "transfers",
]

MAX_DEVICES = 120  # kMaxDevices in native/device.h
NO_LIMIT = 0  # limit_bytes in native/ledger.h


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    live_bytes: int
    peak_bytes: int
    limit_bytes: int | None


@dataclass(frozen=True)
class Transfers:
    """Copies from one place to another."""

    count: int
    bytes: int


@dataclass(frozen=True)
class _Installed:
    library: Library
    devices: int


_installed: _Installed | None = None


def __getattr__(name: str) -> object:
    if name == "CompilerMissing":  # behind torch, which importing this package should not load
        from paceline.virtual.build import CompilerMissing

        return CompilerMissing
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install(
    devices: int = 5,
    memory: str | int | None = None,
    link: str | None = None,
    as_cuda: bool = False,
) -> None:
    """Make `devices` virtual devices the accelerator of this process, for the rest of its life.

    `memory` limits each device (`"8GiB"` or bytes); beyond it an allocation raises
    `torch.OutOfMemoryError`. `link` (`"12GB/s,5us"`) makes copies take the time they would.
    `as_cuda` lets a script that says `cuda` by name run on these devices.
    Calling again may change memory and link, but not the number of devices.
    """
    global _installed
    from paceline.quantity import parse_bytes, parse_link
    from paceline.virtual import spawned

    if not 1 <= devices <= MAX_DEVICES:
        raise ValueError(f"{devices} virtual devices were asked for; there can be 1 to {MAX_DEVICES}")
    limit_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    if limit_bytes is not None and limit_bytes < 1:
        raise ValueError(
            f"a device cannot have {limit_bytes} bytes of memory; give a size such as 8GiB, or None"
        )
    bytes_per_s, latency_s = parse_link(link) if link else (0.0, 0.0)
    if _installed is None:
        _installed = _Installed(_start(devices), devices)
    elif _installed.devices != devices:
        raise ValueError(
            f"this process already has {_installed.devices} virtual devices and cannot have {devices}: "
            "PyTorch takes one such backend per process. Start another process."
        )
    library = _installed.library
    for index in range(devices):
        library.set_limit(index, limit_bytes or NO_LIMIT)
    library.set_link(bytes_per_s, latency_s)
    if as_cuda:
        from paceline.virtual import cuda_by_name

        cuda_by_name.install()
    spawned.pass_on(devices, memory, link, as_cuda)


def is_installed() -> bool:
    """Whether this process has virtual devices."""
    return _installed is not None


def memory(device: int | str | None = None) -> Memory:
    """What a device holds now, and at most since the start or the last `reset_peak`."""
    counts = _library().memory(_index_of(device))
    return Memory(counts.live_bytes, counts.peak_bytes, counts.limit_bytes or None)


def reset_peak() -> None:
    """Let every device's peak be what it holds now."""
    for index in range(_num_devices()):
        _library().reset_peak(index)


def transfers() -> dict[tuple[str, str], Transfers]:
    """Copies so far by (from, to), such as `("virtual:0", "virtual:1")` or `("cpu", "virtual:0")`.

    Pairs without a copy are left out. The bytes are those that cross: a copy that also converts
    counts in the type that a GPU would send.
    """
    places = {-1: "cpu"} | {index: f"virtual:{index}" for index in range(_num_devices())}
    found = {}
    for source, source_name in places.items():
        for destination, destination_name in places.items():
            counts = _library().transfers(source, destination)
            if counts.count:
                found[source_name, destination_name] = Transfers(counts.count, counts.bytes)
    return found


def reset_transfers() -> None:
    """Forget the copies so far."""
    _library().reset_transfers()


def _start(devices: int) -> Library:
    import torch
    from torch.utils.backend_registration import (
        generate_methods_for_privateuse1_backend,
        rename_privateuse1_backend,
    )

    from paceline.virtual import compilation, data_parallel, device_module, distributed, module_identity
    from paceline.virtual.build import build_library
    from paceline.virtual.native import Library

    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        raise ValueError(
            f"another package has registered the device {taken!r} in this process, and PyTorch takes "
            "only one such backend; start a process without it"
        )
    library = Library(build_library())
    if not library.backward_can_serve(devices):
        raise ValueError(
            "a backward pass has run in this process on another accelerator with fewer devices than "
            f"{devices}, and autograd keeps its threads; install virtual devices before it"
        )
    rename_privateuse1_backend("virtual")
    library.start(devices)
    device_module.connect(library, devices)
    torch._register_device_module("virtual", device_module)  # type: ignore[no-untyped-call]
    generate_methods_for_privateuse1_backend(for_storage=True)
    compilation.install()
    data_parallel.install()
    distributed.install()
    module_identity.install()
    # In evaluation nn.TransformerEncoder would take a path over nested tensors, which a virtual device
    # cannot hold. The ordinary path computes the same.
    torch.backends.mha.set_fastpath_enabled(False)
    # The devices start where the CPU's generator started, as CUDA's would.
    device_module.manual_seed_all(torch.initial_seed())
    return library


def _library() -> Library:
    if _installed is None:
        raise ValueError(
            "this process has no virtual devices yet; call paceline.virtual.install(devices=5) first"
        )
    return _installed.library


def _num_devices() -> int:
    return 0 if _installed is None else _installed.devices


def _index_of(device: int | str | None) -> int:
    _library()
    from paceline.virtual import device_module

    return device_module.index_of(device)
