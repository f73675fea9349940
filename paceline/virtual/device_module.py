"""`torch.virtual`: what `torch.cuda` is for CUDA, for the virtual devices.

Enters: a device as an index, a name, a `torch.device` or None for the current one.
Leaves: memory figures, streams, events, generators' states.
Exercise: `pytest tests/virtual`
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from paceline.virtual.native import Library

DeviceLike = int | str | torch.device | None

_library: Library
_num_devices = 0

# torch.utils.checkpoint saves the generators' states of devices that say this.
_initialized = True


def connect(library: Library, num_devices: int) -> None:
    """Give this module the library that it speaks for."""
    global _library, _num_devices
    _library, _num_devices = library, num_devices


def index_of(device: DeviceLike = None) -> int:
    """The index that a device argument means; a bad one raises what PyTorch raises."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        index: int | None = device
    else:
        named = torch.device(device)
        if named.type != "virtual":
            raise ValueError(f"Expected a virtual device, but got: {named}")
        index = named.index
    if index is None:
        return current_device()
    if not 0 <= index < _num_devices:
        raise torch.AcceleratorError(
            f"virtual error: invalid device ordinal: there is no virtual:{index}, "
            f"this process has {_num_devices} virtual devices (0 to {_num_devices - 1})"
        )
    return index


# ---- devices ----------------------------------------------------------------------------------


def device_count() -> int:
    return _num_devices


def is_available() -> bool:
    return _num_devices > 0


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing is lazy here; programs that call `torch.cuda.init()` by its generic name may."""


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    return _library.is_in_bad_fork()


def current_device() -> int:
    return _library.current_device()


def set_device(device: DeviceLike) -> None:
    torch.accelerator.set_device_index(index_of(device))


class device:
    """Makes a device current inside a `with`."""

    def __init__(self, device: DeviceLike) -> None:
        negative = isinstance(device, int) and device < 0  # as for CUDA: no device, no change
        self.index = None if device is None or negative else index_of(device)
        self._before = -1

    def __enter__(self) -> None:
        self._before = current_device()
        if self.index is not None:
            torch.accelerator.set_device_index(self.index)

    def __exit__(self, *raised: object) -> None:
        torch.accelerator.set_device_index(self._before)


class device_of(device):
    """Makes the device of a tensor current, if the tensor is on a virtual device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "virtual" else None)


def synchronize(device: DeviceLike = None) -> None:
    torch.accelerator.synchronize(index_of(device))


@dataclass(frozen=True)
class DeviceProperties:
    """What a device says of itself. All are alike, since all are this machine's CPU."""

    name: str
    total_memory: int
    multi_processor_count: int
    major: int = 0
    minor: int = 0


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    return DeviceProperties(get_device_name(device), mem_get_info(device)[1], torch.get_num_threads())


def get_device_name(device: DeviceLike = None) -> str:
    return f"virtual device {index_of(device)} in CPU memory"


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    index_of(device)
    return (0, 0)


def can_device_access_peer(device: DeviceLike, peer: DeviceLike) -> bool:
    return index_of(device) != index_of(peer)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


# ---- streams and events -----------------------------------------------------------------------


class Stream(torch.Stream):
    """A stream of a virtual device."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **named: Any) -> Stream:
        if "stream_id" in named:
            return super().__new__(cls, priority=priority, **named)
        place = torch.device("virtual", index_of(device))
        return super().__new__(cls, device=place, priority=priority)


class Event:
    """An event of a virtual device; timing is on by request, as for CUDA.

    The object is a plain `torch.Event`: PyTorch measures no time between objects of subclasses.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        return torch.Event(device="virtual", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: DeviceLike = None) -> torch.Stream:
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device: DeviceLike = None) -> torch.Stream:
    place = torch.device("virtual", index_of(device))
    return torch.Stream(stream_id=0, device_index=place.index, device_type=current_stream(place).device_type)


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


class StreamContext:
    """Makes a stream current inside a `with`; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, error, traceback)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


# ---- random numbers ---------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    _library.seed(current_device(), int(seed))


def manual_seed_all(seed: int) -> None:
    for index in range(_num_devices):
        _library.seed(index, int(seed))


def seed() -> None:
    manual_seed(torch.Generator(device="cpu").seed())


def seed_all() -> None:
    manual_seed_all(torch.Generator(device="cpu").seed())


def initial_seed() -> int:
    return _library.initial_seed(current_device())


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    return _library.rng_state(index_of(device))


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = None) -> None:
    _library.set_rng_state(index_of(device), new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(_num_devices)]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


# ---- memory -----------------------------------------------------------------------------------


def memory_allocated(device: DeviceLike = None) -> int:
    return int(_library.memory(index_of(device)).live_bytes)


def max_memory_allocated(device: DeviceLike = None) -> int:
    return int(_library.memory(index_of(device)).peak_bytes)


# Nothing is cached, so what is reserved is what is allocated.
memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    _library.reset_peak(index_of(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    torch.accelerator.reset_accumulated_memory_stats(index_of(device))


def memory_stats(device: DeviceLike = None) -> collections.OrderedDict[str, Any]:
    return torch.accelerator.memory_stats(index_of(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes; without a limit, the total is the machine's memory."""
    counts = _library.memory(index_of(device))
    total = counts.limit_bytes or _machine_memory_bytes()
    return max(0, total - counts.live_bytes), total


def empty_cache() -> None:
    """Nothing is cached."""


def _machine_memory_bytes() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
