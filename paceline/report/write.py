"""Write a document into a folder: report.pdf, report.html, tables/*.csv and *.md, plots/*.svg and *.png.

In: a `Document`. Out: the paths, and what a person should hear: a missing package, a page limit that is
not kept. Exercise: `paceline report STUDY`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.report.document import Document, Figure, figures_of, tables_of
from paceline.report.drawing import MissingPackage, rasterise
from paceline.report.html import render_html
from paceline.report.palette import hatch
from paceline.report.pdf import render_pdf
from paceline.report.table_files import to_csv, to_markdown

PLOT_PX = 640


@dataclass(frozen=True)
class Written:
    paths: list[Path]
    problems: list[str]  # each one sentence; empty when everything was written as asked


def write_report(document: Document, folder: Path) -> Written:
    """All forms of one document. What an absent package prevents is said once, the rest is written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = Written([], [])
    try:
        pdf = render_pdf(document)
        _write(written, folder / "report.pdf", pdf.content)
        if pdf.problem:
            written.problems.append(pdf.problem)
    except MissingPackage as missing:
        # A report of an earlier time would not match the page beside it.
        (folder / "report.pdf").unlink(missing_ok=True)
        written.problems.append(str(missing))
    _write(written, folder / "report.html", render_html(document).encode())
    for table in tables_of(document):
        _write(written, folder / "tables" / f"{table.name}.csv", to_csv(table).encode())
        _write(written, folder / "tables" / f"{table.name}.md", to_markdown(table).encode())
    for figure in figures_of(document):
        try:
            _write_plots(written, folder / "plots", figure)
        except MissingPackage as missing:
            if str(missing) not in written.problems:
                written.problems.append(str(missing))
    return written


def _write_plots(written: Written, folder: Path, figure: Figure) -> None:
    svg = hatch(figure.drawing.draw(PLOT_PX), figure.name)
    _write(written, folder / f"{figure.name}.svg", svg.encode())
    _write(written, folder / f"{figure.name}.png", rasterise(svg))


def _write(written: Written, path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    written.paths.append(path)
