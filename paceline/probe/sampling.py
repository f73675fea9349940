"""What happens at each step's end: nothing while steps are timed, the heavy instruments afterwards.

Enters: the number of the step that ended. Leaves: late values, then the facts of the sampled steps, then
the end of the script (unless it is to run to its own). The first sampled step is counted (counting.py),
the others are profiled (timeline.py); the profiler comes last because stopping it beside a gloo thread
has crashed processes.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from paceline.probe.clock import StepClock, Window
from paceline.probe.counting import Counting
from paceline.probe.device_clock import DeviceClock
from paceline.probe.gloo_threads import lower_gloo_threads
from paceline.probe.health import Health, gradient_norm
from paceline.probe.hooks import Roots
from paceline.probe.host import Host
from paceline.probe.sink import Sink
from paceline.probe.timeline import Timeline
from paceline.record import LINE_NOTE, LINE_SAMPLE, LINE_START, SAMPLED
from paceline.step_file import StepFile

QUIET_BEFORE_STOP_S = (
    0.03  # gloo's threads finish their last records; without it the profiler's stop can crash
)


class Sampling:
    """The script of a rank's measurement, told by step ends."""

    def __init__(
        self,
        window: Window,
        sink: Sink,
        steps: StepFile,
        health: Health,
        host: Host,
        roots: Roots,
        *,
        lower_gloo: bool,
        wait_for_ranks: Callable[[str], None],
        on_done: Callable[[], None],
    ) -> None:
        self._window = window
        # A timed step that is followed by another timed one: numbers, since a step's end asks each time.
        self._first_timed, self._last_timed = window.warmup, window.warmup + window.steps - 1
        self._sink = sink
        self._steps = steps
        self._health = health
        self._host = host
        self._roots = roots
        self._lower_gloo = lower_gloo
        self._wait_for_ranks = wait_for_ranks
        self._on_done = on_done
        self._device_clock: DeviceClock | None = None
        self._counting: Counting | None = None
        self._timeline: Timeline | None = None
        self._norms: list[float] = []
        self._communication: dict[str, Any] = {}
        self.clock: StepClock

    def step_ended(self, step: int) -> None:
        """Called by the step clock, after the step's line is written."""
        if self._first_timed <= step < self._last_timed and self._device_clock is None:
            return  # a timed step pays for nothing here
        window = self._window
        if step < window.warmup:
            self._prepare(step)
        if self._device_clock is not None and step < window.warmup + window.steps:
            self._device_clock.mark(self._steps.num_rows - 1)
        if window.kind(step) == SAMPLED and step < window.total:
            self._sampled_step_ended()
        if step == window.warmup + window.steps - 1:
            self.read_late_values()
            self._norms.append(gradient_norm(self._roots.parameters()))
        if step == window.total - 1:
            self.read_late_values()
            self._stop_sampling()
            self._on_done()
        elif window.warmup + window.steps - 1 <= step < window.total - 1:
            self._start_next_sample()

    def read_late_values(self) -> None:
        """Everything that waited on the device; also called when the script ends early."""
        if self._device_clock is not None:
            for row, step_time_s in self._device_clock.read_step_times():
                self._steps.fill(row, "step_time_s", step_time_s)
            self._device_clock = None
        self._health.read_into(self._steps)
        self._host.read_into(self._steps, time.perf_counter())

    def script_ended(self) -> None:
        """The script came to its own end: keep what there is, and say what is missing."""
        self.read_late_values()
        done = self.clock.step
        if self._counting is not None:
            self._counting.stop()
            self._counting = None
        if self._timeline is not None and not self._timeline.has_steps:
            self._timeline = None
        if done < self._window.total and self._window.sampled:
            self._stop_sampling()
            text = f"the script ended after {done} steps; {self._window.total} are needed for all samples"
            self._sink.write(LINE_NOTE, code="no_samples", text=text)

    def _prepare(self, step: int) -> None:
        if self._lower_gloo:
            lower_gloo_threads()
        if step > 0:
            return
        device = self.device()
        self._sink.write(LINE_START, device=device.type)  # a script may leave accelerators alone
        if device.type != "cpu":
            try:
                self._device_clock = DeviceClock(device)
            except RuntimeError as error:
                text = f"steps have the host's times: {device.type} cannot time its own events ({error})"
                self._sink.write(LINE_NOTE, code="host_times", text=text)

    def device(self) -> torch.device:
        """Where the model lives, the first part of it: asked when the first step is over."""
        for parameter in self._roots.parameters():
            return parameter.device
        return torch.device("cpu")

    def _start_next_sample(self) -> None:
        if self._counting is None and self._timeline is None and not self._communication:
            self._counting = Counting(self.clock, self._roots, self.device())
            self._counting.start()
        elif self._timeline is None:
            self._timeline = Timeline(self.device().type)
            self._timeline.start()

    def _sampled_step_ended(self) -> None:
        if self._counting is not None:
            self._counting.stop()
            facts = self._counting.facts()
            self._counting = None
            facts["communication"]["micro_steps"] = self.clock.last_micro_steps
            self._communication = facts["communication"]
            self._norms.append(gradient_norm(self._roots.parameters()))
            for fact, data in facts.items():
                self._sink.write(LINE_SAMPLE, fact=fact, data=data)
        elif self._timeline is not None:
            self._timeline.step_ended()

    def _stop_sampling(self) -> None:
        if self._norms:
            finite = [norm for norm in self._norms if math.isfinite(norm)]
            data = {"norms": finite, "nonfinite": len(self._norms) - len(finite)}
            self._sink.write(LINE_SAMPLE, fact="gradients", data=data)
        if self._timeline is not None:
            self._wait_for_ranks("sampled")
            time.sleep(QUIET_BEFORE_STOP_S)
            facts = self._timeline.stop()
            facts["communication"] |= self._communication
            for fact, data in facts.items():
                self._sink.write(LINE_SAMPLE, fact=fact, data=data)
