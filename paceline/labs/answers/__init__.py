"""What the labs' reports say: one module per lab, written from measured numbers.

In: a `LabData`. Out: one section per task of the lab, in the order of its tasks. A section refers to figures
and tables of its own only, since a report leaves out the sections of tasks that were not measured.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.labs.answers import hw1, hw2, hw3, practical7
from paceline.labs.data import LabData
from paceline.report.document import Section

ANSWERS: dict[str, Callable[[LabData], list[Section]]] = {
    "practical7": practical7.build,
    "hw1": hw1.build,
    "hw2": hw2.build,
    "hw3": hw3.build,
}
