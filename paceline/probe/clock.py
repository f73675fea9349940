"""The step clock of one rank: when steps end, and which phase each moment of a step belongs to.

Enters: the calls of hooks.py (model called, backward, optimizer …). Leaves: one line per step, and a
call to `on_step_end` with the number of the step that ended. Nothing here touches a device or waits for
one.

    pytest tests/unit/test_clock.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.probe.period import Period
from paceline.probe.sink import Sink, known
from paceline.record import LINE_NOTE, LINE_STEP, SAMPLED, TIMED, WARMUP

# Phases as they happen. AFTER (between a backward and what follows it) is told apart only by what
# follows: the next micro-batch makes it data, the optimizer makes it other.
DATA, FORWARD, BACKWARD, OPTIMIZER, AFTER = "data_s", "forward_s", "backward_s", "optimizer_s", "after"


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
    """Cuts the time of the training thread into steps and phases."""

    def __init__(
        self,
        window: Window,
        sink: Sink,
        marker: str = "auto",
        extra_values: Callable[[float], dict[str, float | None]] = lambda now_s: {},
        on_step_end: Callable[[int], None] = lambda step: None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.window = window
        self.step = 0  # the step under way
        self.phase = DATA
        self.optimizer_calls = 0
        self.micro_steps = 0
        self.last_micro_steps = 0  # of the step that ended last
        self._sink = sink
        self._marker = marker
        self._extra_values = extra_values
        self._on_step_end = on_step_end
        self._now = now
        self._period = Period()
        self._optimizer_depth = 0  # an optimizer may call another one (ZeRO): only the outermost counts
        self._phase_began_s = self._step_began_s = now()
        self._spent_s = dict.fromkeys((DATA, FORWARD, BACKWARD, OPTIMIZER, "other_s", "dataloader_s"), 0.0)

    @property
    def kind(self) -> int:
        return self.window.kind(self.step)

    # The script's calls, in the order in which a step makes them.

    def dataloader_began(self) -> None:
        if self.phase in (FORWARD, AFTER):  # FORWARD: a validation pass that no backward ended
            self._enter(DATA)

    def dataloader_ended(self, seconds: float) -> None:
        self._spent_s["dataloader_s"] += seconds

    def model_called(self) -> None:
        if self.phase in (DATA, AFTER, OPTIMIZER):
            self._enter(FORWARD)

    def backward_began(self) -> None:
        self._enter(BACKWARD)

    def backward_ended(self) -> None:
        self.micro_steps += 1
        self._enter(
            OPTIMIZER if self._optimizer_depth else AFTER
        )  # with a closure, backward runs inside step()

    def optimizer_began(self) -> None:
        self._optimizer_depth += 1
        if self._optimizer_depth == 1:
            self._enter(OPTIMIZER)

    def optimizer_ended(self, optimizer: object) -> None:
        self._optimizer_depth = max(0, self._optimizer_depth - 1)
        if self._optimizer_depth == 0:
            self.optimizer_stepped(optimizer)

    def optimizer_stepped(self, optimizer: object) -> None:
        """The optimizer moved, or GradScaler held it back: either ends its part of the step."""
        self.optimizer_calls += 1
        self._enter(DATA)
        if self._marker == "mark":
            return
        if self._marker != "auto":
            if type(optimizer).__name__ == self._marker:
                self._end_step()
            return
        ends = self._period.tick(id(optimizer))
        if self._period.revised and self.step > 0:
            self._start_over(
                f"{len(self._period)} optimizer calls make a step, not fewer: counting starts over"
            )
        elif ends:
            self._end_step()

    def mark(self) -> None:
        """paceline.mark_step(): from the first mark on, marks alone end steps."""
        if self._marker not in ("mark", "auto"):
            return
        if self._marker == "auto":
            self._marker = "mark"
            if self.step > 0:
                self._start_over("the script marks its steps itself: counting starts over")
                return
        self._enter(DATA)
        self._end_step()

    # The clock itself.

    def _enter(self, phase: str) -> None:
        now_s = self._now()
        left = self.phase
        if left == AFTER:
            left = DATA if phase in (FORWARD, DATA) else "other_s"
        self._spent_s[left] += now_s - self._phase_began_s
        self.phase, self._phase_began_s = phase, now_s

    def _end_step(self) -> None:
        ended_s = self._phase_began_s  # _enter(DATA) has just read the clock
        step = self.step
        self._sink.write(
            LINE_STEP,
            step=step,
            kind=self.kind,
            end_s=ended_s,
            wall_s=time.time(),
            step_time_s=ended_s - self._step_began_s,
            micro_steps=self.micro_steps,
            **self._spent_s,
            **known(self._extra_values(ended_s)),
        )
        self.step += 1
        self._begin_step(ended_s)
        self._on_step_end(step)

    def _begin_step(self, now_s: float) -> None:
        self._step_began_s = now_s
        self.last_micro_steps, self.micro_steps = self.micro_steps, 0
        for phase in self._spent_s:
            self._spent_s[phase] = 0.0

    def _start_over(self, reason: str) -> None:
        # Steps written so far were parts of steps: the launcher drops them when it reads this note.
        self._sink.write(LINE_NOTE, code="steps_restart", text=reason, step=self.step)
        self.step = 0
        self._begin_step(self._phase_began_s)
