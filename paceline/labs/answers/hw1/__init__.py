"""Homework 1: how data parallel training scales. A file per task.

In: a `LabData`. Out: a section per task. Exercise: `pytest tests/unit/test_lab_answers_hw1.py`.
"""

from __future__ import annotations

from paceline.labs.answers.hw1.dataparallel import answer_dataparallel
from paceline.labs.answers.hw1.options import answer_options
from paceline.labs.answers.hw1.reproducible import answer_reproducible
from paceline.labs.answers.hw1.sizes import answer_sizes
from paceline.labs.answers.hw1.strong import answer_strong
from paceline.labs.data import LabData
from paceline.report.document import Section

TASKS = (answer_reproducible, answer_strong, answer_sizes, answer_dataparallel, answer_options)


def build(data: LabData) -> list[Section]:
    return [
        Section(f"Task {task.id}: {task.title}", answer(data))
        for task, answer in zip(data.lab.tasks, TASKS, strict=True)
    ]
