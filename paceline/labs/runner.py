"""Measure a lab: its studies one after the other, then the experiments that are tables.

In: a lab, a scale, what of it, and an open store. Out: runs in the store; what it holds is not run again.
How far it is, and how long the whole plan still takes, goes to a reporter.
Exercise: `paceline lab run hw2 --scale tiny`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.labs.data import LabData
from paceline.labs.plan import Host, plan, studies_for
from paceline.labs.spec import Lab, ScaleName
from paceline.labs.table_run import run_table
from paceline.launch import Progress
from paceline.machine import describe_machine
from paceline.measure import Plan, Reporter, measure
from paceline.record import RunRecord
from paceline.store import Store
from paceline.study import Config, Study

MakeReporter = Callable[[Study], AbstractContextManager[Reporter]]


@dataclass
class WholePlan(Reporter):
    """Passes on what one study says, with the time that the studies after it will take added."""

    inner: Reporter
    later_runs: int  # of the studies after this one, those in the store already counted as well
    seen_s: list[float]

    def begin(self, plan: Plan, remaining_s: float | None) -> None:
        self.inner.begin(plan, self._with_later(remaining_s))

    def begin_run(self, config: Config, round: int, run_dir: Path) -> None:
        self.inner.begin_run(config, round, run_dir)

    def show_progress(self, config: Config, round: int, progress: Progress) -> None:
        self.inner.show_progress(config, round, progress)

    def end_run(self, config: Config, record: RunRecord, run_dir: Path, remaining_s: float | None) -> None:
        self.seen_s.append(record.wall_s)
        self.inner.end_run(config, record, run_dir, self._with_later(remaining_s))

    def say(self, text: str) -> None:
        self.inner.say(text)

    def _with_later(self, remaining_s: float | None) -> float | None:
        if not self.seen_s or remaining_s is None:
            return remaining_s
        return remaining_s + self.later_runs * sum(self.seen_s) / len(self.seen_s)


@dataclass
class LabRun:
    """What a start of `lab run` was asked for, and with what it may do it."""

    lab: Lab
    scale: ScaleName
    task: str | None
    option: str | None
    host: Host
    store: Store
    spec: dict[str, Any]  # the command, as the store keeps it with each study
    make_reporter: MakeReporter
    fresh: bool = False
    retry: bool = False
    seen_s: list[float] = field(default_factory=list)

    def measure(self) -> None:
        studies = studies_for(self.lab, self.scale, self.task, self.option, self.host)
        missing = [self._count_missing(study) for study in studies]
        for place, study in enumerate(studies):
            self.store.begin_study(study.name, self.spec)
            with self.make_reporter(study) as reporter:
                whole = WholePlan(reporter, sum(missing[place + 1 :]), self.seen_s)
                measure(study, self.store, fresh=self.fresh, retry=self.retry, reporter=whole)
        for planned in plan(self.lab, self.scale, self.task, self.option, self.host):
            if planned.experiment.kind == "table":
                self.store.begin_study(planned.study, self.spec)
                timeout_s = self.lab.scales[self.scale].timeout_s
                run_table(planned, self.store, timeout_s, fresh=self.fresh, retry=self.retry)

    def _count_missing(self, study: Study) -> int:
        """For the time that is left: runs of other options count as done, which errs by little."""
        kept = 0 if self.fresh else len(self.store.keys(study.name))
        return max(0, len(study.configs) * study.rounds - kept)


def describe_host(lab: Lab, scale: ScaleName, build_virtual: Callable[[], object]) -> Host:
    """What this machine has; virtual devices are built now where the lab needs them, once per torch.

    `build_virtual` raises a ValueError that says why they cannot be; it may load torch, which labs do not.
    """
    machine = describe_machine()
    devices = machine["accelerators"]["devices"]
    memory = min(
        (size for size in (machine["memory_bytes"], machine["memory_limit_bytes"]) if size), default=None
    )
    if len(devices) >= 2:
        return Host(len(devices), min(device["memory_bytes"] or 0 for device in devices) or None)
    needs_virtual = any(planned.virtual_devices for planned in plan(lab, scale))
    if needs_virtual:
        try:
            build_virtual()
        except ValueError as reason:
            return Host(len(devices), memory, re.split(r"[.;] ", str(reason))[0])
    return Host(len(devices), memory)


def load_data(lab: Lab, scale: ScaleName, option: str | None, host: Host, store: Store) -> LabData:
    """All that the store holds of the whole lab at this scale."""
    planned = plan(lab, scale, option=option, host=host)
    names = dict.fromkeys(one.study for one in planned)
    return LabData(lab, scale, option, planned, _runs_of(store, names))


def _runs_of(store: Store, studies: Iterable[str]) -> Iterable[RunRecord]:
    for study in studies:
        yield from store.runs(study)
