"""`paceline lab`: list the course's labs, measure one, write its report again, check a student's script.

In: a lab's name. Out: the folder submission/LAB. Exercise: `paceline lab run hw2 --scale tiny`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import lab_check
from paceline.cli.options import DEFAULT_STORE, Fresh, Retry, StorePath, Verbose
from paceline.nearest import nearest_of

if TYPE_CHECKING:
    from paceline.labs.data import LabData
    from paceline.labs.plan import Host
    from paceline.labs.spec import Lab, ScaleName
    from paceline.store import Store

# As shells count a process that Ctrl-C ended.
INTERRUPTED = 130

LabName = Annotated[str, typer.Argument(metavar="LAB", help="practical7, hw1, hw2 or hw3.")]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        metavar="laptop|handout|tiny",
        help="How large and how often; handout is the course's constants.",
        show_default="handout with two GPUs or more, else laptop",
    ),
]
OptionOption = Annotated[
    str | None,
    typer.Option(metavar="A|B|C|all", help="Homework 1's research options: one of them.", show_default="all"),
]
Author = Annotated[str, typer.Option(metavar="NAME", help="Whose report it is.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="The folder to write.", show_default="submission/LAB")
]


def add_to(app: typer.Typer) -> None:
    labs = typer.Typer(no_args_is_help=True, help="The course's labs: measure, report, check.")
    labs.command("list")(list_labs)
    labs.command()(run)
    labs.command()(report)
    lab_check.add_to(labs)
    app.add_typer(labs, name="lab")


def list_labs() -> None:
    """List the labs, and how many launches each takes at each scale."""
    from rich.console import Console

    from paceline.labs.plan import studies_for
    from paceline.labs.spec import SCALES, find_labs, load_lab
    from paceline.report.terminal import make_table

    table = make_table()
    for heading in ("lab", "what it is about", "tasks"):
        table.add_column(heading, overflow="fold")
    for scale in SCALES:
        table.add_column(f"{scale}\nlaunches", justify="right")
    for name, path in find_labs().items():
        lab = load_lab(path)
        launches = [
            str(sum(len(study.configs) * study.rounds for study in studies_for(lab, scale)))
            for scale in SCALES
        ]
        table.add_row(name, lab.title, ", ".join(task.id for task in lab.tasks), *launches)
    console = Console(highlight=False)
    console.print(table)
    console.print("A launch takes 3 to 5 seconds at laptop and tiny. `paceline lab run LAB` measures one.")


def run(
    lab: LabName,
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="Measure one task only.", show_default="all of them")
    ] = None,
    scale: ScaleOption = None,
    option: OptionOption = None,
    author: Author = "",
    out: Out = None,
    store: StorePath = DEFAULT_STORE,
    fresh: Fresh = False,
    retry: Retry = False,
    verbose: Verbose = False,
) -> None:
    """Measure a lab and write what a student hands in.

    The same command again measures only what is missing. It ends with 0 when all went well, 1 when a run
    failed or a part of the report is missing, 2 for a mistake in the command and 130 after Ctrl-C.
    """
    from paceline.labs.spec import find_lab

    found = find_lab(lab)
    if task is not None:
        found.task(task)
    chosen_option = _find_option(found, option)
    chosen_scale = _find_scale(scale)

    # numpy and scipy come with these: not for `--help`, and not for a mistake above.
    from paceline.cli.measuring import describe_command
    from paceline.cli.progress import make_reporter
    from paceline.labs.runner import LabRun, describe_host
    from paceline.labs.submission import check_packages
    from paceline.store import Store
    from paceline.virtual.build import build_library

    check_packages()
    host = describe_host(found, chosen_scale, build_library)
    _say_refusals(found, chosen_scale, task, chosen_option, host)
    with Store(store) as opened:
        try:
            LabRun(
                found,
                chosen_scale,
                task,
                chosen_option,
                host,
                opened,
                describe_command(),
                lambda study: make_reporter(study, verbose=verbose),
                fresh=fresh,
                retry=retry,
            ).measure()
        except KeyboardInterrupt:
            print(
                f"\npaceline: interrupted; what was measured is kept in {store}, "
                "and the same command goes on from there",
                file=sys.stderr,
            )
            raise typer.Exit(INTERRUPTED) from None
        _write(found, chosen_scale, chosen_option, host, opened, author, out)


def report(
    lab: LabName,
    scale: ScaleOption = None,
    option: OptionOption = None,
    author: Author = "",
    out: Out = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Write a lab's report again from the store, without running anything.

    Exit code 1: a part of it is missing, or the page limit is not kept; what and why is on standard error.
    """
    from paceline.labs.spec import find_lab

    found = find_lab(lab)
    chosen_option = _find_option(found, option)

    from paceline.labs.runner import describe_host
    from paceline.store import Store
    from paceline.virtual.build import build_library

    with Store(store, readonly=True) as opened:
        names = [info.name for info in opened.studies()]
        chosen_scale = _find_scale(scale) if scale else _measured_scale(found, names)
        host = describe_host(found, chosen_scale, build_library)
        _write(found, chosen_scale, chosen_option, host, opened, author, out)


