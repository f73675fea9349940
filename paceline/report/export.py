"""A study for other programs: the JSON object of `--json` and `export`, and a CSV of every number.

In: a study's name, its rows with findings, and their runs. Out: a dict that `json.dumps` takes, or text.
docs/json.md describes the interface. Exercise: `paceline export STUDY --format json`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from paceline.record import Finding, Metric, Row, RunRecord

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


def to_json(study: str, runs: Sequence[RunRecord], rows: Iterable[Row]) -> dict[str, Any]:
    """The public object: one entry of "runs" per configuration, all its rounds together."""
    rows = list(rows)
    sources = {row.source for row in rows}
    return {
        "schema": JSON_SCHEMA,
        "study": study,
        "source": sources.pop() if len(sources) == 1 else "mixed" if sources else None,
        "versions": dict(runs[-1].versions) if runs else {},
        "runs": [_row(row) for row in rows],
    }


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
