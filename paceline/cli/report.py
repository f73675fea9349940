"""`paceline report`: a stored study as PDF, page, tables and plots.

In: the store and the name of a study. Out: a folder. Exercise: `paceline report demo`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.options import DEFAULT_STORE, StorePath
from paceline.cli.studies import StudyName, load_rows


def add_to(app: typer.Typer) -> None:
    app.command()(report)


def report(
    study: StudyName,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write; default: report/STUDY.")
    ] = None,
    author: Annotated[str, typer.Option(help="Whose report it is.")] = "",
    page_limit: Annotated[
        int | None,
        typer.Option("--page-limit", min=1, help="Set the PDF smaller until it has so many pages."),
    ] = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Write a study's report: report.pdf, report.html, tables and plots.

    Exit code 1: a part of it is missing, or the page limit is not kept; what and why is on standard error.
    """
    name, rows, runs = load_rows(store, study)

    from paceline.report.study_report import build_study_report
    from paceline.report.write import write_report
    from paceline.store import Store

    folder = out or Path("report") / name
    if not rows:
        raise ValueError(f"{name} holds no run yet; the command that measures it goes on where it stopped")
    with Store(store, readonly=True) as opened:
        spec = next(info.spec for info in opened.studies() if info.name == name)
    document = build_study_report(
        name, rows, runs, command=spec.get("command", ""), author=author, page_limit=page_limit
    )
    written = write_report(document, folder)
    for problem in written.problems:
        print(f"paceline: {problem}", file=sys.stderr)
    for path in written.paths:
        print(path)
    raise typer.Exit(1 if written.problems else 0)
