"""Runs → rows: one row per configuration, in the order in which they were first measured.

Try it: `paceline show STUDY`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from paceline.analyse.communication import communication_metrics
from paceline.analyse.devices import device_metrics
from paceline.analyse.health import health_metrics
from paceline.analyse.launches import learn_from_others
from paceline.analyse.memory import memory_metrics
from paceline.analyse.scaling import ratio, scaling_metrics
from paceline.analyse.steps import step_metrics, world_step_times
from paceline.record import LaunchNoise, Metric, Row, RunRecord, Source


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
    noise = _learn_noise(measured)
    return [_summarise_row(key, group, measured, noise) for key, group in groups.items()]


def _learn_noise(measured: Mapping[RowKey, Sequence[RunRecord]]) -> dict[RowKey, LaunchNoise]:
    """Rows learn from those launched like them: as many ranks, placed alike, with cores enough or not."""
    kinds: dict[object, dict[RowKey, list[float]]] = {}
    for key, runs in measured.items():
        kind = key.world, key.placement, key.source, any(run.oversubscribed for run in runs)
        times = [times for run in runs if len(times := world_step_times(run))]
        kinds.setdefault(kind, {})[key] = [float(np.median(steps)) for steps in times]
    return {key: noise for rows in kinds.values() for key, noise in learn_from_others(rows).items()}


def _summarise_row(
    key: RowKey,
    group: Sequence[RunRecord],
    measured: Mapping[RowKey, Sequence[RunRecord]],
    noise: Mapping[RowKey, LaunchNoise],
) -> Row:
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
        launch_noise=noise[key],
    )
    if runs:
        known = _metrics(key, measured, noise)
        row.metrics = {name: metric for name, metric in known.items() if metric is not None}
    return row


def find_base(key: RowKey, measured: Mapping[RowKey, Sequence[RunRecord]]) -> RowKey | None:
    """The row that `key` is compared with: the smallest world that ran well and differs in nothing else."""
    family = [other for other, runs in measured.items() if runs and other[:-1] == key[:-1]]
    return min(family, key=lambda other: other.world) if len(family) > 1 else None


def _placement_gain(
    key: RowKey, measured: Mapping[RowKey, Sequence[RunRecord]], noise: Mapping[RowKey, LaunchNoise]
) -> Metric | None:
    """Against the row that differs in nothing but its placement, which is plain."""
    plain = key._replace(placement="plain")
    if plain == key or not measured.get(plain):
        return None
    return ratio(measured[plain], measured[key], noise[plain] + noise[key])


def _metrics(
    key: RowKey, measured: Mapping[RowKey, Sequence[RunRecord]], noise: Mapping[RowKey, LaunchNoise]
) -> dict[str, Metric | None]:
    runs = measured[key]
    base = find_base(key, measured)
    metrics = step_metrics(runs, noise[key])
    if base is not None:
        metrics |= scaling_metrics(measured[base], runs, noise[base] + noise[key])
    return {
        **metrics,
        "placement_gain": _placement_gain(key, measured, noise),
        **communication_metrics(runs),
        **memory_metrics(runs),
        **device_metrics(runs),
        **health_metrics(runs),
    }
