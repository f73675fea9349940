"""Options that several commands share, and how their texts are read.

In: texts of the command line. Out: values, or a ValueError that names the option.
Exercise: `paceline run --help`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StorePath = Annotated[
    Path, typer.Option("--store", envvar="PACELINE_STORE", help="The file that keeps all measurements.")
]
DEFAULT_STORE = Path(".paceline/store.sqlite")

Fresh = Annotated[bool, typer.Option("--fresh", help="Measure everything anew, whatever the store holds.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run again what failed in an earlier start.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what the ranks print.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the results to this file; see docs/json.md.")
]


def split_list(option: str, text: str) -> list[str]:
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not values:
        raise ValueError(f"{option} {text!r} names nothing; values are separated by commas")
    return values


def parse_worlds(text: str) -> list[int]:
    """`1,2,4` → [1, 2, 4]."""
    worlds = split_list("--nproc", text)
    for world in worlds:
        if not world.isdecimal():
            raise ValueError(f"--nproc {text!r}: {world!r} is not a number of ranks; try --nproc 1,2")
    return [int(world) for world in worlds]
