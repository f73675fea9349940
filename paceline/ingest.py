"""What ranks wrote, read back: the step rows and JSON lines of a run's folder become rank records.

In: run_dir with rank*.steps and rank*.jsonl, still growing or ended, the last line perhaps torn. Out: one
`RankLog` per rank, or the newest step while the run goes on. Exercise: `pytest tests/unit/test_ingest.py`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.record import (
    LINE_END,
    LINE_EXCEPTION,
    LINE_NOTE,
    LINE_SAMPLE,
    LINE_START,
    TIMED,
    RankRecord,
)
from paceline.step_file import count_rows, read_rows, read_steps


@dataclass
class RankLog:
    """A rank's record, and what decides why it ended."""

    record: RankRecord
    exception: dict[str, Any] | None = None  # the LINE_EXCEPTION object
    exit_code: int | None = None  # that the script chose, None when it did not end in order
    last_written_s: float = 0.0  # unix time

    @property
    def num_steps(self) -> int:
        return len(self.record.series.get("kind", ()))

    @property
    def num_timed(self) -> int:
        return self.record.series.get("kind", []).count(TIMED)


def parse_lines(data: bytes) -> list[dict[str, Any]]:
    """The whole lines; one that a killed rank or a full disk tore is left out."""
    events = []
    for line in data.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def build_series(steps: list[dict[str, float]]) -> dict[str, list[float]]:
    """One value per step and metric, in the order of the steps; NaN where none was known."""
    names = {name for step in steps for name in step}
    return {name: [step.get(name, math.nan) for step in steps] for name in names - {"step"}}


def read_rank(path: Path) -> RankLog:
    events = parse_lines(path.read_bytes())
    of_kind: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        of_kind.setdefault(event["event"], []).append(event)
    record = RankRecord(rank=int(path.stem.removeprefix("rank")))
    # The device is written once more when it is known where the model lives.
    record.start = {name: value for line in of_kind.get(LINE_START, []) for name, value in line.items()}
    steps = read_steps(path.with_suffix(".steps"))
    record.series = build_series(steps)
    record.facts = {event["fact"]: event["data"] for event in of_kind.get(LINE_SAMPLE, [])}
    record.notes = of_kind.get(LINE_NOTE, [])
    ends = of_kind.get(LINE_END, [])
    record.end = ends[-1]["reason"] if ends else None
    return RankLog(
        record,
        exception=next(iter(of_kind.get(LINE_EXCEPTION, [])), None),
        exit_code=ends[-1].get("exit_code", 0) if ends else None,
        last_written_s=max([path.stat().st_mtime, *(step["wall_s"] for step in steps[-1:])]),
    )


def read_ranks(run_dir: Path) -> dict[int, RankLog]:
    logs = [read_rank(path) for path in run_dir.glob("rank*.jsonl")]
    return {log.record.rank: log for log in sorted(logs, key=lambda log: log.record.rank)}


class Follower:
    """Follows a growing run cheaply: how much every rank has written, and the newest step of the first."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._sizes: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def poll(self) -> tuple[bool, dict[str, float] | None]:
        """Whether any rank wrote since the last poll, and the newest step of the first rank, if it is new."""
        sizes = {path.name: path.stat().st_size for path in self._run_dir.glob("rank*.jsonl")}
        paths = sorted(self._run_dir.glob("rank*.steps"))
        rows = {path.name: count_rows(path, self._rows.get(path.name, 0)) for path in paths}
        grew = (sizes, rows) != (self._sizes, self._rows)
        first = paths[0] if paths else None  # rank 0's, once it is there
        new = first and rows[first.name] > self._rows.get(first.name, 0)
        self._sizes, self._rows = sizes, rows
        return grew, read_rows(first, rows[first.name] - 1)[-1] if first and new else None
