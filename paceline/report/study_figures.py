"""Which figures a study deserves: chosen by what varies in it and what was recorded.

In: its rows and runs. Out: figures of document.py. Exercise: `paceline report STUDY`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.analyse.memory import CATEGORIES
from paceline.analyse.steps import aligned
from paceline.record import SAMPLED, WARMUP, Row, RunRecord
from paceline.report.bar_charts import bars, memory_stack
from paceline.report.chart_parts import Point
from paceline.report.charts import SHAPES, against, speedup, step_strip
from paceline.report.document import Figure, as_code, as_text
from paceline.report.labels import Labels, split_arguments
from paceline.report.step_timeline import MOST_RANKS, step_timeline

# More would not fit on a page.
MOST_BARS = 24
INTERVALS = "Upright lines are 95 % intervals"


def speedup_figure(rows: Sequence[Row]) -> Figure | None:
    """When more than one world was measured, and no more series than can be told apart."""
    known = [row for row in rows if "speedup" in row.metrics]
    names = _series_names(known, without="")
    if len({row.world for row in known}) < 2 or len(set(names)) > len(SHAPES):
        return None
    points = [
        Point(row.world, row.metrics["speedup"], name, row.oversubscribed)
        for row, name in zip(known, names, strict=True)
    ]
    best = max((row for row in known), key=lambda row: row.metrics["speedup"].median)
    return Figure(
        "speedup",
        f"Speedup against the smallest world; dashed: as many times faster as there are ranks. {INTERVALS}.",
        f"Speedup over the number of ranks. The largest is {best.metrics['speedup'].median:.2f} "
        f"on {best.world} rank{'s' * (best.world != 1)}.",
        speedup(points),
    )


def sweep_figure(rows: Sequence[Row]) -> Figure | None:
    """Step time against the argument that takes most values, if they are numbers."""
    timed = [row for row in rows if "step_time_s" in row.metrics]
    name = _swept_argument(timed)
    if name is None:
        return None
    swept = [row for row in timed if name in split_arguments(row.arguments)]
    series = _series_names(swept, without=name)
    if len(set(series)) > len(SHAPES):
        return None
    points = [
        Point(
            float(split_arguments(row.arguments)[name]), row.metrics["step_time_s"], label, row.oversubscribed
        )
        for row, label in zip(swept, series, strict=True)
    ]
    return Figure(
        "sweep",
        f"Step time against {as_code(name)}. {INTERVALS}.",
        f"Step time over {name}, one line for each of: {', '.join(dict.fromkeys(series)) or 'the study'}.",
        against(points, name, "step time"),
    )


def bars_figure(rows: Sequence[Row]) -> Figure | None:
    """The step times side by side, when nothing else compares them."""
    timed = [row for row in rows if "step_time_s" in row.metrics]
    if len(timed) < 2:
        return None
    labels = Labels(timed)
    shown = sorted(timed, key=lambda row: row.metrics["step_time_s"].median)[:MOST_BARS]
    points = [
        Point(labels.name(row), row.metrics["step_time_s"], apart=row.oversubscribed)
        for row in timed
        if row in shown
    ]
    return Figure(
        "step-time",
        f"Step time{_of_all(len(shown), len(timed), 'fastest')}. Thin lines are 95 % intervals.",
        f"Step times of {len(shown)} configurations; the values are in the table.",
        bars(points, "step time"),
    )


def memory_figure(rows: Sequence[Row]) -> Figure | None:
    labels = Labels(rows)
    stacks = []
    for row in rows:
        split = {
            name: row.metrics[f"memory_bytes.{name}"].median
            for name in CATEGORIES
            if f"memory_bytes.{name}" in row.metrics
        }
        if sum(split.values()) > 0:
            stacks.append((labels.name(row), split))
    if not stacks:
        return None
    shown = sorted(stacks, key=lambda stack: -sum(stack[1].values()))[:MOST_BARS]
    return Figure(
        "memory",
        "Tensor memory of the fullest rank at its peak, by what it is for"
        f"{_of_all(len(shown), len(stacks), 'fullest')}.",
        f"Peak memory of {len(shown)} configurations, divided into categories; the values are in the table.",
        memory_stack([stack for stack in stacks if stack in shown]),
    )


def strip_figure(runs: Sequence[RunRecord]) -> Figure | None:
    """Every step of the first good launch of up to four configurations, smallest and largest worlds."""
    labels = Labels(runs)
    chosen: dict[str, RunRecord] = {}
    for run in runs:
        if run.status == "ok" and np.isfinite(aligned(run, "step_time_s")).any():
            chosen.setdefault(labels.name(run), run)
    ordered = sorted(chosen.items(), key=lambda entry: (entry[1].oversubscribed, entry[1].world))
    picked = [*ordered[:2], *ordered[-2:]] if len(ordered) > 4 else ordered
    if not picked:
        return None
    warmup = max(int((aligned(run, "kind")[0] == WARMUP).sum()) for _, run in picked)
    return Figure(
        "steps",
        "Every step of one launch each. Hollow, on grey: warm-up, which counts in no number.",
        f"Step time over the number of the step; the first {warmup} steps are warm-up.",
        step_strip({name: _step_times(run) for name, run in picked}, warmup),
    )


def timeline_figure(runs: Sequence[RunRecord]) -> Figure | None:
    """One profiled step of the largest world that had a core for each rank."""
    profiled = [run for run in runs if run.status == "ok" and step_timeline(run) is not None]
    if not profiled:
        return None
    run = max(profiled, key=lambda run: (not run.oversubscribed, run.world))
    timeline = step_timeline(run)
    assert timeline is not None
    of_many = f" Shown are {MOST_RANKS} of the {run.world} ranks." if run.world > MOST_RANKS else ""
    return Figure(
        "timeline",
        f"One step of {as_text(Labels(runs).name(run))}: what each rank computes, sends, and when it does "
        f"neither. At the right the share of the step.{of_many}",
        f"Timeline of one step on {run.world} ranks with lanes for compute, communication and idle.",
        timeline,
    )


def _of_all(num_shown: int, num_known: int, which: str) -> str:
    return f" of the {num_shown} {which} configurations of {num_known}" if num_shown < num_known else ""


def _step_times(run: RunRecord) -> list[float]:
    """The slowest rank's time of each step up to the sampled ones, which are slowed by being looked at."""
    times = aligned(run, "step_time_s")
    seen = (aligned(run, "kind") != SAMPLED).all(axis=0)
    slowest: list[float] = np.max(times[:, seen], axis=0).tolist()
    return slowest


def _swept_argument(rows: Sequence[Row]) -> str | None:
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in split_arguments(row.arguments).items():
            values.setdefault(name, set()).add(value)
    numeric = {
        name: found for name, found in values.items() if len(found) > 1 and all(map(_is_number, found))
    }
    return max(numeric, key=lambda name: len(numeric[name])) if numeric else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _series_names(rows: Sequence[Row], *, without: str) -> list[str]:
    """What tells rows apart besides the x axis: the argument `without`, or the world where that is empty."""
    labels = Labels(rows)
    names = []
    for row in rows:
        parts = []
        for column, cell in zip(labels.columns(), labels.cells(row), strict=True):
            if column == "ranks":
                parts += [f"{cell} rank{'s' * (cell != '1')}"] if without else []
            elif column in ("program", "placement"):
                parts.append(cell)
            elif column != without and cell != "–":
                parts.append(f"{column} {cell}")
        names.append(", ".join(parts))
    return names
