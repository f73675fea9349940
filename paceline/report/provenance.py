"""Where numbers come from: machine, software, when, how; in sentences, from the stored runs alone.

In: the runs of a study. Out: the front matter of a report. Exercise: `paceline report STUDY`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from paceline.quantity import format_bytes
from paceline.record import RunRecord
from paceline.report.document import as_code, as_text

LOG_OPTIONS = ("--log-dir", "--redirects")


def describe_runs(runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """What stands below a report's title."""
    newest = max(runs, key=lambda run: run.started)
    about = [
        ("Program", ", ".join(map(as_code, dict.fromkeys(run.program for run in runs)))),
        ("Machine", as_text(describe_machine_line(newest.machine))),
        ("Software", as_text(describe_software(newest))),
        ("Measured", _describe_times(runs)),
    ]
    if newest.options.get("steps") is not None:
        options = newest.options
        about.append((
            "Steps",
            f"{options['steps']} timed per launch after {options.get('warmup', 0)} of warm-up; a step lasts "
            "until its slowest rank is done; intervals hold 95 %",
        ))  # fmt: skip
    commits = sorted({run.git_commit for run in runs if run.git_commit})
    if commits:
        about.append(("Revision", ", ".join(map(as_code, commits))))
    return [(name, text) for name, text in about if text]


def describe_machine_line(machine: dict[str, Any]) -> str:
    """`2 cores of an AMD EPYC, 23.5 GiB, no accelerator, Linux 6.18`."""
    if not machine:
        return ""
    parts = []
    model = machine.get("processor", {}).get("model")
    if machine.get("cores"):
        cores = f"{machine['cores']} core{'s' * (machine['cores'] != 1)}"
        parts.append(f"{cores}, {model}" if model else cores)
    if machine.get("memory_bytes"):
        parts.append(f"{format_bytes(machine['memory_bytes'])} of memory")
    devices = (machine.get("accelerators") or {}).get("devices") or []
    names = [device.get("name", "accelerator") for device in devices]
    counted = (f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    parts.append(", ".join(counted) if devices else "no accelerator")
    if machine.get("system"):
        parts.append(f"{machine['system']} {machine.get('kernel', '')}".strip())
    return ", ".join(parts)


def describe_software(run: RunRecord) -> str:
    versions = run.versions or {
        name: run.machine[name] for name in ("python", "torch") if run.machine.get(name)
    }
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def describe_commands(runs: Sequence[RunRecord]) -> list[str]:
    """What was executed for each configuration, without the place of its logs."""
    first: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        first.setdefault((run.program, *run.arguments, str(run.world), run.placement), run.command)
    return [shlex.join(_without_logs(command)) for command in first.values() if command]


def _without_logs(command: Sequence[str]) -> list[str]:
    """Where one launch kept its logs, and where Python lies, is nothing to repeat."""
    kept = [
        word
        for before, word in pairwise(["", *command])
        if before not in LOG_OPTIONS and word not in LOG_OPTIONS
    ]
    return [Path(kept[0]).name, *kept[1:]]


def find_caveats(runs: Sequence[RunRecord]) -> list[str]:
    """What a reader must know before believing the numbers."""
    caveats = []
    measured = [run for run in runs if run.source == "measured"]
    if len(measured) < len(runs):
        caveats.append("Rows marked simulated were **predicted**, not measured.")
    if measured and not any(run.accelerators for run in measured):
        left_alone = any((run.machine.get("accelerators") or {}).get("devices") for run in measured)
        where = "CPU cores, and left this machine's accelerator alone" if left_alone else "CPU cores"
        caveats.append(
            f"Ranks ran on {where}. Rows show how parallel training works, not how fast a GPU would be."
        )
    if any(run.options.get("virtual_devices") for run in runs):
        caveats.append(
            "Devices were virtual: counts, bytes and memory are exact, times are those of one shared CPU."
        )
    worlds = sorted({run.world for run in runs if run.oversubscribed})
    if worlds:
        cores = measured[0].machine.get("cores") if measured else None
        named = ", ".join(map(str, worlds))
        caveats.append(
            f"Worlds of {named} ranks had more ranks than {f'the {cores} cores' if cores else 'cores'}: "
            "they are marked, drawn hollow, and belong to no fit."
        )
    return caveats


def _describe_times(runs: Sequence[RunRecord]) -> str:
    begun, ended = min(run.started for run in runs), max(run.started for run in runs)
    rounds = len({run.round for run in runs})
    how_many = f"{len(runs)} launches in {rounds} round{'s' * (rounds != 1)}"
    if not begun:
        return how_many
    first, last = (datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M") for time in (begun, ended))
    return f"{first} UTC, {how_many}" if first == last else f"{first} to {last} UTC, {how_many}"
