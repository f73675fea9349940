"""What was measured of a lab, by experiment: all that an answer may rest on.

In: a lab, a scale, its plan, and the stored runs. Out: for each configuration its row with findings, or the
reason why there is none. Exercise: `pytest tests/unit/test_lab_answers.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.analyse import summarise
from paceline.analyse.summary import RowKey, key_of
from paceline.explain import explain
from paceline.labs.plan import Planned, skipped
from paceline.labs.spec import Experiment, Lab, ScaleName, Task
from paceline.record import Metric, Row, RunRecord
from paceline.report.labels import split_arguments
from paceline.selection import select_newest
from paceline.study import Config

# The fact that the one run of an experiment of the kind "table" consists of.
TABLE_FACT = "table"


@dataclass(frozen=True)
class LabRow:
    """One configuration of one experiment. Either `row` has metrics, or `reason` says why there are none."""

    experiment: Experiment
    config: Config | None = None  # None where this scale does not have it
    row: Row | None = None
    runs: list[RunRecord] = field(default_factory=list)  # the good ones, in the order of their rounds
    reason: str | None = None  # one phrase: skipped, refused, failed, or not measured

    @property
    def is_measured(self) -> bool:
        return self.reason is None

    @property
    def world(self) -> int:
        return self.config.world if self.config else 0

    @property
    def oversubscribed(self) -> bool:
        return self.row is not None and self.row.oversubscribed

    def metric(self, name: str) -> Metric | None:
        """A metric of docs/metrics.md, None where it is not known."""
        return self.row.metrics.get(name) if self.row else None

    def argument(self, name: str) -> str:
        """What `--name` was given; "yes" for a bare flag, "" where it is not among the arguments."""
        return split_arguments(self.config.arguments).get(name, "") if self.config else ""


class LabData:
    """The measurements of one lab at one scale, whole or in part."""

    def __init__(
        self,
        lab: Lab,
        scale: ScaleName,
        option: str | None,
        plan: Sequence[Planned],
        runs: Iterable[RunRecord],
    ) -> None:
        """`plan` is that of all tasks; `runs` are the stored ones of its studies, oldest first."""
        self.lab, self.scale, self.option, self.plan = lab, scale, option, list(plan)
        by_study: dict[str, list[RunRecord]] = defaultdict(list)
        for run in runs:
            by_study[run.study].append(run)
        self.runs: list[RunRecord] = []
        self._rows: dict[tuple[str, RowKey], Row] = {}
        self._runs: dict[tuple[str, RowKey], list[RunRecord]] = defaultdict(list)
        planned = {(one.study, _key_of(one.config)) for one in self.plan}
        for study, stored in by_study.items():
            newest, _ = select_newest([run for run in stored if (study, key_of(run)) in planned])
            self.runs += newest
            timed = [run for run in newest if not is_table(run)]
            for row in explain(summarise(timed), timed):
                self._rows[study, key_of(row)] = row
            for run in sorted(newest, key=lambda run: run.round):
                self._runs[study, key_of(run)].append(run)

    @property
    def machine(self) -> dict[str, Any]:
        """The machine of the newest run, as `describe_machine` describes it."""
        newest = max(self.runs, key=lambda run: run.started, default=None)
        return newest.machine if newest else {}

    @property
    def accelerated(self) -> bool:
        """Whether ranks ran on accelerators that are not virtual. A table's script always takes the CPU."""
        ranks = [run for run in self.runs if not is_table(run)]
        newest = max(ranks, key=lambda run: run.started, default=None)
        return newest is not None and bool(newest.accelerators)

    def rows(self, experiment_id: str) -> list[LabRow]:
        """One per configuration, in the order of the plan; none where the scale or option leaves it out."""
        return [self._row(planned) for planned in self.plan if planned.experiment.id == experiment_id]

    def row(self, experiment_id: str, *, world: int | None = None, **arguments: object) -> LabRow:
        """The first configuration with these arguments: `row("sweep", accum_steps=8)`. Always a row."""
        wanted = {name.replace("_", "-"): _text(value) for name, value in arguments.items()}
        for found in self.rows(experiment_id):
            if world in (None, found.world) and all(found.argument(n) == v for n, v in wanted.items()):
                return found
        _, experiment = self._find(experiment_id)
        return LabRow(experiment, reason=self.reason(experiment_id) or f"not at the scale {self.scale}")

    def table_rows(self, experiment_id: str) -> list[dict[str, Any]]:
        """What an experiment of the kind "table" wrote; empty where it did not run (`reason` says why)."""
        for planned in self.plan:
            for run in reversed(self._runs[planned.study, _key_of(planned.config)]):
                if planned.experiment.id == experiment_id and run.status == "ok":
                    rows: list[dict[str, Any]] = run.ranks[0].facts[TABLE_FACT]["rows"]
                    return rows
        return []

    def reason(self, experiment_id: str) -> str | None:
        """Why nothing of an experiment was measured; None when something was."""
        task, experiment = self._find(experiment_id)
        left_out = skipped(experiment, self.scale)
        if left_out:
            return left_out
        if experiment.option is not None and self.option not in (None, experiment.option):
            return f"belongs to option {experiment.option}, which was not chosen"
        rows = self.rows(experiment_id)
        if any(row.is_measured for row in rows) or self.table_rows(experiment_id):
            return None
        return next((row.reason for row in rows if row.reason), self._not_measured(task))

    @property
    def measured(self) -> list[Row]:
        """Every configuration that has times, each once."""
        return list(self._rows.values())

    def failures(self) -> list[str]:
        """What was started and has no good run, each with its cause."""
        return list(
            dict.fromkeys(
                f"{planned.experiment.title}: {row.reason}"
                for planned in self.plan
                if not (row := self._row(planned)).is_measured
                and self._runs[planned.study, _key_of(planned.config)]
            )
        )

    def is_task_measured(self, task: Task) -> bool:
        """Whether anything of a task was run, or it needs no run."""
        ids = {experiment.id for experiment in task.experiments}
        planned = [one for one in self.plan if one.experiment.id in ids]
        return not ids or any(
            self._runs[one.study, _key_of(one.config)] or one.refusal is not None for one in planned
        )

    def _row(self, planned: Planned) -> LabRow:
        experiment, config = planned.experiment, planned.config
        key = (planned.study, _key_of(config))
        row, runs = self._rows.get(key), self._runs[key]
        good = [run for run in runs if run.status == "ok"]
        if good:
            return LabRow(experiment, config, row, good)
        if runs:
            reason = f"{runs[-1].status}: {runs[-1].cause}"
        else:
            task, _ = self._find(experiment.id)
            reason = planned.refusal or self._not_measured(task)
        return LabRow(experiment, config, reason=reason)

    def _not_measured(self, task: Task) -> str:
        return f"not measured; `paceline lab run {self.lab.name} --task {task.id}` measures it"

    def _find(self, experiment_id: str) -> tuple[Task, Experiment]:
        return next(
            (task, experiment)
            for task in self.lab.tasks
            for experiment in task.experiments
            if experiment.id == experiment_id
        )


def is_table(run: RunRecord) -> bool:
    """Whether a run is that of a script that trains nothing."""
    return any(TABLE_FACT in rank.facts for rank in run.ranks)


def _text(value: object) -> str:
    return {True: "yes", False: ""}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _key_of(config: Config) -> RowKey:
    return RowKey(config.program, config.arguments, config.placement, "measured", config.world)
