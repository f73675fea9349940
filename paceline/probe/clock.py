"""The step clock of one rank: when steps end, and which phase each moment of a step belongs to.

Enters: the calls of hooks.py (model called, backward, optimizer …). Leaves: the times of each step,
and a call to `on_step_end` with its number. Nothing here touches a device or waits for one.

    pytest tests/unit/test_clock.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from paceline.probe.period import Period
from paceline.record import SAMPLED, TIMED, WARMUP

# Phases as they happen. AFTER (between a backward and what follows it) is told apart only by what
# follows: the next micro-batch makes it data, the optimizer makes it other.
DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = "data_s", "forward_s", "backward_s", "optimizer_s", "other_s"
AFTER = "after"
PHASES = (DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER)

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
    """Cuts the time of the training thread into steps and phases."""

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
        self.phase = DATA
        self.optimizer_calls = 0
        self.micro_steps = 0
        self.last_micro_steps = 0  # of the step that ended last
        self._write_step = write_step
        self._on_step_end = on_step_end
        self._on_restart = on_restart
        self._marker = marker
        self._now = now
        self._period = Period()
        self._optimizer_depth = 0  # an optimizer may call another one (ZeRO): only the outermost counts
        self._phase_began_s = self._step_began_s = now()
        self._spent_s = dict.fromkeys(PHASES, 0.0)
        self._dataloader_s = 0.0

    @property
    def kind(self) -> int:
        return self.window.kind(self.step)

    # The script's calls, in the order in which a step makes them.

    def dataloader_began(self) -> None:
        if self.phase in (FORWARD, AFTER):  # FORWARD: a validation pass that no backward ended
            self._enter(DATA)

    def dataloader_ended(self, seconds: float) -> None:
        self._dataloader_s += seconds

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
            left = DATA if phase in (FORWARD, DATA) else OTHER
        self._spent_s[left] += now_s - self._phase_began_s
        self.phase, self._phase_began_s = phase, now_s

    def _end_step(self) -> None:
        ended_s = self._phase_began_s  # _enter(DATA) has just read the clock
        step = self.step
        spent_s = self._spent_s
        self._write_step(
            (
                step,
                self.kind,
                ended_s,
                time.time(),
                ended_s - self._step_began_s,
                spent_s[DATA],
                self._dataloader_s,
                spent_s[FORWARD],
                spent_s[BACKWARD],
                spent_s[OPTIMIZER],
                spent_s[OTHER],
                self.micro_steps,
            )
        )
        self.step += 1
        self._begin_step(ended_s)
        self._on_step_end(step)

    def _begin_step(self, now_s: float) -> None:
        self._step_began_s = now_s
        self.last_micro_steps, self.micro_steps = self.micro_steps, 0
        self._spent_s = dict.fromkeys(PHASES, 0.0)
        self._dataloader_s = 0.0

    def _start_over(self, reason: str) -> None:
        # Steps written so far were parts of steps. They are followed by a step 0, by which readers know.
        self._on_restart(reason, self.step)
        self.step = 0
        self._begin_step(self._phase_began_s)
