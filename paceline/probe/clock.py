"""The step clock of one rank: writes down what happens when, and says when a step ends.

Enters: the events of hooks.py (model called, backward, optimizer …). Leaves: the times of each step,
and a call to `on_step_end` with its number. Nothing here touches a device or waits for one.

    pytest tests/unit/test_clock.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.probe.period import Period
from paceline.probe.phases import (
    BACKWARD_BEGAN,
    BACKWARD_ENDED,
    DATA,
    OPTIMIZER_BEGAN,
    STEPPED,
    Event,
    cut,
    phase_after,
)
from paceline.record import SAMPLED, TIMED, WARMUP

# The step's number and the first eleven of STEP_METRICS: what the clock itself knows.
StepTimes = tuple[int, int, float, float, float, float, float, float, float, float, float, int]


@dataclass(frozen=True)
class Window:
    """Which steps are what: warm-up first, then the timed ones, then the sampled ones."""

    warmup: int
    steps: int
    sampled: int

    @property
    def total(self) -> int:
        return self.warmup + self.steps + self.sampled

    def kind(self, step: int) -> int:
        if step < self.warmup:
            return WARMUP
        return TIMED if step < self.warmup + self.steps else SAMPLED


class StepClock:
    """Cuts the time of the training thread into steps."""

    # What hooks.py calls, and switches off in a forked child. Most append without the help of note(): once
    # a model has swept the caches, each call of Python's costs a step some microseconds.
    EVENTS = (
        "note",
        "backward_began",
        "gradients_began",
        "backward_ended",
        "optimizer_began",
        "optimizer_ended",
        "optimizer_stepped",
        "mark",
    )

    def __init__(
        self,
        window: Window,
        write_step: Callable[[StepTimes], None],
        on_step_end: Callable[[int], None] = lambda step: None,
        on_restart: Callable[[str, int], None] = lambda reason, step: None,
        marker: str = "auto",
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.window = window
        self.step = 0  # the step under way
        self.kind = window.kind(0)  # of the step under way
        self._turns = (window.warmup, window.warmup + window.steps)  # where it becomes another
        self.optimizer_calls = 0
        self.last_micro_steps = 0  # of the step that ended last
        self.in_backward = False
        self.calls_backward = False  # in this step, or in the one before
        self._write_step = write_step
        self._on_step_end = on_step_end
        self._on_restart = on_restart
        self._marker = marker
        self._now = now
        self._period = Period()
        # Ids of those under way: an optimizer may call another one (ZeRO), and only the outermost counts.
        self._optimizers: list[int] = []
        self._began_s = now()
        self._events: list[Event] = []

    @property
    def micro_steps(self) -> int:
        """Backward passes ended in the step under way."""
        return sum(event == BACKWARD_ENDED for event, _ in self._events)

    @property
    def phase(self) -> int:
        """Where the step under way stands; worked out when asked, which only sampled steps do."""
        phase = DATA
        for event, _ in self._events:
            phase = phase_after(phase, event, bool(self._optimizers))
        return phase

    def note(self, event: int) -> None:
        """Something happened now."""
        self._events.append((event, self._now()))

    def backward_began(self) -> None:
        self.in_backward = True
        if not self.calls_backward:
            self.calls_backward = True
            # What passed for one in this step were gradients on the way to it: a penalty's, an attack's.
            self._events = [e for e in self._events if e[0] not in (BACKWARD_BEGAN, BACKWARD_ENDED)]
        self._events.append((BACKWARD_BEGAN, self._now()))

    def gradients_began(self) -> None:
        """torch.autograd.grad, in a step that calls no backward otherwise."""
        self.in_backward = True
        self._events.append((BACKWARD_BEGAN, self._now()))

    def backward_ended(self) -> None:
        self.in_backward = False
        self._events.append((BACKWARD_ENDED, self._now()))

    def optimizer_began(self, optimizer: object) -> None:
        number = id(optimizer)
        # No hook tells that an optimizer raised; but it begins again when other things have happened since.
        # At once it begins again where its class hands on to the one above.
        if number in self._optimizers and self._events and self._events[-1][0] != OPTIMIZER_BEGAN:
            del self._optimizers[self._optimizers.index(number) :]
        if not self._optimizers:
            self._events.append((OPTIMIZER_BEGAN, self._now()))
        self._optimizers.append(number)

    def optimizer_ended(self, optimizer: object) -> None:
        if self._optimizers:  # those that it called and that raised go with it
            while self._optimizers.pop() != id(optimizer) and self._optimizers:
                pass
        if not self._optimizers:
            self.optimizer_stepped(optimizer)

    def optimizer_stepped(self, optimizer: object) -> None:
        """The optimizer moved, or GradScaler held it back: either ends its part of the step."""
        self.optimizer_calls += 1
        self._events.append((STEPPED, self._now()))
        if self._marker == "auto":
            ends = self._period.tick(id(optimizer))
            if self._period.revised and self.step > 0:
                calls = len(self._period)
                self._start_over(f"{calls} optimizer calls make a step, not fewer: counting starts over")
            elif ends:
                self._end_step()
        elif type(optimizer).__name__ == self._marker:
            self._end_step()

    def mark(self) -> None:
        """paceline.mark_step(): from the first mark on, marks alone end steps."""
        if self._marker == "auto":
            self._marker = "mark"
            if self.step > 0:
                self.note(STEPPED)
                self._start_over("the script marks its steps itself: counting starts over")
                return
        if self._marker == "mark":
            self.note(STEPPED)
            self._end_step()

    def _end_step(self) -> None:
        step, ended_s = self.step, self._events[-1][1]
        phases = cut(self._began_s, self._events)
        self._write_step((step, self.kind, ended_s, time.time(), ended_s - self._began_s, *phases))
        self.last_micro_steps = phases[-1]
        self.calls_backward = self.calls_backward and self.last_micro_steps > 0
        self.step = step + 1
        if self.step in self._turns:
            self.kind = self.window.kind(self.step)
        self._began_s = ended_s
        self._events.clear()
        self._on_step_end(step)

    def _start_over(self, reason: str) -> None:
        # Steps written so far were parts of steps. They are followed by a step 0, by which readers know.
        self._on_restart(reason, self.step)
        self.step = 0
        self.kind = self.window.kind(0)
        self._began_s = self._events[-1][1]
        self._events.clear()
