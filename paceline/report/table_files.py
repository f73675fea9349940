"""A table as CSV and as Markdown: the first for programs, the second to paste.

In: a `Table` of document.py. Out: text. A column with numbers behind its cells has `low`, `high` and `unit`
columns beside it in the CSV, in base units. Exercise: `pytest tests/unit/test_report_document.py -k csv`.
"""

from __future__ import annotations

import csv
import io

from paceline.report.document import Cell, Table, as_cell, unescaped


def to_csv(table: Table) -> str:
    rows = [[as_cell(cell) for cell in row] for row in table.rows]
    measured = [any(row[place].metric for row in rows) for place in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heading: list[str] = []
    for column, has_metric in zip(table.columns, measured, strict=True):
        more = ("low", "high", "unit") if has_metric else ()
        named = unescaped(column.heading)
        heading += [named, *(f"{named} {name}" for name in more)]
    writer.writerow(heading)
    for row in rows:
        fields: list[str] = []
        for cell, has_metric in zip(row, measured, strict=True):
            fields += _measured_fields(cell) if has_metric else [_plain(cell)]
        writer.writerow(fields)
    return out.getvalue()


def to_markdown(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [
        f"**{table.caption}**",
        "",
        line([_escape(unescaped(column.heading)) for column in table.columns]),
        line(["---:" if column.numeric else "---" for column in table.columns]),
        *(line([_escape(_plain(as_cell(cell))) for cell in row]) for row in table.rows),
    ]
    lines += [line for note in table.notes for line in ("", note)]
    return "\n".join(lines) + "\n"


def _measured_fields(cell: Cell) -> list[str]:
    if cell.metric is None:
        return [_plain(cell), "", "", ""]
    return [repr(cell.metric.median), repr(cell.metric.low), repr(cell.metric.high), cell.metric.unit]


def _plain(cell: Cell) -> str:
    small = f" ({cell.small})" if cell.small else ""
    return f"{cell.text}{cell.mark}{small}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
