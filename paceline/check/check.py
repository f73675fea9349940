"""One file from start to verdict: run it as its lab asks, judge what was seen.

In: a lab, a file, options. Out: a `FileReport`, as a table's rows or as JSON (docs/check.md).
Exercise: `pytest tests/check/test_check_programs.py`.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.check.observations import Seen
from paceline.check.scripts import CHECKS, LABS, SCRIPTS, Script, guess_script, recognise_script
from paceline.check.verdicts.precision import switched_off
from paceline.check.verdicts.verdict import Answer, Verdict, fails, unknown
from paceline.check.world import run_observed
from paceline.nearest import find_program, nearest_of

JSON_VERSION = 1
DEFAULT_TIMEOUT_S = 120.0
MOST_DEVICES = 64  # for a model with fewer layers than devices


@dataclass(frozen=True)
class FileReport:
    """All verdicts on one file."""

    file: str
    lab: str
    script: Script
    verdicts: dict[str, Verdict]  # by check, in the order of the script's checks
    wall_s: float

    def num(self, answer: Answer) -> int:
        return sum(verdict.answer == answer for verdict in self.verdicts.values())

    @property
    def answer(self) -> Answer:
        """A file passes when nothing failed and something passed."""
        return "fail" if self.num("fail") else "pass" if self.num("pass") else "unknown"


def check_file(
    lab: str,
    file: str,
    *,
    script: str | None = None,
    num_ranks: int = 2,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> FileReport:
    """Run one student's file and judge it. Whatever goes wrong here is told in its report: others wait."""
    path = find_program(file)
    began = time.monotonic()
    try:
        kind, verdicts = run_and_judge(lab, path, script, num_ranks, timeout_s)
    except Exception as error:
        kind = SCRIPTS[script or LABS[lab][0]]
        reason = f"Paceline itself failed, please report it: {type(error).__name__}: {error}"
        verdicts = dict.fromkeys(kind.checks, unknown("the script was not judged")) | {"run": unknown(reason)}
    return FileReport(file, lab, kind, verdicts, time.monotonic() - began)


def run_and_judge(
    lab: str, path: Path, script: str | None, num_ranks: int, timeout_s: float
) -> tuple[Script, dict[str, Verdict]]:
    guess = SCRIPTS[script] if script else guess_script(lab, path.name, read_sources(path))
    seen = run_as(path, guess, num_ranks, timeout_s)
    if not guess.accelerators and (needs_accelerator(path, seen) or switched_off(seen)):
        again = run_observed(path, num_ranks=num_ranks, devices=num_ranks, as_cuda=True, timeout_s=timeout_s)
        seen = seen if again.failure and seen.main.micros else again
    kind = guess if script else recognise_script(lab, guess, seen)
    verdicts = judge(kind, seen)
    if "few_layers" in verdicts:
        verdicts["few_layers"] = judge_few_layers(path, seen, timeout_s)
    return kind, verdicts


def run_as(path: Path, script: Script, num_ranks: int, timeout_s: float) -> Seen:
    """In the world that this kind of script is made for."""
    if script.accelerators:
        as_cuda = names_cuda(path)
        return run_observed(
            path, num_ranks=1, devices=script.accelerators, as_cuda=as_cuda, timeout_s=timeout_s
        )
    return run_observed(path, num_ranks=num_ranks, timeout_s=timeout_s)


def needs_accelerator(path: Path, seen: Seen) -> bool:
    """Did a script that names accelerators end, on a machine without one, before it trained?"""
    none_here = not (seen.main.first("machine") or {"accelerators": 1})["accelerators"]
    names_one = any(word in read_sources(path) for word in ("cuda", "nccl", "accelerator"))
    return none_here and names_one and not seen.main.micros and not seen.out_of_time


def names_cuda(path: Path) -> bool:
    """Virtual accelerators then answer to that name."""
    return "cuda" in read_sources(path)


def read_sources(path: Path) -> str:
    """The script, and the modules beside it that it imports."""
    source = path.read_text(errors="replace")
    names = dict.fromkeys(re.findall(r"^\s*(?:from|import)\s+(\w+)", source, re.MULTILINE))
    beside = [path.with_name(f"{name}.py") for name in names]
    return "\n".join([source, *(module.read_text(errors="replace") for module in beside if module.is_file())])


def judge(script: Script, seen: Seen) -> dict[str, Verdict]:
    """All checks of one kind of script. Where nothing was seen, nothing but the run itself is judged."""
    verdicts = {}
    for check in script.checks:
        if check != "run" and not seen.main.all("model"):
            verdicts[check] = unknown("no model was called before the script ended")
        else:
            verdicts[check] = CHECKS[check][1](seen)
        if check in script.unasked and verdicts[check].answer == "fail":
            verdicts[check] = unknown(f"{verdicts[check].reason}; in this task that is no fault")
    return verdicts


def judge_few_layers(path: Path, seen: Seen, timeout_s: float) -> Verdict:
    """The same script once more, on one device more than it has layers."""
    model = seen.main.first("model")
    if model is None:
        return unknown("no model was called before the script ended")
    if seen.failure is not None:
        return unknown("the script does not come to its end on fewer devices")
    devices = len(model["layers"]) + 1
    if devices > MOST_DEVICES:
        return unknown(f"{devices} devices would be needed, {MOST_DEVICES} is the most that is tried")
    again = run_observed(path, num_ranks=1, devices=devices, as_cuda=names_cuda(path), timeout_s=timeout_s)
    other = again.main.first("model")
    if again.own_fault or (again.out_of_time and other is None):
        return unknown(f"on {devices} devices, one more than layers: {again.failure}")
    if other is None or (again.failure and not again.out_of_time):
        reason = f"on {devices} devices, one more than layers: {again.failure or 'no model was called'}"
        change = "leave the last devices empty when there are fewer layers than devices"
        return Verdict("fail", reason, again.failure_line, None, change)
    if len(other["layers"]) != len(model["layers"]):
        reason = f"the model has {len(other['layers'])} layers on {devices} devices, {devices - 1} on fewer"
        return fails(reason, "give the first depth % n devices one layer more, so that none is lost", model)
    return CHECKS["few_layers"][1](again)


def find_lab(name: str) -> str:
    if name not in LABS:
        raise ValueError(f"there is no lab {name!r}; {nearest_of(name, LABS)}")
    return name


def find_script(lab: str, name: str | None) -> str | None:
    if name is not None and name not in LABS[lab]:
        raise ValueError(f"--script {name!r} is not one of {lab}'s: {nearest_of(name, LABS[lab])}")
    return name


def as_json(reports: list[FileReport]) -> dict[str, Any]:
    """The document that docs/check.md describes."""
    return {
        "version": JSON_VERSION,
        "lab": reports[0].lab if reports else None,
        "files": [
            {
                "file": report.file,
                "script": report.script.name,
                "answer": report.answer,
                "passed": report.num("pass"),
                "failed": report.num("fail"),
                "unknown": report.num("unknown"),
                "wall_s": round(report.wall_s, 3),
                "checks": [
                    {"check": check, "title": CHECKS[check][0], **asdict(verdict)}
                    for check, verdict in report.verdicts.items()
                ],
            }
            for report in reports
        ],
    }
