"""A document as one page that needs nothing else: no script, no font, no picture from outside.

In: a `Document`. Out: HTML with charts as inline SVG that follow the reader's theme, light or dark, and are
drawn once for a wide screen and once for a phone.
Exercise: `pytest tests/unit/test_report_html.py tests/browser`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from paceline.report.document import (
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Figure,
    Formula,
    Paragraph,
    Question,
    Section,
    SideBySide,
    Table,
    as_cell,
    marked_notes,
    number,
    split_text,
)
from paceline.report.drawing import ASSETS, MissingPackage
from paceline.report.formula import draw_formula
from paceline.report.palette import css_variables, follow_theme, hatch
from paceline.report.words import BREAK, keep_units, may_break

WIDE_PX, HALF_PX = 680, 340
# A row's name of so many letters stays on one line.
SHORT = 20
# A cell of more is a sentence: the table scrolls before it becomes a column of single words.
LONG = 30


def render_html(document: Document) -> str:
    """The whole page, the same on every repeat."""
    page = _Page(document)
    return "\n".join((*page.head(), *page.front(), *page.body(), "</main>", "</body>", "</html>", ""))


class _Page:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.labels = number(document)

    def head(self) -> list[str]:
        return [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(self.document.title)}</title>",
            "<style>",
            f":root {{ {css_variables(dark=False)} }}",
            f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {css_variables(dark=True)} }} }}",
            (ASSETS / "report.css").read_text(encoding="utf-8"),
            "</style>",
            "</head>",
            "<body>",
            "<main>",
        ]

    def front(self) -> list[str]:
        document = self.document
        lines = ["<header>", f"<h1>{_flow(document.title)}</h1>"]
        if document.subtitle:
            lines.append(f'<p class="subtitle">{self.inline(document.subtitle)}</p>')
        if document.author:
            lines.append(f'<p class="author">{escape(document.author)}</p>')
        if document.about:
            lines.append("<dl>")
            lines += (f"<dt>{escape(name)}</dt><dd>{self.inline(text)}</dd>" for name, text in document.about)
            lines.append("</dl>")
        lines.append("</header>")
        if document.caveats:
            items = "".join(f"<li>{self.inline(text)}</li>" for text in document.caveats)
            lines.append(f'<aside aria-label="Read this first"><ul>{items}</ul></aside>')
        return lines

    def body(self) -> list[str]:
        return [line for section in self.document.sections for line in self.section(section)]

    def section(self, section: Section) -> list[str]:
        title = f"<h2>{self.inline(section.title)}</h2>"
        return ["<section>", title, *self.blocks(section.blocks), "</section>"]

    def blocks(self, blocks: Sequence[Block]) -> list[str]:
        return [line for block in blocks for line in self.block(block)]

    def block(self, block: Block) -> list[str]:
        match block:
            case Paragraph(text):
                return [f"<p>{self.inline(text)}</p>"]
            case Bullets(items):
                return ["<ul>", *(f"<li>{self.inline(item)}</li>" for item in items), "</ul>"]
            case Code(text):
                return [f'<pre tabindex="0"><code>{escape(text)}</code></pre>']
            case Formula():
                return [_formula(block)]
            case Table():
                return self.table(block)
            case Figure():
                return self.figure(block, WIDE_PX)
            case SideBySide(left, right):
                inside = [line for one in (left, right) for line in self.half(one)]
                return ['<div class="beside">', *inside, "</div>"]
            case Question(text, answer):
                return [f"<h3>{self.inline(text)}</h3>", *self.blocks(answer)]

    def half(self, block: Figure | Table) -> list[str]:
        return self.figure(block, HALF_PX) if isinstance(block, Figure) else self.table(block)

    def figure(self, figure: Figure, width_px: int) -> list[str]:
        label = self.labels[f"figure:{figure.name}"]
        try:
            drawn = [_inline_svg(figure, width_px, "wide" if width_px == WIDE_PX else "any")]
            if width_px == WIDE_PX:
                drawn.append(_inline_svg(figure, HALF_PX, "narrow"))
        except MissingPackage as missing:
            reason = f"<small>Not drawn: {escape(str(missing))}</small>"
            drawn = [f'<p class="undrawn">{escape(figure.alt)}{reason}</p>']
        caption = f"<figcaption><b>{label}.</b> {self.inline(figure.caption)}</figcaption>"
        return [f'<figure id="figure-{figure.name}">', *drawn, caption, "</figure>"]

    def table(self, table: Table) -> list[str]:
        label, caption_id = self.labels[f"table:{table.name}"], f"caption-{table.name}"
        headings = "".join(
            f'<th scope="col"{_classes(number=column.numeric)}>{self.inline(column.heading)}</th>'
            for column in table.columns
        )
        lines = [
            f'<figure id="table-{table.name}">',
            f'<figcaption id="{caption_id}"><b>{label}.</b> {self.inline(table.caption)}</figcaption>',
            f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{caption_id}">',
            f'<table aria-labelledby="{caption_id}">',
            f"<thead><tr>{headings}</tr></thead>",
            "<tbody>",
        ]
        for row in table.rows:
            cells = (
                self.cell(as_cell(cell), column.numeric, is_first=place == 0)
                for place, (cell, column) in enumerate(zip(row, table.columns, strict=True))
            )
            lines.append(f"<tr>{''.join(cells)}</tr>")
        lines += ["</tbody>", "</table>", "</div>"]
        for mark, note in marked_notes(table):
            lines.append(f'<p class="notes">{_raised(mark)}{" " * bool(mark)}{self.inline(note)}</p>')
        return [*lines, "</figure>"]

    def cell(self, cell: Cell, numeric: bool, *, is_first: bool) -> str:
        small = f"<small>{escape(cell.small)}</small>" if cell.small else ""
        inside = f"{_flow(cell.text)}{_raised(cell.mark)}{small}"
        if is_first:
            classes = _classes(number=numeric, short=len(cell.text) <= SHORT)
            return f'<th scope="row"{classes}>{inside}</th>'
        classes = _classes(number=numeric, text=not numeric, long=len(cell.text) > LONG)
        return f"<td{classes}>{inside}</td>"

    def inline(self, text: str) -> str:
        parts = []
        for run in split_text(text, self.labels):
            inside = _flow(run.text)
            match run.kind:
                case "code":
                    inside = f"<code>{inside}</code>"
                case "strong":
                    inside = f"<strong>{inside}</strong>"
                case "reference":
                    inside = f'<a href="#{run.target.replace(":", "-")}">{inside}</a>'
            parts.append(inside)
        return "".join(parts)


def _flow(text: str) -> str:
    # Not the invisible letter itself, which would be copied along.
    return escape(may_break(keep_units(text))).replace(BREAK, "<wbr>")


def _raised(mark: str) -> str:
    return f"<sup>{escape(mark)}</sup>" if mark else ""


def _classes(**applies: bool) -> str:
    names = " ".join(name for name, does in applies.items() if does)
    return f' class="{names}"' if names else ""


def _inline_svg(figure: Figure, width_px: int, variant: str) -> str:
    svg = hatch(figure.drawing.draw(width_px), f"{figure.name}-{variant}")
    described = f'<svg role="img" aria-label="{escape(figure.alt)}" class="{variant}"'
    return follow_theme(svg).replace("<svg", described, 1)


def _formula(formula: Formula) -> str:
    try:
        svg = draw_formula(formula.math)
    except MissingPackage:
        return f'<p class="formula">{escape(formula.text)}</p>'
    described = svg.replace("<svg", f'<svg role="img" aria-label="{escape(formula.text)}"', 1)
    return f'<div class="formula">{described}</div>'
