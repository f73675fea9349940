"""The command line: one small file per group of commands; each parses, calls and prints.

A user's mistake is one message on standard error and exit code 2; PACELINE_DEBUG=1 shows the traceback
as well. Exercise: `paceline --help`.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from paceline import __version__
from paceline.cli import bench, doctor, lab, report, run, studies

app = typer.Typer(
    name="paceline",
    help="Measures, explains and predicts how a PyTorch model trains in parallel.",
    epilog="Start with: paceline run --nproc 1,2 train.py",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
run.add_to(app)
bench.add_to(app)
doctor.add_to(app)
studies.add_to(app)
report.add_to(app)
lab.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"paceline {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measures, explains and predicts how a PyTorch model trains in parallel."""


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Where a letter cannot be shown, a ? in its place is no reason to end without the numbers.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (ValueError, OSError) as error:
        if os.environ.get("PACELINE_DEBUG"):
            raise
        # "[Errno 2] No such file or directory: 'x'" is Python's way to say it.
        said = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        )
        print(f"paceline: {said}", file=sys.stderr)
        sys.exit(2)
