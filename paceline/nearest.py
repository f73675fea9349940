"""The nearest thing that works, for messages about what does not.

In: what a user wrote and what would have been accepted. Out: the half-sentence that helps.
Exercise: `pytest tests/unit/test_study.py -k nearest`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


def nearest_of(name: str, choices: Iterable[str]) -> str:
    """`did you mean 'steps'?`, or the whole list when nothing is near."""
    choices = list(choices)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(choices)}"


def find_program(program: str) -> Path:
    """The script's path, or a ValueError that names the file in its directory that looks most like it."""
    path = Path(program)
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{program} is a directory, a Python script is wanted")
    folder = path.parent
    scripts = sorted(other.name for other in folder.glob("*.py")) if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, scripts, n=1, cutoff=0.5)
    raise ValueError(f"there is no file {program}" + (f"; did you mean {folder / near[0]}?" if near else ""))
