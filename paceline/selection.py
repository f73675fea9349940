"""Which runs of a study belong together: those of the newest script under the newest options.

A study may have been measured again after an edit, with other options or on another machine; the store
keeps everything, but one table must not mix it. In: runs of one study, oldest first. Out: those to show,
and the others.
Exercise: `pytest tests/unit/test_selection.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.machine import identify_machine
from paceline.record import RunRecord
from paceline.run_key import DECIDES_NOTHING


def _conditions(run: RunRecord) -> tuple[object, ...]:
    """What every run of a comparison must share: machine, options, cores per rank, torch."""
    decisive = {name: value for name, value in run.options.items() if name not in DECIDES_NOTHING}
    versions = run.source, run.versions.get("torch"), identify_machine(run.machine)
    return (*versions, sorted(decisive.items(), key=lambda item: item[0]))


def select_newest(runs: Sequence[RunRecord]) -> tuple[list[RunRecord], list[RunRecord]]:
    if not runs:
        return [], []
    newest = max(runs, key=lambda run: run.started)
    scripts = {run.program: run.script_hash for run in sorted(runs, key=lambda run: run.started)}
    shown: list[RunRecord] = []
    older: list[RunRecord] = []
    for run in runs:
        belongs = run.script_hash == scripts[run.program] and _conditions(run) == _conditions(newest)
        (shown if belongs else older).append(run)
    return shown, older
