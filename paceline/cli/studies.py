"""`paceline list`, `show`, `diff` and `export`: what the store holds, without measuring anything.

In: the store and names of studies. Out: tables, CSV or JSON. Exercise: `paceline list`.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from paceline.cli.options import DEFAULT_STORE, StorePath

if TYPE_CHECKING:
    from paceline.record import Row, RunRecord

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="Its name, or the beginning of it.")]


def add_to(app: typer.Typer) -> None:
    app.command("list")(list_studies)
    app.command()(show)
    app.command()(diff)
    app.command()(export)


def load_rows(store_path: Path, prefix: str) -> tuple[str, list[Row], list[RunRecord]]:
    """The full name of a study, its rows with findings, and the runs that they rest on."""
    from paceline.analyse import summarise
    from paceline.explain import explain
    from paceline.selection import select_newest
    from paceline.store import Store

    with Store(store_path, readonly=True) as store:
        name = store.find_study(prefix)
        runs, older = select_newest(store.runs(name))
    if older:
        print(
            f"paceline: {name}: {len(older)} runs of an older script or of other options are left out",
            file=sys.stderr,
        )
    return name, explain(summarise(runs), runs), runs


def list_studies(store: StorePath = DEFAULT_STORE) -> None:
    """List the studies of a store."""
    from rich.console import Console
    from rich.markup import escape

    from paceline.report.terminal import make_table
    from paceline.store import Store

    with Store(store, readonly=True) as opened:
        studies = opened.studies()
    table = make_table()
    for heading in ("study", "program", "runs", "last measured"):
        table.add_column(heading, overflow="fold")
    for study in studies:
        runs = ", ".join(f"{count} {status}" for status, count in sorted(study.statuses.items())) or "none"
        when = datetime.datetime.fromtimestamp(study.last).strftime("%Y-%m-%d %H:%M")
        table.add_row(*(escape(cell) for cell in (study.name, ", ".join(study.programs), runs, when)))
    Console(highlight=False).print(table if studies else f"{store} holds no study yet")


def show(
    study: StudyName,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="The whole traceback of runs that failed.")
    ] = False,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Show a study: its table, findings, warm-up, phases and memory."""
    from rich.console import Console

    from paceline.report.details import print_details, print_tracebacks
    from paceline.report.terminal import print_study

    name, rows, runs = load_rows(store, study)
    console = Console(highlight=False)
    print_study(name, rows, console)
    print_details(rows, runs, console)
    if traceback:
        print_tracebacks(runs, console)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The study to compare with.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The study that is judged.")],
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Compare two studies: ratios with intervals, and a verdict."""
    from rich.console import Console

    from paceline.report.comparison import compare, print_comparisons

    name_a, rows_a, runs_a = load_rows(store, a)
    name_b, rows_b, runs_b = load_rows(store, b)
    comparisons = compare(rows_a, runs_a, rows_b, runs_b)
    if not comparisons:
        raise ValueError(
            f"{name_a} and {name_b} have no configuration in common: "
            "the same arguments, world and placement; `paceline show` lists those of each"
        )
    console = Console(highlight=False)
    print_comparisons(name_a, name_b, comparisons, console)
    alone = len(rows_a) + len(rows_b) - 2 * len(comparisons)
    if alone:
        console.print(f"\n{alone} configurations are in one of the two only")


def export(
    study: StudyName,
    format: Annotated[
        Literal["csv", "json"], typer.Option(help="csv: a line per metric; json: docs/json.md.")
    ] = "csv",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write.", show_default="standard output"
        ),
    ] = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Write a study as CSV or JSON."""
    from paceline.report.export import to_csv, to_json

    name, rows, _ = load_rows(store, study)
    text = to_csv(rows) if format == "csv" else to_json(name, rows)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
