"""Numbers as an answer says them: with unit and interval, and a verdict only where the interval allows one.

In: metrics and launches. Out: short texts and ratios. Exercise: `pytest tests/unit/test_lab_answers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from paceline.analyse.intervals import UNKNOWN_NOISE, Array, ratio_over_rounds
from paceline.analyse.steps import world_step_times
from paceline.labs.data import LabRow
from paceline.record import Metric, RunRecord
from paceline.report.units import choose_unit

# An interval that reaches so many times beyond its number says only that nothing is known.
HOPELESS = 10.0


def is_hopeless(metric: Metric) -> bool:
    """Whether two launches or a disturbed machine left the number unknown, to a factor of ten."""
    low, middle, high = metric.low, metric.median, metric.high
    return middle > 0 and (high > HOPELESS * middle or 0 < low < middle / HOPELESS)


def say(metric: Metric | None, *, interval: bool = True) -> str:
    """`12.3 ms (11.9–12.8)`; "not measured" where there is no number."""
    if metric is None or not math.isfinite(metric.median):
        return "not measured"
    unit = choose_unit([metric.median], metric.unit)
    text = unit.show(metric.median)
    if interval and is_hopeless(metric):
        return f"{text} (not even known to a factor of {HOPELESS:g})"
    if interval and metric.low < metric.high:
        low, high = (unit.show(value).removesuffix(unit.name).rstrip() for value in (metric.low, metric.high))
        text += f" ({low}–{high})"
    return text


def say_share(share: float) -> str:
    """`12 %`, with a decimal below 10; no share that is there is called 0."""
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    return f"{share * 100:.1f} %" if 0 < abs(share) < 0.0995 else f"{share * 100:.0f} %"


def ratio_of(
    top: LabRow, bottom: LabRow, *, work: float = 1.0, of: Callable[[RunRecord], Array] | None = None
) -> Metric | None:
    """Step time of `top` over step time of `bottom`, within rounds; × `work` where a step of the two is
    not the same number of samples. `of` chooses other times than the step's."""
    of = of or world_step_times
    by_round = {run.round: run for run in bottom.runs}
    pairs = [(of(run), of(by_round[run.round])) for run in top.runs if run.round in by_round]
    noise = top.row.launch_noise + bottom.row.launch_noise if top.row and bottom.row else UNKNOWN_NOISE
    return scaled(ratio_over_rounds(pairs, noise=noise), work)


def scaled(metric: Metric | None, factor: float, unit: str | None = None) -> Metric | None:
    """The same number in another measure: a step's time per sample, for one."""
    if metric is None:
        return None
    low, median, high = sorted(value * factor for value in (metric.low, metric.median, metric.high))
    return Metric(median, low, high, metric.n, unit or metric.unit)


def is_above(metric: Metric | None, limit: float = 1.0) -> bool:
    """Whether the whole interval lies above the limit."""
    return metric is not None and metric.median > limit and not metric.low <= limit


def is_below(metric: Metric | None, limit: float = 1.0) -> bool:
    return metric is not None and metric.median < limit and not metric.high >= limit


def say_change(speedup: Metric | None, than: str = "") -> str:
    """`**1.42 × as fast** (1.30–1.55)`, with a verdict where the interval allows one. Above 1 is faster."""
    if speedup is None:
        return "not compared"
    behind = f" as {than}" if than else ""
    low, high = speedup.low, speedup.high
    if is_hopeless(speedup):
        return f"{speedup.median:.2f} × as fast{behind}, not even known to a factor of {HOPELESS:g}"
    interval = f" ({low:.2f}–{high:.2f})" if low < high else ""
    if is_above(speedup) or is_below(speedup):
        return f"**{speedup.median:.2f} × as fast**{behind}{interval}"
    return f"{speedup.median:.2f} × as fast{behind}{interval}: no difference shown"


def say_factor(speedup: Metric | None) -> str:
    """The same for a table: `1.42 × (1.30–1.55)`; the interval tells whether it differs from 1."""
    if speedup is None:
        return "not compared"
    interval = f" ({speedup.low:.2f}–{speedup.high:.2f})" if speedup.low < speedup.high else ""
    if is_hopeless(speedup):
        interval = " (unknown)"
    return f"{speedup.median:.2f} ×{interval}"


def first_reason(rows: Sequence[LabRow]) -> str | None:
    """Why one of these rows is missing; None when all were measured."""
    return next((row.reason or "not measured" for row in rows if not row.is_measured), None)
