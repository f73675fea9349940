"""Counts one step exactly: collectives, matrix precision and memory, from the operators themselves.

Enters: every operator of a sampled step, through a dispatch mode. Leaves: the facts "communication"
(calls and bytes), "precision" and "memory". It slows the step down, so it runs only after the timed
ones.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils.flop_counter import flop_registry

from paceline.probe.batch import BatchCounter
from paceline.probe.clock import StepClock
from paceline.probe.collectives import Collective, flatten, read_collective
from paceline.probe.devices import DeviceLedger
from paceline.probe.hooks import Roots
from paceline.probe.host import resident_bytes
from paceline.probe.memory import MemoryLedger
from paceline.probe.phases import BACKWARD


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Switched on at a step's boundary and off at the next."""

    def __init__(self, clock: StepClock, roots: Roots, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._roots = roots
        self._device = device
        self._ledger = MemoryLedger(device.type)
        self._devices = DeviceLedger(device.type)
        self._batch = BatchCounter()
        self._collectives: list[Collective] = []
        self._micro_steps_with_collectives: set[int] = set()
        self._flops: dict[str, float] = defaultdict(float)

    def start(self) -> None:
        self._ledger.start(self._known_tensors())
        self._devices.start()
        self._roots.on_call = self._batch.called
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._roots.on_call = None
        self._ledger.settle(self._known_tensors())
        self._ledger.stop()

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            return NotImplemented  # a DTensor: its local operators come by next
        inputs = flatten([*args, *(kwargs or {}).values()])
        for tensor in inputs:
            self._ledger.used(tensor)
        phase = self._clock.phase
        self._devices.phase_is(phase)
        began_s = time.perf_counter()
        result = operator(*args, **(kwargs or {}))
        ended_s = time.perf_counter()
        collective = read_collective(operator, args, result)
        if collective is not None:
            self._count_collective(collective)
        else:
            self._count_matrix_flops(operator, args, kwargs or {}, result)
        results = flatten(result)
        for tensor in results:
            self._ledger.made(tensor, phase)
        self._devices.operator_done(inputs, results, began_s, ended_s)
        return result

    def facts(self) -> dict[str, dict[str, Any]]:
        """The finished counts of the one step, by name in record.FACTS."""
        resident, resident_peak = resident_bytes()
        memory = self._ledger.report()
        memory.update(
            resident_bytes=resident,
            resident_peak_bytes=resident_peak,
            device_peak_bytes=_device_peak_bytes(self._device),
        )
        facts = {
            "communication": self._communication(),
            "precision": {"matmul_flops": dict(self._flops)},
            "memory": memory,
        }
        only_at_times = {"devices": self._devices.report(), "batch": self._batch.fact()}
        return facts | {name: fact for name, fact in only_at_times.items() if fact is not None}

    def _count_collective(self, collective: Collective) -> None:
        self._collectives.append(collective)
        if self._clock.phase == BACKWARD:
            self._micro_steps_with_collectives.add(self._clock.micro_steps)
        for tensor in collective.tensors:
            self._ledger.passed_to_collective(tensor)

    def _count_matrix_flops(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        formula = flop_registry.get(operator.overloadpacket)
        operands = flatten(args)
        if formula is not None and operands:
            precision = str(operands[-1].dtype).removeprefix("torch.")
            self._flops[precision] += formula(*args, **kwargs, out_val=result)
            self._devices.matrix_product_done()

    def _communication(self) -> dict[str, Any]:
        by_kind: dict[str, dict[str, int]] = defaultdict(lambda: {"calls": 0, "bytes": 0})
        for collective in self._collectives:
            by_kind[collective.kind]["calls"] += 1
            by_kind[collective.kind]["bytes"] += collective.bytes
        return {
            "calls": len(self._collectives),
            "bytes": sum(c.bytes for c in self._collectives),
            "bus_bytes": sum(c.bus_bytes for c in self._collectives),
            "by_kind": dict(by_kind),
            "synchronising_micro_steps": len(self._micro_steps_with_collectives),
            "backend": _backend(),
        }

    def _known_tensors(self) -> dict[str, list[torch.Tensor]]:
        parameters = self._roots.parameters()
        states = [
            tensor
            for optimizer in self._roots.optimizers
            for state in optimizer.state.values()
            for tensor in (state.values() if isinstance(state, dict) else ())
            if isinstance(tensor, torch.Tensor)
        ]
        return {
            "buffers": self._roots.buffers(),
            "optimizer": states,
            "gradients": [p.grad for p in parameters if p.grad is not None],
            "parameters": parameters,
        }


def _device_peak_bytes(device: torch.device) -> int | None:
    """The allocator's own peak since the process began, where an accelerator has one that counts."""
    if device.type == "cpu":
        return None
    try:
        return int(torch.accelerator.max_memory_allocated(device)) or None
    except RuntimeError:  # as on Apple's mps
        return None


def _backend() -> str | None:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_backend())
    return None
