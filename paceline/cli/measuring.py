"""What `run` and `bench` share: measure a study, show it, and leave with the exit code that says how it went.

In: a study, and where to keep it. Out: the table and findings on standard output, perhaps a JSON file.
Exercise: `paceline bench examples/study.toml`.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paceline.analyse import summarise
from paceline.cli.options import DEFAULT_STORE
from paceline.cli.progress import make_reporter
from paceline.explain import explain
from paceline.measure import measure
from paceline.record import RunRecord
from paceline.report.export import write_json
from paceline.report.terminal import print_study
from paceline.store import Store
from paceline.study import Study
from paceline.virtual.build import build_library

# As shells count a process that Ctrl-C ended.
INTERRUPTED = 130


def measure_and_show(
    study: Study,
    spec: dict[str, Any],
    *,
    store_path: Path,
    json_file: Path | None,
    fresh: bool,
    retry: bool,
    verbose: bool,
) -> NoReturn:
    """Exit code 0: every configuration has a good run; 1: some have none; 130: Ctrl-C."""
    if json_file is not None:
        check_json_file(json_file)
    if study.options.virtual_devices:
        build_library()  # or every rank of every run would say why it cannot
    with Store(store_path) as store:
        store.begin_study(study.name, spec)
        try:
            with make_reporter(study, verbose=verbose) as reporter:
                records = measure(study, store, fresh=fresh, retry=retry, reporter=reporter)
        except KeyboardInterrupt:
            print(
                f"\npaceline: interrupted; what was measured is kept in {store_path}, "
                "and the same command goes on from there",
                file=sys.stderr,
            )
            raise typer.Exit(INTERRUPTED) from None
    rows = explain(summarise(records), records)
    console = Console(highlight=False)
    console.print()
    print_study(study.name, rows, console)
    if json_file is not None:
        write_json(study.name, rows, json_file)
    print_whereabouts(study, records, console, store_path, json_file)
    raise typer.Exit(0 if all(row.status == "ok" for row in rows) else 1)


def check_json_file(path: Path) -> None:
    """Before anything is measured: that which could not be written would be missed an hour later."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"--json {path}: there is no folder {path.parent}")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"--json {path}: you may not write to the folder {path.parent}")
    # A link would be replaced by the file, /dev/stdout among them.
    if path.is_symlink() or (path.exists() and not path.is_file()):
        what = "a folder" if path.is_dir() else "no ordinary file"
        raise ValueError(
            f"--json {path} is {what}; name a file, such as results.json. "
            "`paceline export STUDY --format json` writes to standard output"
        )


def print_whereabouts(
    study: Study, records: list[RunRecord], console: Console, store_path: Path, json_file: Path | None
) -> None:
    """Where the results are, and what to do with them."""
    files = f"{store_path} (study {study.name})" + (f" and {json_file}" if json_file else "")
    # Commands find the default store by themselves.
    option = "" if store_path == DEFAULT_STORE else f" --store {shlex.quote(str(store_path))}"
    console.print(Text(f"Written to {files}."), soft_wrap=True)
    steps = [
        ("phases, memory, warm-up", f"paceline show {study.name}{option}"),
        ("as a table for other programs", f"paceline export {study.name}{option} --format csv"),
    ]
    if any(record.status != "ok" for record in records):
        steps.insert(0, ("what failed, in full", f"paceline show --traceback {study.name}{option}"))
    table = Table.grid(padding=(0, 2))
    for why, command in steps:
        table.add_row(Text(f"  {why}"), Text(command, style="bold", no_wrap=True, overflow="fold"))
    console.print(table)


def describe_command() -> dict[str, Any]:
    """What the user asked for, as the store keeps it."""
    return {"command": shlex.join(["paceline", *sys.argv[1:]]), "directory": str(Path.cwd())}
