"""Two studies side by side: how much faster one is, and whether that can be told at all.

In: the runs of both. Out: a table through a rich console. Exercise: `paceline diff A B`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from paceline.analyse import ratio
from paceline.quantity import format_duration
from paceline.record import Metric, Row, RunRecord
from paceline.report.labels import Labels
from paceline.report.terminal import make_table

Verdict = Literal["faster", "slower", "cannot tell"]
_STYLES = {"faster": "green", "slower": "red", "cannot tell": "yellow"}


@dataclass(frozen=True)
class Comparison:
    """One configuration that both studies have; `gain` is A's step time over B's."""

    a: Row
    b: Row
    gain: Metric | None

    @property
    def verdict(self) -> Verdict:
        """Of B against A: only where the whole interval is on one side and launches were seen to differ."""
        launches = min(self.a.rounds, self.b.rounds)
        if self.gain is None or launches < 2 or self.gain.low <= 1 <= self.gain.high:
            return "cannot tell"
        return "faster" if self.gain.low > 1 else "slower"


def _identity(one: Row | RunRecord, with_program: bool) -> tuple[object, ...]:
    return (one.program if with_program else "", tuple(one.arguments), one.world, one.placement)


def compare(
    rows_a: Sequence[Row], runs_a: Sequence[RunRecord], rows_b: Sequence[Row], runs_b: Sequence[RunRecord]
) -> list[Comparison]:
    """By arguments, world and placement; by program too, unless each study has just one."""
    with_program = len({row.program for row in rows_a}) > 1 or len({row.program for row in rows_b}) > 1
    others = {_identity(row, with_program): row for row in rows_b}

    def good(runs: Sequence[RunRecord], identity: tuple[object, ...]) -> list[RunRecord]:
        return [run for run in runs if run.status == "ok" and _identity(run, with_program) == identity]

    return [
        Comparison(row, others[identity], ratio(good(runs_a, identity), good(runs_b, identity)))
        for row in rows_a
        if (identity := _identity(row, with_program)) in others
    ]


def print_comparisons(name_a: str, name_b: str, comparisons: Sequence[Comparison], console: Console) -> None:
    rows = [comparison.a for comparison in comparisons]
    labels = Labels(rows)
    table = make_table()
    for heading in labels.columns():
        table.add_column(heading, overflow="fold")
    for heading in (name_a, name_b, "gain", "95 % interval"):
        table.add_column(escape(heading), justify="right")
    table.add_column(escape(f"{name_b} is"), no_wrap=True)
    for comparison in comparisons:
        gain = comparison.gain
        table.add_row(
            *(escape(cell) for cell in labels.cells(comparison.a)),
            *(_step_time(row) for row in (comparison.a, comparison.b)),
            f"{gain.median:.2f} ×" if gain else "–",
            f"{gain.low:.2f}–{gain.high:.2f}" if gain else "–",
            _judgement(comparison),
        )
    console.print(table)


def _judgement(comparison: Comparison) -> Text:
    crowded = comparison.a.oversubscribed or comparison.b.oversubscribed
    reservation = ", oversubscribed" if crowded else ""
    return Text(comparison.verdict + reservation, style=_STYLES[comparison.verdict])


def _step_time(row: Row) -> str:
    if "step_time_s" not in row.metrics:
        return row.status
    return format_duration(row.metrics["step_time_s"].median)
