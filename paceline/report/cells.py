"""Cells and columns of tables from metrics: one unit per column, in its heading, and the interval in small.

In: rows and the names of metrics. Out: columns and cells of document.py. Exercise: `paceline report STUDY`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.record import Metric, Row
from paceline.report.document import Cell, Column
from paceline.report.terminal import NOT_KNOWN, show_interval, show_number, unit_of
from paceline.report.units import Unit

OVERSUBSCRIBED = "†"
OVERSUBSCRIBED_NOTE = (
    f"{OVERSUBSCRIBED} more ranks than cores: ranks take turns, not comparable with the others."
)


def metric_cell(metric: Metric | None, unit: Unit, *, missing: str = "", mark: str = "") -> Cell:
    """A number with its interval in small; where there is no number, the reason in its place."""
    if metric is None or metric.median != metric.median:
        return Cell(missing or NOT_KNOWN, mark=mark)
    return Cell(show_number(metric.median, unit), small=show_interval(metric, unit), mark=mark, metric=metric)


def metric_columns(
    shown: Sequence[tuple[str, str]], rows: Sequence[Row]
) -> tuple[list[Column], list[list[Cell]]]:
    """`shown`: (heading, metric). The columns that any row knows, each in its own unit, and their cells."""
    known = _known(shown, rows)
    units = {name: unit_of([name], rows) for _, name in known}
    columns = [Column(_with_unit(heading, units[name]), numeric=True) for heading, name in known]
    return columns, _cells(units, rows)


def part_columns(
    shown: Sequence[tuple[str, str]], rows: Sequence[Row]
) -> tuple[list[Column], list[list[Cell]], str]:
    """The same for the parts of a whole, in one unit, whose name is the last of the three."""
    known = _known(shown, rows)
    unit = unit_of([name for _, name in known], rows)
    columns = [Column(heading, numeric=True) for heading, _ in known]
    return columns, _cells({name: unit for _, name in known}, rows), unit.name


def _known(shown: Sequence[tuple[str, str]], rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(heading, name) for heading, name in shown if any(name in row.metrics for row in rows)]


def _cells(units: dict[str, Unit], rows: Sequence[Row]) -> list[list[Cell]]:
    return [
        [
            metric_cell(row.metrics.get(name), unit, missing="" if row.status == "ok" else row.status)
            for name, unit in units.items()
        ]
        for row in rows
    ]


def _with_unit(heading: str, unit: Unit) -> str:
    return f"{heading}, {unit.name}" if unit.name not in ("", "count") else heading
