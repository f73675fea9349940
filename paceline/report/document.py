"""A document as plain data: what the PDF, the page and the files of tables are all made from.

In: sections of paragraphs, tables, figures and questions. Out: the same, numbered, for the renderers. Text
may hold `code`, **strong words**, and references: @figure:speedup becomes "Figure 2", @table:times "Table 1".
Exercise: `pytest tests/unit/test_report_document.py`; docs/report.md has an example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from paceline.nearest import nearest_of
from paceline.record import Metric

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_ESCAPED = re.compile(r"\\([`*@])")
_INLINE = re.compile(
    r"\\(?P<escaped>[`*@])|`(?P<code>[^`\n]+)`|\*\*(?P<strong>(?:\\\*|[^*\n])+)\*\*"
    r"|@(?P<target>(?:figure|table):[a-z0-9][a-z0-9_-]*)"
)


class Drawing(Protocol):
    """A figure's content: an SVG painted with the colours of palette.py, for any width."""

    def draw(self, width_px: int, height_scale: float = 1.0) -> str: ...


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Commands or a listing, as they are."""

    text: str


@dataclass(frozen=True)
class Formula:
    """`math` in Typst's notation; `text` says the same in words, for who cannot see it."""

    math: str
    text: str


@dataclass(frozen=True)
class Column:
    heading: str
    numeric: bool = False


@dataclass(frozen=True)
class Cell:
    """What a reader sees: a text, in small its interval or the reason why there is no value, and a mark."""

    text: str
    small: str = ""
    mark: str = ""  # such as "†", explained in the table's notes
    metric: Metric | None = None  # the number behind the text, for the CSV


@dataclass(frozen=True)
class Table:
    name: str  # of its files
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name}: a row has {len(row)} cells, there are {len(self.columns)} columns"
                )


@dataclass(frozen=True)
class Figure:
    name: str  # of its files
    caption: str
    alt: str  # what it shows, for who cannot see it
    drawing: Drawing

    def __post_init__(self) -> None:
        _check_name(self.name)


@dataclass(frozen=True)
class SideBySide:
    """Two figures or tables beside each other; on a narrow screen below each other."""

    left: Figure | Table
    right: Figure | Table


@dataclass(frozen=True)
class Question:
    text: str
    answer: Sequence[Block]


Block = Paragraph | Bullets | Code | Formula | Table | Figure | SideBySide | Question


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    author: str = ""
    about: Sequence[tuple[str, str]] = ()  # ("Machine", "2 cores, …"): stands below the title
    caveats: Sequence[str] = ()  # what a reader must know before believing a number: on the first page
    page_limit: int | None = None


@dataclass(frozen=True)
class Run:
    """A stretch of text of one kind."""

    kind: Literal["text", "code", "strong", "reference"]
    text: str
    target: str = ""  # of a reference: "figure:speedup"


def walk(blocks: Sequence[Block]) -> Iterator[Block]:
    """Every block in reading order, those inside others too."""
    for block in blocks:
        yield block
        if isinstance(block, Question):
            yield from walk(block.answer)
        elif isinstance(block, SideBySide):
            yield from (block.left, block.right)


def figures_of(document: Document) -> list[Figure]:
    return [
        block for section in document.sections for block in walk(section.blocks) if isinstance(block, Figure)
    ]


def tables_of(document: Document) -> list[Table]:
    return [
        block for section in document.sections for block in walk(section.blocks) if isinstance(block, Table)
    ]


def number(document: Document) -> dict[str, str]:
    """`figure:speedup` → `Figure 1`, in reading order; a name that stands twice is an error."""
    labels: dict[str, str] = {}
    names = {
        "figure": [figure.name for figure in figures_of(document)],
        "table": [table.name for table in tables_of(document)],
    }
    for kind, found in names.items():
        for place, name in enumerate(found, start=1):
            key = f"{kind}:{name}"
            if key in labels:
                raise ValueError(f"two {kind}s are named {name!r}; each needs its own name")
            labels[key] = f"{kind.capitalize()} {place}"
    return labels


def split_text(text: str, labels: Mapping[str, str]) -> list[Run]:
    """Text → runs, references resolved."""
    runs: list[Run] = []
    at = 0
    for found in _INLINE.finditer(text):
        if found.start() > at:
            runs.append(Run("text", text[at : found.start()]))
        code, strong, target = found["code"], found["strong"], found["target"]
        if found["escaped"]:
            runs.append(Run("text", found["escaped"]))
        elif code is not None:
            runs.append(Run("code", code))
        elif strong is not None:
            runs.append(Run("strong", unescaped(strong)))
        elif target in labels:
            runs.append(Run("reference", labels[target], target))
        else:
            raise ValueError(f"@{target} refers to nothing in this document; {nearest_of(target, labels)}")
        at = found.end()
    if at < len(text):
        runs.append(Run("text", text[at:]))
    return runs


def marked_notes(table: Table) -> list[tuple[str, str]]:
    """The notes, each after the mark of a cell that it begins with: a mark is raised wherever it stands."""
    marks = {as_cell(cell).mark for row in table.rows for cell in row} - {""}
    notes = []
    for note in table.notes:
        mark, space, rest = note.partition(" ")
        notes.append((mark, rest) if mark in marks and space else ("", note))
    return notes


def as_text(found: str) -> str:
    """What a script, a shell or an error message said, so that no letter of it is read as markup."""
    return re.sub(r"[`*@]", r"\\\g<0>", found)


def as_code(found: str) -> str:
    """The same as code, which knows no escapes."""
    return f"`{' '.join(found.replace('`', chr(39)).split()) or ' '}`"


def unescaped(text: str) -> str:
    """A text of `as_text` as it was, for files without markup."""
    return _ESCAPED.sub(r"\1", text)


def as_cell(cell: Cell | str) -> Cell:
    return Cell(cell) if isinstance(cell, str) else cell


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a file: small letters, digits, - and _, such as 'step-time'")