def _write(
    lab: Lab, scale: ScaleName, option: str | None, host: Host, store: Store, author: str, out: Path | None
) -> None:
    from paceline.labs.runner import load_data
    from paceline.labs.submission import find_disturbance, write_submission

    folder = out or Path("submission") / lab.name
    data = load_data(lab, scale, option, host, store)
    asked = [str(info.spec.get("command", "")) for info in store.studies() if info.name in _studies(data)]
    written = write_submission(data, folder, author=author, asked=[command for command in asked if command])
    for problem in written.problems:
        print(f"paceline: {problem}", file=sys.stderr)
    for said in [*data.failures(), *find_disturbance(data)]:
        print(f"paceline: {said}", file=sys.stderr)
    for path in written.paths:
        print(shlex.quote(str(path)))
    raise typer.Exit(1 if written.problems or data.failures() else 0)


def _studies(data: LabData) -> set[str]:
    return {planned.study for planned in data.plan}


def _say_refusals(lab: Lab, scale: ScaleName, task: str | None, option: str | None, host: Host) -> None:
    from paceline.labs.plan import plan

    said = dict.fromkeys(
        f"{planned.experiment.title}: {planned.refusal}"
        for planned in plan(lab, scale, task, option, host)
        if planned.refusal
    )
    for text in said:
        print(f"paceline: {text}", file=sys.stderr)


def _find_scale(scale: str | None) -> ScaleName:
    from paceline.labs.spec import SCALES
    from paceline.machine import describe_accelerators

    if scale is None:
        return "handout" if len(describe_accelerators()["devices"]) >= 2 else "laptop"
    for known in SCALES:
        if scale == known:
            return known
    raise ValueError(f"there is no scale {scale!r}; {nearest_of(scale, SCALES)}")


def _measured_scale(lab: Lab, studies: list[str]) -> ScaleName:
    """The scale that the store has seen last."""
    from paceline.labs.spec import SCALES

    for study in reversed(studies):
        for scale in SCALES:
            if study == f"{lab.name}-{scale}" or study.startswith(f"{lab.name}-{scale}-"):
                return scale
    raise ValueError(f"the store holds nothing of {lab.name}; `paceline lab run {lab.name}` measures it")


def _find_option(lab: Lab, option: str | None) -> str | None:
    if option in (None, "all"):
        return None
    options = sorted({e.option for task in lab.tasks for e in task.experiments if e.option})
    if option not in options:
        choices = [*options, "all"] if options else []
        hint = nearest_of(str(option), choices) if choices else f"{lab.name} has none"
        raise ValueError(f"{lab.name} has no option {option!r}; {hint}")
    return option
