"""The probe: what watches one rank while its script trains. Only torch and the standard library.

Enters: the launcher's spec. Leaves: this rank's JSON lines (see record.py). `install` is called by
worker.py before the script.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.probe.clock import StepClock, Window
from paceline.probe.health import Health
from paceline.probe.hooks import Roots, install
from paceline.probe.host import Host
from paceline.probe.sampling import Sampling
from paceline.probe.sink import Sink


def attach(
    spec: dict[str, Any],
    sink: Sink,
    own_cores: list[int],
    wait_for_ranks: Callable[[str], None],
    on_done: Callable[[], None],
) -> Sampling:
    """Watch the script that is about to run in this process."""
    window = Window(spec["warmup"], spec["steps"], spec["sampled"])
    health, roots, host = Health(), Roots(), Host(own_cores)
    sampling = Sampling(
        window,
        sink,
        health,
        roots,
        lower_gloo=spec["placement"] == "tuned",
        wait_for_ranks=wait_for_ranks,
        on_done=on_done,
    )

    def values_of_step(now_s: float) -> dict[str, float | None]:
        return {**host.read(now_s), **health.take(clock.step)}

    clock = StepClock(window, sink, spec["step_marker"], values_of_step, sampling.step_ended)
    sampling.clock = clock
    install(clock, health, roots)
    return sampling
