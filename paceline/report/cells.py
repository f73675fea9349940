"""Cells and columns of tables from metrics: one unit per column, in its heading, and the interval in small.

In: rows and the names of metrics. Out: columns and cells of document.py. Exercise: `paceline report STUDY`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.record import Metric, Row
from paceline.report.document import Cell, Column
from paceline.report.terminal import NOT_KNOWN, show_number, unit_of
from paceline.report.units import Unit

OVERSUBSCRIBED = "†"
OVERSUBSCRIBED_NOTE = (
    f"{OVERSUBSCRIBED} more ranks than cores: ranks take turns, not comparable with the others."
)


def metric_cell(metric: Metric | None, unit: Unit, *, missing: str = "", mark: str = "") -> Cell:
    """A number with its interval in small; where there is no number, the reason in its place."""
    if metric is None or metric.median != metric.median:
        return Cell(missing or NOT_KNOWN, mark=mark)
    low, middle, high = (show_number(value, unit) for value in (metric.low, metric.median, metric.high))
    # Narrower than the digits that are shown, or not known from a single launch.
    says_nothing = low == middle == high or not metric.low < metric.high
    return Cell(middle, small="" if says_nothing else f"{low}–{high}", mark=mark, metric=metric)


def metric_columns(
    shown: Sequence[tuple[str, str]], rows: Sequence[Row], *, one_unit: bool = False
) -> tuple[list[Column], list[list[Cell]]]:
    """`shown`: (heading, metric). The columns that any row knows, and each row's cells in them."""
    known = [(heading, name) for heading, name in shown if any(name in row.metrics for row in rows)]
    together = unit_of([name for _, name in known], rows) if one_unit and known else None
    units = {name: together or unit_of([name], rows) for _, name in known}
    columns = [Column(_with_unit(heading, units[name]), numeric=True) for heading, name in known]
    cells = [
        [
            metric_cell(row.metrics.get(name), units[name], missing="" if row.status == "ok" else row.status)
            for _, name in known
        ]
        for row in rows
    ]
    return columns, cells


def _with_unit(heading: str, unit: Unit) -> str:
    return f"{heading}, {unit.name}" if unit.name not in ("", "count") else heading
