"""Tables of a lab: every cell a number with its interval, or a mark with its reason below the table.

In: lab rows and what to show of each. Out: a `Table` of document.py.
Exercise: `pytest tests/unit/test_lab_answers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

from paceline.labs.answers.words import HOPELESS, is_hopeless
from paceline.labs.data import LabRow
from paceline.record import Metric
from paceline.report.cells import OVERSUBSCRIBED, OVERSUBSCRIBED_NOTE, metric_cell
from paceline.report.document import Cell, Column, Table
from paceline.report.terminal import NOT_KNOWN
from paceline.report.units import Unit, choose_unit

NO_NUMBER = "its launches yielded no such number"
UNKNOWN = "?"
UNKNOWN_NOTE = (
    f"{UNKNOWN} launches differ so much that the number is not even known to a factor of {HOPELESS:g}."
)


@dataclass(frozen=True)
class Shown:
    """A column of numbers: a metric by name, or computed from a row; in per cent where `share`.

    A `unit` of its own is one that the heading names already."""

    heading: str
    metric: str | Callable[[LabRow], Metric | None]
    share: bool = False
    why: str = NO_NUMBER  # why a measured row may lack it
    unit: Unit | None = None

    def of(self, row: LabRow) -> Metric | None:
        return row.metric(self.metric) if isinstance(self.metric, str) else self.metric(row)


def build_table(
    name: str,
    caption: str,
    headings: Sequence[str | Column],
    lines: Sequence[tuple[Sequence[str | Cell], LabRow]],
    shown: Sequence[Shown],
    *,
    last: Sequence[str] = (),
    remarks: Sequence[Sequence[str]] = (),
    notes: Sequence[str] = (),
) -> Table:
    """One line per row: its first cells, then its numbers, each column in one unit that its heading names.

    `last` and `remarks` are columns of text behind the numbers.
    """
    columns = [column if isinstance(column, Column) else Column(column) for column in headings]
    marks: dict[str, str] = {}
    any_unknown = False
    rows: list[list[Cell | str]] = [list(first) for first, _ in lines]
    for one in shown:
        values = [one.of(row) for _, row in lines]
        known = [value for value in values if value is not None]
        unit = one.unit or (Unit(0.01, "%") if one.share else _unit_of(known))
        says_unit = one.unit is None and unit.name not in ("", "count", "×")
        columns.append(Column(f"{one.heading}, {unit.name}" if says_unit else one.heading, numeric=True))
        for cells, value, (_, row) in zip(rows, values, lines, strict=True):
            if value is not None and value.median == value.median:
                mark = OVERSUBSCRIBED if row.oversubscribed else ""
                cell = metric_cell(value, unit, mark=mark)
                unknown = is_hopeless(value)
                any_unknown |= unknown
                cells.append(replace(cell, small=UNKNOWN) if unknown else cell)
            else:
                reason = row.reason or one.why
                cells.append(Cell(NOT_KNOWN, mark=marks.setdefault(reason, ascii_lowercase[len(marks)])))
    for place, texts in enumerate(remarks or [()] * len(rows)):
        rows[place] += texts
    columns += [Column(heading) for heading in last]
    below = [f"{mark} {reason}." for reason, mark in marks.items()]
    if any(row.oversubscribed for _, row in lines):
        below.insert(0, OVERSUBSCRIBED_NOTE)
    if any_unknown:
        below.append(UNKNOWN_NOTE)
    return Table(name, caption, columns, rows, [*below, *notes])


def _unit_of(known: Sequence[Metric]) -> Unit:
    return choose_unit([metric.median for metric in known], known[0].unit) if known else Unit(1.0, "")
