"""How a measurement shows itself while it goes on: live lines on a terminal, a plain line per run elsewhere.

In: what `measure` reports. Out: text on standard error, so that standard output stays the result's.
Exercise: `paceline run examples/train.py`, then the same with `2>&1 | cat`.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paceline.cli.rank_output import RankOutput
from paceline.findings.case import count
from paceline.launch import Progress
from paceline.measure import Plan, Reporter
from paceline.quantity import format_duration, format_roughly
from paceline.record import TIMED, RunRecord
from paceline.report.labels import Labels
from paceline.study import Config, Study


def median_step_time_s(record: RunRecord) -> float | None:
    """A first impression; the table has the definition of docs/metrics.md."""
    ranks = [rank.series for rank in record.ranks if "step_time_s" in rank.series]
    if not ranks:
        return None
    steps = zip(*(series["step_time_s"] for series in ranks), strict=False)
    slowest = [max(times) for times, kind in zip(steps, ranks[0]["kind"], strict=False) if kind == TIMED]
    return statistics.median(slowest) if slowest else None


def describe_plan(plan: Plan, remaining_s: float | None) -> str:
    study = plan.study
    rounds = count(study.rounds, "round") if study.until is None else f"rounds until ±{study.until * 100:g} %"
    configs = count(len(study.configs), "configuration")
    text = f"{study.name}: {configs} × {rounds}, {count(plan.num_missing, 'run')} to do"
    text += f", {plan.num_kept} in the store already" if plan.num_kept else ""
    return text + (f", about {format_roughly(remaining_s)}" if remaining_s and plan.num_missing else "")


def describe_end(record: RunRecord) -> str:
    if record.status != "ok":
        return f"{record.status}: {record.cause}"
    step_time_s = median_step_time_s(record)
    return f"{format_duration(step_time_s)} per step" if step_time_s is not None else "ok"


class PlainReporter(Reporter):
    """One line per run, for logs."""

    def __init__(self, study: Study, console: Console, *, verbose: bool = False) -> None:
        self.study, self.console, self.verbose = study, console, verbose
        self.labels = Labels(study.configs)
        self.output: RankOutput | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop_output()

    def begin(self, plan: Plan, remaining_s: float | None) -> None:
        self.say(describe_plan(plan, remaining_s))
        for record in plan.kept_failures:
            name = self.labels.name(record)
            self.say(f"kept: {name}, round {record.round}: {describe_end(record)} (--retry runs it again)")

    def begin_run(self, config: Config, round: int, run_dir: Path) -> None:
        if self.verbose:
            self.output = RankOutput(run_dir, self.say)

    def show_progress(self, config: Config, round: int, progress: Progress) -> None:
        pass

    def end_run(self, config: Config, record: RunRecord, run_dir: Path, remaining_s: float | None) -> None:
        self.stop_output()
        left = f", about {format_roughly(remaining_s)} left" if remaining_s else ""
        where = "" if record.status == "ok" else f"; its files are in {run_dir}"
        took = format_duration(record.wall_s)
        self.say(
            f"{self.labels.name(config)}, round {record.round}: {describe_end(record)} ({took}{left}){where}"
        )

    def stop_output(self) -> None:
        if self.output:
            self.output.stop()
            self.output = None

    def say(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)


class LiveReporter(PlainReporter):
    """One line per configuration that changes in place; failures and remarks scroll by above."""

    # Lines for the rest of the screen: the summary, a prompt, some air.
    SPARE_LINES = 5

    def __init__(self, study: Study, console: Console, *, verbose: bool = False) -> None:
        super().__init__(study, console, verbose=verbose)
        self.states: dict[Config, str] = {}
        self.running: Config | None = None
        self.remaining_s: float | None = None
        self.live = Live(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, at)
        self.live.stop()

    def begin(self, plan: Plan, remaining_s: float | None) -> None:
        super().begin(plan, remaining_s)
        self.remaining_s = remaining_s

    def begin_run(self, config: Config, round: int, run_dir: Path) -> None:
        super().begin_run(config, round, run_dir)
        self.running = config
        self.states[config] = f"{self.round_of(round)}starting"

    def show_progress(self, config: Config, round: int, progress: Progress) -> None:
        step_time = "" if progress.step_time_s is None else f"  {format_duration(progress.step_time_s)}"
        self.states[config] = f"{self.round_of(round)}step {progress.step}/{progress.total_steps}{step_time}"

    def end_run(self, config: Config, record: RunRecord, run_dir: Path, remaining_s: float | None) -> None:
        self.stop_output()
        self.running, self.remaining_s = None, remaining_s
        self.states[config] = f"{self.round_of(record.round)}{describe_end(record)}"
        if record.status != "ok":
            super().end_run(config, record, run_dir, None)

    def round_of(self, round: int) -> str:
        of = f"/{self.study.rounds}" if self.study.until is None else ""
        return f"round {round}{of}  "

    def render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2), expand=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        for config in self.shown_configs():
            is_running = config == self.running
            marker = "▸ " if is_running else "  "
            style = "bold" if is_running else "dim"
            table.add_row(
                Text(marker + self.labels.name(config), style),
                Text(self.states.get(config, "waiting"), style),
            )
        left = Text(f"  about {format_roughly(self.remaining_s)} left", "dim") if self.remaining_s else ""
        return Group(table, left)

    def shown_configs(self) -> list[Config]:
        """All of them, or a window that moves with the one that runs."""
        configs = self.study.configs
        height = max(1, self.console.height - self.SPARE_LINES)
        at = configs.index(self.running) if self.running in configs else 0
        start = max(0, min(at - height // 2, len(configs) - height))
        return configs[start : start + height]


def make_reporter(study: Study, *, verbose: bool) -> PlainReporter:
    console = Console(stderr=True, highlight=False)
    kind = LiveReporter if console.is_terminal and not console.is_dumb_terminal else PlainReporter
    return kind(study, console, verbose=verbose)
