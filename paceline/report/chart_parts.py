"""What all charts share: points, axes, records of values, and how a chart looks.

In: points with their `Metric`s. Out: pieces of Vega-Lite specifications.
Exercise: `pytest tests/unit/test_report_charts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.record import Metric
from paceline.report.drawing import Chart
from paceline.report.palette import FAINT, FONT, GRID, INK
from paceline.report.units import Unit, choose_unit

Spec = dict[str, Any]

# Above the chart; `Chart.draw` knows how many columns there is room for.
TITLE_PX = 20  # of the y axis, below the legend
LEGEND: Spec = {"orient": "top", "title": None}
# An interval that reaches further than this many times the largest value would flatten all that is known.
CUT = 2.0
CUT_NOTE = "intervals that end at the edge reach further"
APART = "hollow: more ranks than cores, not comparable"


@dataclass(frozen=True)
class Point:
    """One measured configuration: where it stands, and what was found there."""

    x: float | str
    metric: Metric
    series: str = ""
    apart: bool = False  # oversubscribed, or otherwise not to be compared with the others


def chart_of(
    layers: list[Spec],
    names: Sequence[str],
    *,
    points: Sequence[Point] = (),
    values: list[Spec] | None = None,
    height: int = 225,
) -> Chart:
    spec: Spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": None,
        "autosize": {"type": "fit", "contains": "padding"},
        "height": height,
        "config": _CONFIG,
        "layer": layers,
    }
    if values is not None:
        spec["data"] = {"values": values}
    notes = [APART] if any(point.apart for point in points) else []
    if any(bounds_of(point.metric)[1] > _edge(points) for point in points):
        notes.append(CUT_NOTE)
    if notes:
        spec["title"] = {"text": notes, "orient": "bottom", "anchor": "end", "offset": 4}
    return Chart(spec, tuple(names))


def axis_of(title: str, values: Sequence[float], logarithmic: bool) -> Spec:
    """A quantitative axis with a tick at each measured value."""
    scale: Spec = {"type": "log", "base": 2} if logarithmic else {"zero": False}
    if len(values) > 1:
        low, high = values[0], values[-1]
        margin = (high / low) ** 0.06 if logarithmic else (high - low) * 0.06
        domain = [low / margin, high * margin] if logarithmic else [low - margin, high + margin]
        scale |= {"domain": domain, "nice": False}
    return {
        "type": "quantitative",
        "title": title,
        "scale": scale,
        "axis": {"values": list(values), "format": "~g", "grid": False},
    }


def records_of(points: Sequence[Point], unit: Unit) -> list[Spec]:
    """One record per point, in the axis's unit; `low` and `high` are as far as the interval is drawn."""
    records = []
    edge = _edge(points)
    bottom = 0.0 if min(point.metric.median for point in points) >= 0 else -edge
    for point in points:
        low, high = bounds_of(point.metric)
        text = unit.show(point.metric.median)
        interval = f" ({unit.show(low)} to {unit.show(high)})" if low < high else ""
        where = ", ".join(filter(None, (str(point.x), point.series, "oversubscribed" if point.apart else "")))
        records.append({
            "x": point.x,
            "y": point.metric.median / unit.size,
            "low": max(low, bottom) / unit.size,
            "high": min(high, edge) / unit.size,
            "series": point.series,
            "apart": point.apart,
            "text": text,
            "tip": f"{where}: {text}{interval}",
        })  # fmt: skip
    return records


def _edge(points: Sequence[Point]) -> float:
    return CUT * max(abs(point.metric.median) for point in points)


def bounds_of(metric: Metric) -> tuple[float, float]:
    """The interval, or the median twice where there is none."""
    known = math.isfinite(metric.low) and math.isfinite(metric.high)
    return (metric.low, metric.high) if known else (metric.median, metric.median)


def unit_of(points: Sequence[Point]) -> Unit:
    return choose_unit([point.metric.median for point in points], points[0].metric.unit)


def series_names(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.series for point in points))


def title_with(title: str, unit: Unit) -> str:
    return f"{title}, {unit.name}" if unit.name else title


_CONFIG: Spec = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": FAINT,
        "titleColor": INK,
        "labelFontSize": 11,
        "titleFontSize": 11.5,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "tickSize": 4,
        "labelLimit": 190,
    },
    # The title lies above the axis: upright beside it, a low chart would cut it off.
    "axisY": {
        "domain": False,
        "ticks": False,
        "tickCount": 5,
        "labelPadding": 5,
        "titleAngle": 0,
        "titleAlign": "left",
        "titleBaseline": "bottom",
        "titleX": -32,
        "titleY": -7,
    },
    "legend": {
        "labelColor": INK,
        "labelFontSize": 11,
        "symbolSize": 70,
        "columnPadding": 14,
        "offset": 6,
        "labelLimit": 260,
    },
    "title": {"color": FAINT, "fontSize": 10.5, "fontWeight": "normal"},
    "text": {"fontSize": 11},
}
