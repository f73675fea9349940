"""The C++ library, as typed Python functions.

Enters: a built library. Leaves: counters, generators' states, the link. Devices are plain integers.
Exercise: `pytest tests/virtual`
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

HOST = -1  # the endpoint of a transfer that is no virtual device


class MemoryCounts(ctypes.Structure):
    """The layout of `MemoryCounts` in native/ledger.h."""

    _fields_ = (
        ("live_bytes", ctypes.c_int64),
        ("peak_bytes", ctypes.c_int64),
        ("limit_bytes", ctypes.c_int64),
        ("num_allocations", ctypes.c_int64),
        ("allocated_bytes", ctypes.c_int64),
        ("num_refused", ctypes.c_int64),
    )


class TransferCounts(ctypes.Structure):
    """The layout of `TransferCounts` in native/ledger.h."""

    _fields_ = (("count", ctypes.c_int64), ("bytes", ctypes.c_int64))


class Library:
    """One loaded library; `start` makes its devices the accelerator of this process for good."""

    def __init__(self, path: Path) -> None:
        self._c = ctypes.CDLL(str(path))
        self._c.paceline_initial_seed.restype = ctypes.c_uint64
        self._c.paceline_rng_state_bytes.restype = ctypes.c_int64
        self._c.paceline_set_rng_state.restype = ctypes.c_char_p
        self._c.paceline_is_in_bad_fork.restype = ctypes.c_bool
        self._c.paceline_backward_can_serve.restype = ctypes.c_bool

    def start(self, num_devices: int) -> None:
        self._c.paceline_start(num_devices)

    def backward_can_serve(self, num_devices: int) -> bool:
        return bool(self._c.paceline_backward_can_serve(num_devices))

    def current_device(self) -> int:
        return int(self._c.paceline_current_device())

    def is_in_bad_fork(self) -> bool:
        return bool(self._c.paceline_is_in_bad_fork())

    def set_limit(self, device: int, limit_bytes: int) -> None:
        self._c.paceline_set_limit(device, ctypes.c_int64(limit_bytes))

    def set_link(self, bytes_per_s: float, latency_s: float) -> None:
        self._c.paceline_set_link(ctypes.c_double(bytes_per_s), ctypes.c_double(latency_s))

    def memory(self, device: int) -> MemoryCounts:
        counts = MemoryCounts()
        self._c.paceline_memory(device, ctypes.byref(counts))
        return counts

    def reset_peak(self, device: int) -> None:
        self._c.paceline_reset_peak(device)

    def transfers(self, source: int, destination: int) -> TransferCounts:
        counts = TransferCounts()
        self._c.paceline_transfers(source, destination, ctypes.byref(counts))
        return counts

    def reset_transfers(self) -> None:
        self._c.paceline_reset_transfers()

    def seed(self, device: int, seed: int) -> None:
        self._c.paceline_seed(device, ctypes.c_uint64(seed & (2**64 - 1)))

    def initial_seed(self, device: int) -> int:
        return int(self._c.paceline_initial_seed(device))

    def rng_state(self, device: int) -> torch.Tensor:
        state = torch.empty(self._c.paceline_rng_state_bytes(), dtype=torch.uint8, device="cpu")
        self._c.paceline_get_rng_state(device, ctypes.c_void_p(state.data_ptr()))
        return state

    def set_rng_state(self, device: int, state: torch.Tensor) -> None:
        if state.dtype != torch.uint8:
            raise TypeError(f"RNG state must be a torch.ByteTensor, not one of {state.dtype}")
        plain = state.cpu().contiguous()
        problem = self._c.paceline_set_rng_state(
            device, ctypes.c_void_p(plain.data_ptr()), ctypes.c_int64(plain.numel())
        )
        if problem is not None:
            raise RuntimeError(problem.decode())
