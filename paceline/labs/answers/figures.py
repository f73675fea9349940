"""Figures that several labs show: memory by category, steps of launches, one step per rank.

In: lab rows with the names to write beside them. Out: figures, None where nothing was measured.
Exercise: `pytest tests/unit/test_lab_answers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.analyse.memory import CATEGORIES
from paceline.analyse.steps import aligned
from paceline.labs.data import LabRow
from paceline.record import SAMPLED, WARMUP, RunRecord
from paceline.report.bar_charts import memory_stack
from paceline.report.charts import step_strip
from paceline.report.document import Block, Figure, SideBySide, Table
from paceline.report.step_timeline import busy_share, step_timeline


def memory_figure(name: str, rows: Sequence[tuple[str, LabRow]], caption: str) -> Figure | None:
    stacks = []
    for label, row in rows:
        parts = {category: row.metric(f"memory_bytes.{category}") for category in CATEGORIES}
        split = {category: part.median for category, part in parts.items() if part is not None}
        if sum(split.values()) > 0:
            stacks.append((label, split))
    if not stacks:
        return None
    alt = "; ".join(f"{label}: {sum(split.values()) / 2**20:.3g} MiB" for label, split in stacks)
    return Figure(name, caption, f"Peak memory by category. {alt}.", memory_stack(stacks))


def strip_figure(name: str, rows: Mapping[str, LabRow]) -> Figure | None:
    """Every step of the first launch of each, warm-up included."""
    chosen = {label: row.runs[0] for label, row in rows.items() if row.runs}
    strips = {label: times for label, run in chosen.items() if (times := step_times(run))}
    if not strips:
        return None
    warmup = max(int((aligned(run, "kind")[0] == WARMUP).sum()) for run in chosen.values())
    caption = "Every step of the first launch. Hollow, on grey: warm-up, which no number counts."
    return Figure(name, caption, f"Step times; the first {warmup} are warm-up.", step_strip(strips, warmup))


def step_times(run: RunRecord) -> list[float]:
    """The slowest rank's, up to the sampled steps, which are slowed by being looked at."""
    times, kinds = aligned(run, "step_time_s"), aligned(run, "kind")
    if not times.size:
        return []
    seen = (kinds != SAMPLED).all(axis=0)
    slowest: list[float] = times[:, seen].max(axis=0).tolist()
    return slowest if np.isfinite(slowest).any() else []


def step_figure(name: str, row: LabRow, caption: str) -> Figure | None:
    """One profiled step: compute, communication and idle of each rank."""
    for run in row.runs:
        timeline = step_timeline(run)
        if timeline is not None:
            shares = ", ".join(
                f"{lane.group} {lane.kind} {busy_share(lane.spans, timeline.length_s):.0%}"
                for lane in timeline.lanes
            )
            return Figure(name, caption, f"One step: {shares}.", timeline)
    return None


def beside(*parts: Figure | Table | None) -> list[Block]:
    """Pairs of what there is, side by side."""
    there = [part for part in parts if part is not None]
    blocks: list[Block] = []
    while len(there) > 1:
        blocks.append(SideBySide(there.pop(0), there.pop(0)))
    return [*blocks, *there]
