"""Step times of an asynchronous device, from its own events.

Enters: a mark at each step's end. Leaves: seconds between marks, read after the timed steps. Recording
an event waits for nothing; on a CPU there is nothing asynchronous and the host's clock is the truth.

    pytest tests/virtual
"""

from __future__ import annotations

import torch


class DeviceClock:
    """Events on the current stream of the model's device, which need not be the current device.

    RuntimeError where a device has no events with times, as some backends of torch.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[tuple[int, torch.Event]] = []  # (row of the step that ended, its event)
        # A device that cannot do this says so here, in the warm-up, and not when the steps are measured.
        self.mark(0)
        self.mark(0)
        self.read_step_times()

    def mark(self, row: int) -> None:
        event = torch.Event(device=self._device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self._device))
        self._events.append((row, event))

    def read_step_times(self) -> list[tuple[int, float]]:
        """Waits for the device, then gives (row, seconds) for every row after the first mark."""
        torch.accelerator.synchronize(self._device)
        pairs = zip(self._events, self._events[1:], strict=False)
        times = [(row, before.elapsed_time(event) / 1000) for (_, before), (row, event) in pairs]
        self._events.clear()
        return times
