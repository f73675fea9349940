"""The second listener of a rank, beside the probe: what `paceline lab check` judges a script by.

Enters: the rank's sink and the script's path; worker.py calls `attach` before the script when the launcher's
spec names this module. Leaves: lines with the event "observed". Only torch and the standard library.

    pytest tests/check/test_check_programs.py
"""

from __future__ import annotations

import os
import sys

import torch

from paceline.check.watch.conditions import watch_conditions
from paceline.check.watch.limits import limit_this_process
from paceline.check.watch.trace import Trace
from paceline.check.watch.training import TrainingWatch
from paceline.probe.sink import Sink


def attach(sink: Sink, script: str) -> None:
    """Watch the script that is about to run in this process."""
    trace = Trace(sink, script)
    accelerator = torch.accelerator.is_available()
    virtual = sys.modules.get("paceline.virtual")
    is_virtual = virtual is not None and virtual.is_installed()
    limit_this_process(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), accelerator and not is_virtual)
    trace.write(
        "machine",
        accelerators=torch.accelerator.device_count() if accelerator else 0,
        virtual=is_virtual,
    )
    TrainingWatch(trace).install()
    watch_conditions(trace)
