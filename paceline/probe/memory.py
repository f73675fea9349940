"""The exact peak of tensor memory within one step, split by what the bytes are for.

Enters: every tensor that operators make while a step is counted. Leaves: the peak and its split. What a
storage is for can only be told at the end of the step (a temporary of the backward pass may turn out to
be a gradient), so the life of each storage is written down first and the peak is computed afterwards.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from paceline.probe.phases import FORWARD

CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "buffers", "communication", "other")


@dataclass
class Life:
    """One storage: how large, and what it was taken for when first seen."""

    category: str
    bytes: int = 0


class MemoryLedger:
    """Follows every storage on one type of device for the length of a step."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._lives: dict[int, Life] = {}
        self._events: list[tuple[int, int]] = []  # (storage number, change in bytes), in order
        self._numbers: dict[int, int] = {}  # address of the C++ storage → number, while it lives
        self._guards: dict[int, weakref.ref[Any]] = {}
        self._num_at_start = 0
        self._resize = torch.UntypedStorage.resize_

    def start(self, known: dict[str, list[torch.Tensor]]) -> None:
        """Write down all that is alive: what `known` names, then what else the interpreter holds."""
        for category, tensors in known.items():
            for tensor in tensors:
                self.see(tensor, category)
        for thing in gc.get_objects():
            # Asking the type, not the object, wakes no lazy proxy.
            if issubclass(type(thing), torch.Tensor):
                self.see(thing, "other")
        self._num_at_start = len(self._events)
        ledger, resize = self, self._resize

        def noted_resize(storage: torch.UntypedStorage, size: int) -> Any:
            # FSDP frees and refills its gathered parameters this way, past the dispatcher.
            result = resize(storage, size)
            ledger._resized(storage)
            return result

        torch.UntypedStorage.resize_ = noted_resize  # type: ignore[method-assign, assignment]

    def stop(self) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        self._guards.clear()

    def made(self, tensor: torch.Tensor, phase: int) -> None:
        """An operator returned this tensor during `phase`."""
        self.see(tensor, "activations" if phase == FORWARD else "other")

    def used(self, tensor: torch.Tensor) -> None:
        """An operator reads or writes it: if it is new here, only C++ held it (DDP's buckets) all along."""
        self.see(tensor, "other", from_the_start=True)

    def passed_to_collective(self, tensor: torch.Tensor) -> None:
        """A buffer that is sent, unless it turns out to be a gradient or a parameter itself."""
        number = self._number_of(tensor)
        if number is not None and self._lives[number].category in ("other", "activations"):
            self._lives[number].category = "communication"

    def settle(self, known: dict[str, list[torch.Tensor]]) -> None:
        """At the step's end: what these storages were for, whatever they looked like when made."""
        for category, tensors in known.items():
            for tensor in tensors:
                number = self._number_of(tensor)
                if number is not None:
                    self._lives[number].category = category

    def see(self, tensor: torch.Tensor, category: str, from_the_start: bool = False) -> None:
        storage = self._storage_of(tensor)
        if storage is None or storage._cdata in self._numbers:
            return
        number = len(self._lives)
        address = storage._cdata
        self._lives[number] = Life(category, storage.nbytes())
        self._numbers[address] = number
        self._guards[number] = weakref.ref(storage, lambda _: self._freed(address, number))
        event = (number, storage.nbytes())
        if from_the_start:
            self._events.insert(self._num_at_start, event)
            self._num_at_start += 1
        else:
            self._events.append(event)

    def report(self) -> dict[str, Any]:
        """The peak, its split at that moment, and the split when the step began."""
        live = dict.fromkeys(CATEGORIES, 0)
        total = peak = 0
        at_start, at_peak = dict(live), dict(live)
        for index, (number, change) in enumerate(self._events):
            live[self._lives[number].category] += change
            total += change
            if index < self._num_at_start:
                at_start = dict(live)
            if total > peak:
                peak, at_peak = total, dict(live)
        return {"peak_bytes": peak, "at_peak": at_peak, "start_of_step": at_start}

    def _freed(self, address: int, number: int) -> None:
        if self._numbers.get(address) == number:
            del self._numbers[address]
            self._events.append((number, -self._lives[number].bytes))

    def _resized(self, storage: torch.UntypedStorage) -> None:
        number = self._numbers.get(storage._cdata)
        if number is not None:
            life = self._lives[number]
            self._events.append((number, storage.nbytes() - life.bytes))
            life.bytes = storage.nbytes()

    def _number_of(self, tensor: torch.Tensor) -> int | None:
        storage = self._storage_of(tensor)
        return None if storage is None else self._numbers.get(storage._cdata)

    def _storage_of(self, tensor: torch.Tensor) -> torch.UntypedStorage | None:
        tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, this rank's shard
        if tensor.device.type != self._device_type or tensor.layout != torch.strided:
            return None
        try:
            return tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None  # a wrapper without storage of its own
