"""`paceline lab check`: run students' scripts and say what they do right and wrong.

In: a lab, files. Out: a table per file, a summary for several, or JSON for an instructor.
Exercise: `paceline lab check hw2 labs/hw2/practical5_single.py`.
"""

from __future__ import annotations

import json as json_format
import os
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.quantity import parse_duration_s

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.check.check import FileReport

STYLES = {"pass": "green", "fail": "bold red", "unknown": "yellow"}
WORDS = {"pass": "pass", "fail": "FAIL", "unknown": "cannot tell"}


def add_to(app: typer.Typer) -> None:
    app.command()(check)


def check(
    lab: Annotated[str, typer.Argument(metavar="LAB", help="practical7, hw1, hw2 or hw3.")],
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Students' scripts, one or many.")],
    script: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which of the lab's scripts: accumulation, amp, both; ddp, dataparallel; static, dynamic.",
            show_default="found out",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; see docs/check.md.")] = False,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="What one run of one script may take.")
    ] = "120s",
    nproc: Annotated[int, typer.Option(min=2, help="Ranks for the scripts that use several.")] = 2,
) -> None:
    """Check scripts by what they do: each runs by itself, for a limited time, in a copy of its folder.

    Exit code 0: no check failed; 1: some failed; 2: a mistake in the command.
    """
    # torch's launcher and numpy come with it: not for `--help`.
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from paceline.check.check import as_json, check_file, find_lab, find_script
    from paceline.nearest import find_program

    lab, script, timeout_s = find_lab(lab), find_script(find_lab(lab), script), parse_duration_s(timeout)
    for file in files:
        if not os.access(find_program(file), os.R_OK):
            raise ValueError(f"{file} cannot be read: leave it out, or allow it with chmod +r")
    reports: list[FileReport] = []
    console = Console(highlight=False)
    for number, file in enumerate(files, 1):
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            progress.add_task(f"{file} ({number} of {len(files)})", total=None)
            reports.append(check_file(lab, file, script=script, num_ranks=nproc, timeout_s=timeout_s))
        if not json:  # at once: a hundred files take long, and may be interrupted
            print_report(reports[-1], console)
    if json:
        print(json_format.dumps(as_json(reports), indent=2))
    elif len(reports) > 1:
        print_summary(reports, console)
    raise typer.Exit(1 if any(report.answer == "fail" for report in reports) else 0)


def print_report(report: FileReport, console: Console) -> None:
    """A line per check; under a failure, what to change."""
    from rich.table import Table
    from rich.text import Text

    from paceline.check.scripts import CHECKS

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, verdict in report.verdicts.items():
        beside = f"{verdict.file}, " if verdict.file else ""
        where = f"{beside}line {verdict.line}: " if verdict.line else ""
        said = Text(f"{CHECKS[name][0]}: ", style="bold" if verdict.answer == "fail" else "")
        said.append(where, style="bold").append(verdict.reason, style="not bold dim")
        if verdict.change:
            said.append(f"\n→ {verdict.change}", style="not bold cyan")
        table.add_row(Text(WORDS[verdict.answer], style=STYLES[verdict.answer]), said)
    console.print()
    console.print(Text(report.file, style="bold"), soft_wrap=True)
    console.print(Text(f"{report.lab}, {report.script.title}, checked in {report.wall_s:.0f} s", style="dim"))
    console.print(table)
    console.print(Text(sum_up(report), style=STYLES[report.answer]))


def print_summary(reports: list[FileReport], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("file", "result", "what failed"):
        table.add_column(heading, overflow="fold")
    for report in reports:
        failed = [name for name, verdict in report.verdicts.items() if verdict.answer == "fail"]
        table.add_row(
            Text(report.file),
            Text(sum_up(report), style=STYLES[report.answer]),
            Text(", ".join(failed)),
        )
    console.print()
    console.print(table)


def sum_up(report: FileReport) -> str:
    counted = [
        (report.num("pass"), "passed"),
        (report.num("fail"), "failed"),
        (report.num("unknown"), "cannot tell"),
    ]
    return ", ".join(f"{number} {word}" for number, word in counted if number)
