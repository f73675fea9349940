"""`paceline bench`: measure a study that is written down in TOML.

In: a study file. Out: what cli/measuring.py shows. Exercise: `paceline bench examples/study.toml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.options import DEFAULT_STORE, Fresh, JsonFile, Retry, StorePath, Verbose


def add_to(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    study_file: Annotated[Path, typer.Argument(metavar="STUDY.TOML", help="See docs/study-files.md.")],
    store: StorePath = DEFAULT_STORE,
    json: JsonFile = None,
    fresh: Fresh = False,
    retry: Retry = False,
    verbose: Verbose = False,
) -> None:
    """Measure what a study file describes: the same as `run`, to be kept and repeated.

    All mistakes of the file are reported at once, each with its line and column.
    """
    from paceline.study_file import load_study

    study = load_study(study_file)

    from paceline.cli.measuring import describe_command, measure_and_show

    spec = describe_command() | {"toml": study_file.read_text(encoding="utf-8")}
    measure_and_show(study, spec, store_path=store, json_file=json, fresh=fresh, retry=retry, verbose=verbose)
