"""Puts the probe together: what watches one rank while its script trains.

Enters: the launcher's spec. Leaves: this rank's JSON lines (see record.py) and its steps. worker.py calls
`attach` when the script has imported torch.

    pytest tests/gloo/test_truth.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from paceline.probe.clock import StepClock, StepTimes, Window
from paceline.probe.health import Health
from paceline.probe.hooks import Roots, install, listen_no_more
from paceline.probe.host import Host
from paceline.probe.sampling import Sampling
from paceline.probe.sink import Sink
from paceline.record import LINE_NOTE
from paceline.step_file import StepFile

# How often counters and losses are read: a rank that is killed loses so much of them, and no step time.
READING_INTERVAL_S = 0.2


def attach(
    spec: dict[str, Any],
    sink: Sink,
    own_cores: list[int],
    wait_for_ranks: Callable[[str], None],
    on_done: Callable[[], None],
) -> Sampling:
    """Watch the script that is about to run in this process."""
    window = Window(spec["warmup"], spec["steps"], spec["sampled"])
    steps = StepFile(sink.path.with_suffix(".steps"))
    health, roots, host = Health(), Roots(), Host(own_cores)
    sampling = Sampling(
        window,
        sink,
        steps,
        health,
        host,
        roots,
        lower_gloo=spec["placement"] == "tuned",
        wait_for_ranks=wait_for_ranks,
        on_done=on_done,
    )

    next_reading_s = 0.0

    def write_step(times: StepTimes) -> None:
        nonlocal next_reading_s
        step, _, ended_s = times[:3]
        try:
            steps.append(times)
        except OSError as error:
            sink.give_up(error)
        health.take(steps)
        # The last step of the warm-up is read, so that start-up's page faults are shared among that alone.
        if ended_s >= next_reading_s or step == window.warmup - 1:
            next_reading_s = ended_s + READING_INTERVAL_S
            host.read_into(steps, ended_s)
            if health.waits_for_nothing:
                health.read_into(steps)

    def note_restart(reason: str, step: int) -> None:
        sink.write(LINE_NOTE, code="steps_restart", text=reason, step=step)

    clock = StepClock(window, write_step, sampling.step_ended, note_restart, spec["step_marker"])
    sampling.clock = clock
    install(clock, health, roots)
    os.register_at_fork(after_in_child=lambda: listen_no_more(clock, health, roots))
    return sampling
