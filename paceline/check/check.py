"""One file from start to verdict: run it as its lab asks, judge what was seen.

In: a lab, a file, options. Out: a `FileReport`, as a table's rows or as JSON (docs/check.md).
Exercise: `pytest tests/check/test_check_programs.py`.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.check.observations import Seen
from paceline.check.scripts import CHECKS, LABS, SCRIPTS, Script, guess_script, recognise_script
from paceline.check.verdicts.precision import switched_off
from paceline.check.verdicts.verdict import Answer, Verdict, unknown
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
    """Run one student's file and judge it."""
    path = find_program(file)
    began = time.monotonic()
    guess = SCRIPTS[script] if script else guess_script(lab, path.name, path.read_text(errors="replace"))
    seen = run_as(path, guess, num_ranks, timeout_s)
    if switched_off(seen):
        again = run_observed(path, num_ranks=num_ranks, devices=num_ranks, as_cuda=True, timeout_s=timeout_s)
        seen = seen if again.failure else again
    kind = guess if script else recognise_script(lab, guess, seen)
    verdicts = judge(kind, seen)
    if "few_layers" in verdicts:
        verdicts["few_layers"] = judge_few_layers(path, seen, timeout_s)
    return FileReport(file, lab, kind, verdicts, time.monotonic() - began)


def run_as(path: Path, script: Script, num_ranks: int, timeout_s: float) -> Seen:
    """In the world that this kind of script is made for."""
    if script.accelerators:
        as_cuda = names_cuda(path)
        return run_observed(
            path, num_ranks=1, devices=script.accelerators, as_cuda=as_cuda, timeout_s=timeout_s
        )
    return run_observed(path, num_ranks=num_ranks, timeout_s=timeout_s)


def names_cuda(path: Path) -> bool:
    """Virtual accelerators then answer to that name."""
    return "cuda" in path.read_text(errors="replace")


def judge(script: Script, seen: Seen) -> dict[str, Verdict]:
    """All checks of one kind of script. Where nothing was seen, nothing but the run itself is judged."""
    verdicts = {}
    for check in script.checks:
        if check != "run" and not seen.main.all("model"):
            verdicts[check] = unknown("no model was called before the script ended")
        else:
            verdicts[check] = CHECKS[check][1](seen)
    return verdicts


def judge_few_layers(path: Path, seen: Seen, timeout_s: float) -> Verdict:
    """The same script once more, on one device more than it has layers."""
    model = seen.main.first("model")
    if model is None:
        return unknown("no model was called before the script ended")
    devices = len(model["layers"]) + 1
    if devices > MOST_DEVICES:
        return unknown(f"{devices} devices would be needed, {MOST_DEVICES} is the most that is tried")
    again = run_observed(path, num_ranks=1, devices=devices, as_cuda=names_cuda(path), timeout_s=timeout_s)
    if again.failure is not None or not again.main.all("model"):
        reason = f"on {devices} devices, one more than layers: {again.failure or 'no model was called'}"
        change = "leave the last devices empty when there are fewer layers than devices"
        return Verdict("fail", reason, again.failure_line, None, change)
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
