"""What a student hands in: scripts, report, tables, plots, commands, machine and versions.

In: a `LabData`. Out: a folder, and what a person should hear. Exercise: `paceline lab report hw2`.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from paceline.labs.answers import ANSWERS
from paceline.labs.answers.every_lab import build_every_experiment
from paceline.labs.constants import describe_constants
from paceline.labs.data import LabData, is_table
from paceline.record import RunRecord
from paceline.report.document import Block, Document, Paragraph, Section
from paceline.report.drawing import MissingPackage
from paceline.report.provenance import describe_runs, find_caveats
from paceline.report.write import Written, write_report

# What stands in these two folders is the report's own: an older report's files would contradict it.
OUTPUTS = {"tables": (".csv", ".md"), "plots": (".svg", ".png")}


def check_packages() -> None:
    """Before hours of measuring, not after: can the report be set and drawn?"""
    for module, package, purpose in (
        ("typst", "typst", "setting report.pdf"),
        ("vl_convert", "vl-convert-python", "drawing charts"),
    ):
        if importlib.util.find_spec(module) is None:
            raise MissingPackage(package, purpose)


def build_document(data: LabData, author: str = "") -> Document:
    """The lab's report: one section per task of which something was measured, and what is missing."""
    lab = data.lab
    build = ANSWERS.get(lab.name, build_every_experiment)
    sections = [
        section
        for task, section in zip(lab.tasks, build(data), strict=True)
        if data.is_task_measured(task) and section.blocks
    ]
    missing = [task for task in lab.tasks if not data.is_task_measured(task)]
    if missing:
        commands = "; ".join(f"`paceline lab run {lab.name} --task {task.id}`" for task in missing)
        said: list[Block] = [Paragraph(f"Not measured yet, and so not answered: {commands}.")]
        sections.append(Section("Tasks that are missing", said))
    timed = [run for run in data.runs if not is_table(run)] or data.runs
    about = [
        entry for entry in describe_runs(timed) if entry[0] in ("Machine", "Software", "Measured", "Steps")
    ]
    return Document(
        title=lab.title,
        author=author,
        sections=sections,
        about=[*about, ("Constants", f"scale `{data.scale}`: {describe_constants(lab, data.scale)}")],
        caveats=[*find_caveats(timed), *_find_single_launches(data), *find_disturbance(data)],
        page_limit=lab.page_limit,
    )


def _find_single_launches(data: LabData) -> list[str]:
    """One launch knows nothing of how launches differ."""
    if data.lab.scales[data.scale].rounds > 1:
        return []
    return [
        f"At the scale {data.scale} most configurations were launched once: intervals hold for that "
        "launch, and launches differ by some per cent."
    ]


def find_disturbance(data: LabData) -> list[str]:
    """Whether other programs took the cores meanwhile: then no answer about times is worth much."""
    rows = data.measured
    disturbed = [row for row in rows if any(finding.code == "disturbed" for finding in row.findings)]
    if not disturbed:
        return []
    return [
        f"Other programs used the ranks' cores in {len(disturbed)} of {len(rows)} configurations: their "
        "times are too long and their intervals wide. Close the programs and run again with `--fresh`."
    ]


def write_submission(data: LabData, folder: Path, *, author: str, asked: Sequence[str]) -> Written:
    """`asked`: the commands that measured, as they were typed."""
    if not data.runs:
        raise ValueError(
            f"nothing of {data.lab.name} was measured at the scale {data.scale} yet; "
            f"`paceline lab run {data.lab.name} --scale {data.scale}` does it"
        )
    document = build_document(data, author)
    for name, suffixes in OUTPUTS.items():
        for old in (folder / name).glob("*"):
            if old.suffix in suffixes:
                old.unlink()
    written = write_report(document, folder)
    for script in data.lab.scripts:
        source = data.lab.folder / script
        written.paths.append(Path(shutil.copyfile(source, folder / source.name)))
    for name, text in (
        ("commands.txt", describe_all_commands(data, asked)),
        ("machine.json", json.dumps({"machine": data.machine, "versions": _versions(data)}, indent=2)),
    ):
        (folder / name).write_text(f"{text.rstrip()}\n", encoding="utf-8")
        written.paths.append(folder / name)
    return written


def describe_all_commands(data: LabData, asked: Sequence[str]) -> str:
    """What was typed, and for each configuration the command that runs it in this folder, measured or not."""
    lines = ["# Measured by", *dict.fromkeys(asked), "", "# which ran each of these in every round:"]
    lines += dict.fromkeys(shlex.join(_by_hand(run)) for run in data.runs)
    versions = ", ".join(f"{name} {version}" for name, version in _versions(data).items())
    return "\n".join([*lines, "", f"# with {versions}"])


def _by_hand(run: RunRecord) -> list[str]:
    """The launcher's own command needs what the launcher prepared; this one needs nothing."""
    script = [Path(run.program).name, *run.arguments]
    if is_table(run):
        return ["python", *script]
    if not run.options.get("virtual_devices"):
        return ["torchrun", "--standalone", f"--nproc_per_node={run.world}", *script]
    virtual = ["--virtual", str(run.options["virtual_devices"])]
    link = run.options.get("virtual_link")
    return [
        *("paceline", "run", "--nproc", str(run.world)),
        *virtual,
        *(["--virtual-link", link] if link else []),
        *script,
    ]


def _versions(data: LabData) -> dict[str, str]:
    return max(data.runs, key=lambda run: run.started).versions
