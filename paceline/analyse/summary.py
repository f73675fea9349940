"""Runs → rows: one row per configuration, in the order in which they were first measured.

Try it: `paceline show STUDY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from paceline.analyse.communication import communication_metrics
from paceline.analyse.devices import device_metrics
from paceline.analyse.health import health_metrics
from paceline.analyse.memory import memory_metrics
from paceline.analyse.scaling import scaling_metrics
from paceline.analyse.steps import step_metrics
from paceline.record import Metric, Row, RunRecord, Source


class RowKey(NamedTuple):
    """What tells one row from another."""

    program: str
    arguments: tuple[str, ...]
    placement: str
    source: Source
    world: int


def key_of(item: RunRecord | Row) -> RowKey:
    """The row that a run belongs to."""
    return RowKey(item.program, tuple(item.arguments), item.placement, item.source, item.world)


def group_runs(runs: Iterable[RunRecord]) -> dict[RowKey, list[RunRecord]]:
    """Runs by row, each row's in the order of their rounds."""
    groups: dict[RowKey, list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.round):
        groups.setdefault(key_of(run), []).append(run)
    return groups


def summarise(runs: Iterable[RunRecord]) -> list[Row]:
    """Every number of every row; one that is not known is absent, never zero.

    The runs are of one script under one set of options: `selection.py` chooses them.
    """
    groups = group_runs(runs)
    measured = {key: [run for run in group if run.status == "ok"] for key, group in groups.items()}
    return [_summarise_row(key, group, measured) for key, group in groups.items()]


def _summarise_row(key: RowKey, group: Sequence[RunRecord], measured: dict[RowKey, list[RunRecord]]) -> Row:
    runs = measured[key]
    last = (runs or group)[-1]
    row = Row(
        program=key.program,
        arguments=list(key.arguments),
        world=key.world,
        placement=key.placement,
        source=key.source,
        status=last.status,  # one good round is a measurement; `explain` tells of the others
        cause=last.cause,
        oversubscribed=any(run.oversubscribed for run in group),
        rounds=len(runs),
    )
    if measured[key]:
        row.metrics = {name: metric for name, metric in _metrics(key, measured).items() if metric is not None}
    return row


def find_base(key: RowKey, measured: Mapping[RowKey, Sequence[RunRecord]]) -> RowKey | None:
    """The row that `key` is compared with: the smallest world that ran well and differs in nothing else."""
    family = [other for other, runs in measured.items() if runs and other[:-1] == key[:-1]]
    return min(family, key=lambda other: other.world) if len(family) > 1 else None


def _metrics(key: RowKey, measured: dict[RowKey, list[RunRecord]]) -> dict[str, Metric | None]:
    runs = measured[key]
    base = find_base(key, measured)
    metrics = step_metrics(runs)
    if base is not None:
        metrics |= scaling_metrics(measured[base], runs)
    return {
        **metrics,
        **communication_metrics(runs),
        **memory_metrics(runs),
        **device_metrics(runs),
        **health_metrics(runs),
    }
