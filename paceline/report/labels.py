"""What tells the configurations of a study apart: the columns of a table, and a name for each row.

In: configurations, runs or rows of one study. Out: short texts that leave out what they share.
Exercise: `pytest tests/unit/test_report_labels.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Protocol


class Configured(Protocol):
    """What Config, RunRecord and Row have in common."""

    @property
    def program(self) -> str: ...
    @property
    def arguments(self) -> Sequence[str]: ...
    @property
    def world(self) -> int: ...
    @property
    def placement(self) -> str: ...


POSITIONAL = "arguments"  # the column of arguments that belong to no option


def split_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """`["x", "--dim", "8", "--amp"]` → `{"arguments": "x", "dim": "8", "amp": "yes"}`."""
    found: dict[str, list[str]] = {}
    name = POSITIONAL
    for argument in arguments:
        # A negative number is a value, not an option.
        if argument.startswith("-") and not re.fullmatch(r"-[0-9.].*|-", argument):
            name, equals, value = argument.lstrip("-").partition("=")
            found.setdefault(name, []).extend([value] if equals else [])
            name = POSITIONAL if equals else name
        else:
            found.setdefault(name, []).append(argument)
    return {name: " ".join(values) or "yes" for name, values in found.items()}


class Labels:
    """Names for the configurations of one study."""

    def __init__(self, configured: Iterable[Configured]) -> None:
        everything = list(configured)
        split = [split_arguments(one.arguments) for one in everything]
        names = dict.fromkeys(name for arguments in split for name in arguments)
        self.varying = [name for name in names if len({arguments.get(name) for arguments in split}) > 1]
        programs = {one.program for one in everything}
        self.shows_program = len(programs) > 1
        # Without their folders, unless two would then be alike.
        self.shortens = len({PurePath(program).name for program in programs}) == len(programs)
        self.shows_placement = len({one.placement for one in everything}) > 1

    def columns(self) -> list[str]:
        program = ["program"] if self.shows_program else []
        placement = ["placement"] if self.shows_placement else []
        return [*program, "ranks", *placement, *self.varying]

    def cells(self, one: Configured) -> list[str]:
        arguments = split_arguments(one.arguments)
        program = [self._program(one)] if self.shows_program else []
        placement = [one.placement] if self.shows_placement else []
        return [*program, str(one.world), *placement, *(arguments.get(name, "–") for name in self.varying)]

    def name(self, one: Configured) -> str:
        """`2 ranks · plain · accum-steps 4`."""
        parts = []
        for column, cell in zip(self.columns(), self.cells(one), strict=True):
            if column == "ranks":
                parts.append("1 rank" if cell == "1" else f"{cell} ranks")
            elif column in ("program", "placement"):
                parts.append(cell)
            elif cell != "–":
                parts.append(f"{column} {cell}")
        return " · ".join(parts)

    def _program(self, one: Configured) -> str:
        return PurePath(one.program).name if self.shortens else one.program
