"""Mistakes that people make, each as an edit of a correct program, and the checks that must fail for it.

A mistake has consequences: without no_sync() nothing else is wrong, but an undivided loss also makes the
gradient differ from that of one large batch. `fails` names all checks that fail, so that none fails falsely.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Edited:
    """A correct program with some of its text changed."""

    name: str
    lab: str
    program: str
    edits: tuple[tuple[str, str], ...]  # text that occurs once → what stands there instead


@dataclass(frozen=True)
class Mistake(Edited):
    fails: frozenset[str]
    devices: int = 0  # virtual ones
    line: str = ""  # what the line that the first of `fails` names must contain


def mistake(
    name: str, lab: str, program: str, *edits: tuple[str, str], fails: str, line: str = "", devices: int = 0
) -> Mistake:
    return Mistake(name, lab, program, edits, frozenset(fails.split()), devices, line)


def write_script(edited: Edited, folder: Path) -> Path:
    source = (PROGRAMS / edited.program).read_text()
    for old, new in edited.edits:
        assert source.count(old) == 1, f"{edited.name}: {old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)
    path = folder / f"{edited.name}.py"
    path.write_text(source)
    return path
