"""Homework 3: one model on several devices.

In: a `LabData`. Out: a section per task. Exercise: `pytest tests/unit/test_lab_answers_hw3.py`.
"""

from __future__ import annotations

from paceline.labs.answers.hw3.devices import answer_devices
from paceline.labs.answers.hw3.layers import answer_depth, answer_index, answer_two_devices
from paceline.labs.answers.hw3.transfers import answer_transfers
from paceline.labs.data import LabData
from paceline.report.document import Section

TASKS = (answer_two_devices, answer_depth, answer_index, answer_devices, answer_transfers)


def build(data: LabData) -> list[Section]:
    return [
        Section(f"Task {task.id}: {task.title}", answer(data))
        for task, answer in zip(data.lab.tasks, TASKS, strict=True)
    ]
