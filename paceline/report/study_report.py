"""The report of any stored study: what was found, the tables behind it, and the figures that it deserves.

In: the rows of `analyse` with the findings of `explain`, and their runs. Out: a `Document`. The same rows
yield the same document, and nothing but the rows and runs is looked at. Exercise: `paceline report STUDY`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.record import Row, RunRecord
from paceline.report.cells import OVERSUBSCRIBED, OVERSUBSCRIBED_NOTE, metric_columns, part_columns
from paceline.report.details import COMMUNICATION, MEMORY, PHASES
from paceline.report.document import (
    Block,
    Bullets,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Paragraph,
    Section,
    SideBySide,
    Table,
    as_text,
)
from paceline.report.labels import Labels
from paceline.report.provenance import describe_commands, describe_runs, find_caveats
from paceline.report.study_figures import (
    bars_figure,
    memory_figure,
    speedup_figure,
    strip_figure,
    sweep_figure,
    timeline_figure,
)
from paceline.report.terminal import collect_findings

TIMES = (
    ("step time", "step_time_s"),
    ("speedup", "speedup"),
    ("efficiency", "efficiency"),
    ("gain over plain", "placement_gain"),
    ("exposed comm.", "exposed_comm_s"),
    ("peak memory", "peak_memory_bytes"),
)


def build_study_report(
    name: str,
    rows: Sequence[Row],
    runs: Sequence[RunRecord],
    *,
    command: str = "",
    author: str = "",
    page_limit: int | None = None,
) -> Document:
    """All that the study shows, most important first. `command`: what the user typed to measure it."""
    sections = [
        Section("What was found", _findings(rows)),
        Section("Times", _times(rows)),
        Section("Inside a step", _inside(rows, runs)),
        Section("Memory", _memory(rows)),
        Section("What did not run", _failures(rows)),
        Section("To repeat it", _commands(command, runs)),
    ]
    num_rows = _counted(len(rows), "configuration")
    num_rounds = max((row.rounds for row in rows), default=0)
    return Document(
        title=name,
        subtitle=f"A study of {num_rows}"
        + (f", measured in {_counted(num_rounds, 'round')}" * bool(num_rounds)),
        author=author,
        about=describe_runs(runs),
        caveats=find_caveats(runs),
        sections=[section for section in sections if section.blocks],
        page_limit=page_limit,
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _findings(rows: Sequence[Row]) -> list[Block]:
    labels = Labels(rows)
    items = []
    for finding, where in collect_findings(rows):
        first, *others = (as_text(labels.name(row)) for row in where)
        listed = f": {'; '.join(others)}" if len(others) <= 2 else f" in {len(others)} other configurations"
        also = f" Also{listed}." if others else ""
        items.append(f"**{first}**: {as_text(finding.text)}{also} (`{finding.code}`)")
    return [Bullets(items)] if items else [Paragraph("Nothing stands out: no rule of the list applied.")]


def _times(rows: Sequence[Row]) -> list[Block]:
    if not _any_known(TIMES, rows):
        return []
    blocks: list[Block] = [
        _table("times", "Step time and what follows from it; in small the 95 % interval.", TIMES, rows)
    ]
    figures = [figure for figure in (speedup_figure(rows), sweep_figure(rows)) if figure is not None]
    return blocks + _beside(figures or [figure for figure in (bars_figure(rows),) if figure is not None])


def _inside(rows: Sequence[Row], runs: Sequence[RunRecord]) -> list[Block]:
    timeline, strip = timeline_figure(runs), strip_figure(runs)
    blocks: list[Block] = [figure for figure in (timeline, strip) if figure is not None]
    if _any_known(PHASES, rows):
        blocks.append(_table_of_parts("phases", "The parts of a step, mean over ranks.", PHASES, rows))
    if _any_known(COMMUNICATION, rows):
        caption = "Communication per optimizer step, from the sampled steps."
        # One rank sends nothing: a line of dashes.
        sending = [row for row in rows if _any_known(COMMUNICATION, [row])]
        blocks.append(_table("communication", caption, COMMUNICATION, sending))
    return blocks


def _memory(rows: Sequence[Row]) -> list[Block]:
    if not _any_known(MEMORY, rows):
        return []
    figure = memory_figure(rows)
    caption = "Tensor memory of the fullest rank at its peak, by category; resident: the whole process."
    table = _table_of_parts("memory", caption, MEMORY, rows)
    return [figure, table] if figure is not None else [table]


def _any_known(shown: Sequence[tuple[str, str]], rows: Sequence[Row]) -> bool:
    return any(name in row.metrics for row in rows for _, name in shown)


def _failures(rows: Sequence[Row]) -> list[Block]:
    labels = Labels(rows)
    failed = [row for row in rows if row.status != "ok"]
    if not failed:
        return []
    columns = [Column("configuration"), Column("outcome"), Column("cause")]
    cells = [[labels.name(row), row.status, row.cause or "not known"] for row in failed]
    return [Table("failures", "Configurations without a complete measurement.", columns, cells)]


def _commands(command: str, runs: Sequence[RunRecord]) -> list[Block]:
    blocks: list[Block] = []
    if command:
        blocks += [Paragraph("Measured by"), Code(command)]
    launched = describe_commands(runs)
    if launched:
        blocks += [Paragraph("which launched, in every round,"), Code("\n".join(launched))]
    return blocks


def _table(name: str, caption: str, shown: Sequence[tuple[str, str]], rows: Sequence[Row]) -> Table:
    columns, cells = metric_columns(shown, rows)
    return _with_names(name, caption, columns, cells, rows)


def _table_of_parts(name: str, caption: str, shown: Sequence[tuple[str, str]], rows: Sequence[Row]) -> Table:
    columns, cells, unit = part_columns(shown, rows)
    return _with_names(name, f"{caption} In {unit}.", columns, cells, rows)


def _with_names(
    name: str, caption: str, columns: Sequence[Column], cells: Sequence[Sequence[Cell]], rows: Sequence[Row]
) -> Table:
    """One line per configuration; one that failed says so in its empty cells."""
    labels = Labels(rows)
    first = [Column(as_text(heading), numeric=heading == "ranks") for heading in labels.columns()]
    lines: list[list[Cell | str]] = []
    for row, measured in zip(rows, cells, strict=True):
        mark = OVERSUBSCRIBED if row.oversubscribed else ""
        named = [
            Cell(text, mark=mark if column.heading == "ranks" else "", small=_simulated(row, column.heading))
            for column, text in zip(first, labels.cells(row), strict=True)
        ]
        lines.append([*named, *measured])
    notes = [OVERSUBSCRIBED_NOTE] if any(row.oversubscribed for row in rows) else []
    return Table(name, caption, [*first, *columns], lines, notes)


def _simulated(row: Row, heading: str) -> str:
    return "simulated" if row.source == "simulated" and heading == "ranks" else ""


def _beside(figures: Sequence[Figure]) -> list[Block]:
    """Two figures share a line."""
    return [SideBySide(*figures)] if len(figures) == 2 else list(figures)
