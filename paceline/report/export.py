"""A study for other programs: the JSON object of `--json` and `export`, and a CSV of every number.

In: a study's name and its rows with findings. Out: text, or a file.
docs/json.md describes the interface. Exercise: `paceline export STUDY --format json`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from paceline.record import Finding, Metric, Row

# Rises when a reader of the last version could misread this one; a new key is no reason.
JSON_SCHEMA = 1

CSV_COLUMNS = (
    "program",
    "arguments",
    "world",
    "placement",
    "source",
    "status",
    "oversubscribed",
    "rounds",
    "metric",
    "median",
    "low",
    "high",
    "n",
    "unit",
)


def describe_study(study: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The public object: one entry of "runs" per configuration, all its rounds together."""
    sources = {row.source for row in rows}
    return {
        "schema": JSON_SCHEMA,
        "study": study,
        "source": sources.pop() if len(sources) == 1 else "mixed" if sources else None,
        "runs": [_row(row) for row in rows],
    }


def to_json(study: str, rows: Sequence[Row]) -> str:
    # Refuse NaN rather than write it: many readers of JSON would stop there.
    return json.dumps(describe_study(study, rows), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(study: str, rows: Sequence[Row], path: Path) -> None:
    """Whole or not at all: whoever waits for the file never reads half of it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(to_json(study, rows), encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def to_csv(rows: Iterable[Row]) -> str:
    """One line per row and metric; a row without any has one line with empty numbers."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        about = [row.program, " ".join(row.arguments), row.world, row.placement, row.source, row.status]
        about += [str(row.oversubscribed).lower(), row.rounds]
        for name, metric in row.metrics.items():
            numbers = (_finite(value) for value in (metric.median, metric.low, metric.high))
            writer.writerow([*about, name, *numbers, metric.n, metric.unit])
        if not row.metrics:
            writer.writerow([*about, *[""] * 6])
    return out.getvalue()


def _row(row: Row) -> dict[str, Any]:
    return {
        "program": row.program,
        "arguments": list(row.arguments),
        "world": row.world,
        "placement": row.placement,
        "source": row.source,
        "status": row.status,
        "cause": row.cause,
        "oversubscribed": row.oversubscribed,
        "rounds": row.rounds,
        "metrics": {name: _metric(metric) for name, metric in row.metrics.items()},
        "findings": [_finding(finding) for finding in row.findings],
    }


def _metric(metric: Metric) -> dict[str, Any]:
    return {
        "median": _finite(metric.median),
        "low": _finite(metric.low),
        "high": _finite(metric.high),
        "n": metric.n,
        "unit": metric.unit,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "text": finding.text,
        "numbers": {name: _finite(value) for name, value in finding.numbers.items()},
    }


def _finite(value: float) -> float | None:
    """JSON has no NaN and no infinity; what is not known is null."""
    return value if math.isfinite(value) else None
