"""The probe: what watches one rank while its script trains. Only torch and the standard library.

Enters: the launcher's spec. Leaves: this rank's JSON lines (see record.py). `install` is called by
worker.py before the script.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.probe.clock import StepClock, StepTimes, Window
from paceline.probe.health import Health
from paceline.probe.hooks import Roots, install
from paceline.probe.host import Host
from paceline.probe.sampling import Sampling
from paceline.probe.sink import Sink
from paceline.record import LINE_NOTE
from paceline.step_file import StepFile


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
        roots,
        lower_gloo=spec["placement"] == "tuned",
        wait_for_ranks=wait_for_ranks,
        on_done=on_done,
    )

    def write_step(times: StepTimes) -> None:
        ended_s = times[2]
        try:
            steps.append(*times, *host.read(ended_s), *health.take(steps.num_rows))
        except OSError as error:
            sink.give_up(error)
        health.read_if_free(ended_s, steps)

    def note_restart(reason: str, step: int) -> None:
        sink.write(LINE_NOTE, code="steps_restart", text=reason, step=step)

    clock = StepClock(window, write_step, sampling.step_ended, note_restart, spec["step_marker"])
    sampling.clock = clock
    install(clock, health, roots)
    return sampling
