"""A document as PDF, set by Typst with fonts of our own: byte for byte the same on repeat and elsewhere.

In: a `Document`. Out: the PDF, with its number of pages, set smaller by steps until it keeps the limit.
Nothing is cut: what does not fit at the smallest readable size is set so, and `problem` says it.
Exercise: `pytest tests/unit/test_report_pdf.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.report.document import (
    Block,
    Bullets,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Formula,
    Paragraph,
    Question,
    SideBySide,
    Table,
    as_cell,
    marked_notes,
    number,
    split_text,
)
from paceline.report.drawing import ASSETS, MissingPackage
from paceline.report.formula import load_typst
from paceline.report.palette import hatch
from paceline.report.words import keep_units, may_break

# Text in points and height of figures: figures give way first, text never falls below what can be read.
SIZES = ((10.5, 1.0), (10.5, 0.85), (10.5, 0.7), (10.0, 0.7), (9.5, 0.65), (9.0, 0.6))
# The text's width on A4, and how wide a figure is drawn for it: labels come out at about 8 pt.
WIDE_PX, HALF_PX, PT_PER_PX = 640, 310, 0.75

# Letters of one point that a line of a table holds; intervals stand beside their values where there is room.
LETTERS = 1090

# Scripts that the fonts we carry do not have: a name in one of them is set with the machine's fonts, if any.
_BEYOND_OUR_FONTS = re.compile("[\u0530-\u1dff\u2e80-\U0010ffff]")


@dataclass(frozen=True)
class Pdf:
    content: bytes
    num_pages: int
    font_size_pt: float
    problem: str = ""  # one sentence when the page limit is not kept


def render_pdf(document: Document) -> Pdf:
    """Set the document at the first of SIZES at which it keeps its page limit."""
    limit = document.page_limit
    for font_size_pt, figure_scale in SIZES:
        content = _compile(document, font_size_pt, figure_scale)
        pages = num_pages(content)
        if limit is None or pages <= limit:
            return Pdf(content, pages, font_size_pt)
    problem = (
        f"the PDF has {pages} pages, the limit is {limit}, even with text at {font_size_pt:g} pt and figures "
        f"at {figure_scale:.0%} of their height: leave out a figure or shorten an answer"
    )
    return Pdf(content, pages, font_size_pt, problem)


def num_pages(pdf: bytes) -> int:
    """Pages of a PDF that Typst wrote: the count of its page tree's root, the largest of the tree."""
    counts = re.findall(rb"/Type\s*/Pages\s*/Count\s+(\d+)", pdf)
    if not counts:
        raise ValueError("this PDF has no page tree that can be read; was it written by Typst?")
    return max(int(count) for count in counts)


def _compile(document: Document, font_size_pt: float, figure_scale: float) -> bytes:
    typst = load_typst()
    plain = _Plain(document, font_size_pt, figure_scale).document() | {"font_size": font_size_pt}
    data = json.dumps(plain, ensure_ascii=False)
    content: bytes = typst.compile(
        ASSETS / "report.typ",
        root=ASSETS,
        font_paths=[ASSETS],
        ignore_system_fonts=not _BEYOND_OUR_FONTS.search(data),
        sys_inputs={"data": data},
        format="pdf",
    )
    return content


class _Plain:
    """The document as the template reads it: text cut into runs, figures drawn."""

    def __init__(self, document: Document, font_size_pt: float, figure_scale: float) -> None:
        self._document = document
        self._letters = int(LETTERS / font_size_pt)
        self._figure_scale = figure_scale
        self._labels = number(document)

    def document(self) -> dict[str, Any]:
        document = self._document
        return {
            "title": document.title,
            "subtitle": self.runs(document.subtitle),
            "author": document.author,
            "about": [[name, self.runs(text)] for name, text in document.about],
            "caveats": [self.runs(text) for text in document.caveats],
            "footer": " · ".join(filter(None, (document.title, document.author))),
            "sections": [
                {"title": self.runs(section.title), "blocks": self.blocks(section.blocks)}
                for section in document.sections
            ],
        }

    def runs(self, text: str) -> list[dict[str, str]]:
        return [asdict(run) | {"text": _flow(run.text)} for run in split_text(text, self._labels)]

    def blocks(self, blocks: Sequence[Block]) -> list[dict[str, Any]]:
        return [self.block(block) for block in blocks]

    def block(self, block: Block) -> dict[str, Any]:
        match block:
            case Paragraph(text):
                return {"kind": "paragraph", "text": self.runs(text)}
            case Bullets(items):
                return {"kind": "bullets", "items": [self.runs(item) for item in items]}
            case Code(text):
                return {"kind": "code", "text": text}
            case Formula(math, text):
                return {"kind": "formula", "math": math, "text": text}
            case Table():
                return self.table(block, self._letters)
            case Figure():
                return self.figure(block, WIDE_PX)
            case SideBySide(left, right):
                return {"kind": "beside", "left": self.half(left), "right": self.half(right)}
            case Question(text, answer):
                return {"kind": "question", "text": self.runs(text), "answer": self.blocks(answer)}

    def half(self, block: Figure | Table) -> dict[str, Any]:
        return (
            self.figure(block, HALF_PX)
            if isinstance(block, Figure)
            else self.table(block, self._letters // 2)
        )

    def figure(self, figure: Figure, width_px: int) -> dict[str, Any]:
        alt = figure.alt
        svg: str | None = None
        try:
            svg = hatch(figure.drawing.draw(width_px, self._figure_scale), figure.name)
        except MissingPackage as missing:
            alt = f"{alt} (Not drawn: {missing})"
        return {
            **self.named("figure", figure.name, figure.caption),
            "alt": alt,
            "svg": svg,
            "width_pt": width_px * PT_PER_PX,
        }

    def table(self, table: Table, letters: int) -> dict[str, Any]:
        cells = [[as_cell(cell) for cell in row] for row in table.rows]
        has_small = [
            column.numeric and any(row[place].small for row in cells)
            for place, column in enumerate(table.columns)
        ]
        beside = has_small if _width_beside(table.columns, cells) <= letters else [False] * len(has_small)
        return {
            **self.named("table", table.name, table.caption),
            "columns": [
                {"heading": self.runs(column.heading), "numeric": column.numeric, "beside": is_beside}
                for column, is_beside in zip(table.columns, beside, strict=True)
            ],
            "rows": [
                [{"text": _flow(c.text), "small": _flow(c.small), "mark": c.mark} for c in row]
                for row in cells
            ],
            "notes": [{"mark": mark, "text": self.runs(note)} for mark, note in marked_notes(table)],
        }

    def named(self, kind: str, name: str, caption: str) -> Mapping[str, Any]:
        key = f"{kind}:{name}"
        return {"kind": kind, "key": key, "label": self._labels[key], "caption": self.runs(caption)}


def _flow(text: str) -> str:
    return may_break(keep_units(text))


def _width_beside(columns: Sequence[Column], cells: Sequence[Sequence[Cell]]) -> float:
    """Letters of a line when small texts stand beside their values."""
    widths = [
        max([len(column.heading), *(len(row[place].text) + 0.84 * len(row[place].small) for row in cells)])
        for place, column in enumerate(columns)
    ]
    return sum(widths) + 1.9 * len(widths)
