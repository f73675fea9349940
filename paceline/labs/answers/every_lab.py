"""The sections of a lab that has no answers of its own: a table per experiment.

In: a `LabData`. Out: one section per task. Exercise: `pytest tests/unit/test_lab_answers.py -k every_lab`.
"""

from __future__ import annotations

from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.data import LabData, LabRow
from paceline.report.document import Block, Bullets, Cell, Column, Paragraph, Section, Table
from paceline.report.labels import Labels

SHOWN = (
    Shown("step time", "step_time_s"),
    Shown("speedup", "speedup"),
    Shown("exposed comm.", "exposed_comm_s"),
    Shown("peak memory", "peak_memory_bytes"),
)


def build_every_experiment(data: LabData) -> list[Section]:
    sections = []
    for task in data.lab.tasks:
        blocks: list[Block] = []
        if task.questions:
            blocks.append(Bullets([question.text for question in task.questions]))
        for experiment in task.experiments:
            if experiment.kind == "table":
                blocks += _as_written(data, experiment.id, experiment.title)
            elif rows := data.rows(experiment.id):
                blocks.append(_measured(experiment.id, experiment.title, rows))
            else:
                blocks.append(Paragraph(f"{experiment.title}: {data.reason(experiment.id)}."))
        sections.append(Section(task.title, blocks))
    return sections


def _measured(name: str, title: str, rows: list[LabRow]) -> Table:
    labels = Labels([row.config for row in rows if row.config])
    headings = [Column(heading, numeric=heading == "ranks") for heading in labels.columns()]
    lines = [(labels.cells(row.config) if row.config else [""] * len(headings), row) for row in rows]
    return build_table(name, f"{title}.", headings, lines, SHOWN)


def _as_written(data: LabData, name: str, title: str) -> list[Block]:
    rows = data.table_rows(name)
    if not rows:
        return [Paragraph(f"{title}: {data.reason(name)}.")]
    columns = [Column(heading, numeric=True) for heading in rows[0]]
    cells = [[Cell(f"{row.get(column.heading, '')}") for column in columns] for row in rows]
    return [Table(name, f"{title}.", columns, cells)]
