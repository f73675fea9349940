"""What each device of one process held, did and passed on during a counted step.

Enters: the operators of the step, and on virtual devices their own counters. Leaves: the fact "devices",
where a process has more than one: peak bytes, copies from device to device in a step and in its forward
pass, and when each was at work.

    pytest tests/virtual/test_probe.py
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

import torch

from paceline.probe.phases import BACKWARD
from paceline.probe.spans import TOUCHING_S, Span, close_gaps, merge

# Frames of PyTorch and of the probe stand between the script's line and the operator that it calls.
NOT_THE_SCRIPT = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, __file__))

Copies = dict[tuple[str, str], tuple[int, int]]  # (from, to) → (count, bytes)


class DeviceLedger:
    """Follows the devices of one kind, for the length of a step."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._seen_copies: Copies = {}
        self._at_start: Copies = {}
        self._at_backward: Copies | None = None
        self._moves: list[dict[str, Any]] = []
        self._matrix_products = 0
        self._busy: dict[int, list[Span]] = {}
        self._lock = threading.Lock()  # autograd works on one thread per device

    def start(self) -> None:
        self._at_start = self._copies()

    def operator_done(
        self, inputs: list[torch.Tensor], results: list[torch.Tensor], began_s: float, ended_s: float
    ) -> None:
        """One operator ran; where its result lives on another device than its input, data moved."""
        with self._lock:
            for result in results:
                if result.device.type == self._device_type:
                    self._busy.setdefault(result.device.index or 0, []).append((began_s, ended_s))
                    break
            for result in results:
                self._notice_copy(inputs, result)

    def matrix_product_done(self) -> None:
        self._matrix_products += 1

    def phase_is(self, phase: int) -> None:
        """Keeps the copies of the forward pass apart: called before every operator."""
        if phase == BACKWARD and self._at_backward is None:
            self._at_backward = self._copies()

    def report(self) -> dict[str, Any] | None:
        """None where there is only one device: the other facts say all of it."""
        num_devices = torch.accelerator.device_count() if self._device_type != "cpu" else 0
        if num_devices < 2:
            return None
        in_step = _difference(self._copies(), self._at_start)
        in_forward = _difference(self._at_backward or self._copies(), self._at_start)
        virtual = _virtual()
        return {
            "device_type": self._device_type,
            "counted_by": "device" if virtual else "operators",
            "peak_bytes": [int(torch.accelerator.max_memory_allocated(i)) for i in range(num_devices)],
            "transfers": in_step,
            "forward_transfers": in_forward,
            "forward_moves": self._moves,
            # The host's times are the device's own only where a device works while the host waits; of other
            # devices the profiled steps tell (timeline.py).
            "busy": {at: close_gaps(merge(spans), TOUCHING_S) for at, spans in self._busy.items()}
            if virtual
            else {},
        }

    def _copies(self) -> Copies:
        virtual = _virtual()
        if virtual is None:
            return dict(self._seen_copies)
        return {pair: (copies.count, copies.bytes) for pair, copies in virtual.transfers().items()}

    def _notice_copy(self, inputs: list[torch.Tensor], result: torch.Tensor) -> None:
        sources = {tensor.device for tensor in inputs if tensor.numel() == result.numel()} - {result.device}
        if len(sources) != 1:
            return
        source = sources.pop()
        pair = (str(source), str(result.device))
        count, size = self._seen_copies.get(pair, (0, 0))
        self._seen_copies[pair] = (count + 1, size + result.numel() * result.element_size())
        if self._at_backward is None and source.type == result.device.type == self._device_type:
            self._moves.append(
                {
                    "from": pair[0],
                    "to": pair[1],
                    "after_products": self._matrix_products,
                    "at": _script_line(),
                }
            )


def _script_line() -> str | None:
    """`train.py:47`, the innermost line that is running in this thread and not PyTorch's or the probe's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(NOT_THE_SCRIPT):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else None


def _virtual() -> Any:
    """The virtual devices of this process, without importing them where there are none."""
    module = sys.modules.get("paceline.virtual")
    return module if module is not None and module.is_installed() else None


def _difference(after: Copies, before: Copies) -> list[dict[str, Any]]:
    rows = []
    for (source, destination), (count, size) in sorted(after.items()):
        count_before, size_before = before.get((source, destination), (0, 0))
        if count > count_before:
            rows.append(
                {
                    "from": source,
                    "to": destination,
                    "count": count - count_before,
                    "bytes": size - size_before,
                }
            )
    return rows
