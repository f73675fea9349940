"""Charts over a number: speedup, a swept argument, the steps of a launch, a fitted line.

In: points with their `Metric`s. Out: a `Chart`, drawn when its width is known. Series differ in shape, dash
and lightness, so that grey print keeps them apart; what is not comparable is hollow and stands off the lines.
Exercise: `pytest tests/unit/test_report_charts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from paceline.report.chart_parts import (
    LEGEND,
    TITLE_PX,
    Point,
    Spec,
    axis_of,
    chart_of,
    records_of,
    series_names,
    title_with,
    unit_of,
)
from paceline.report.drawing import Chart
from paceline.report.palette import FAINT, GRID, PAPER, SERIES
from paceline.report.units import Unit, choose_unit

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 4), (1, 3))
# Beyond this the values are drawn on a logarithmic axis.
WIDE_RANGE = 16.0
# A warm-up step this many times the median would press all others to the floor of a linear axis.
SPIKE = 5.0
# Of the axis of steps: above the highest stands what the shaded ground means.
HEADROOM = 1.3
# Of the axis: how far two series stand beside each other, and all of them together.
BESIDE, BESIDE_ALL = 0.03, 0.09
_LOG_TICKS = [digit * 10.0**power for power in range(-3, 7) for digit in (1, 2, 5)]


@dataclass(frozen=True)
class Line:
    """y = intercept + slope · x, in the units of the points; drawn between `low` and `high`."""

    intercept: float
    slope: float
    low: float
    high: float
    label: str = "fit"


def speedup(points: Sequence[Point], x_title: str = "ranks") -> Chart:
    """Speedup against the number of ranks, with the ideal line through the smallest world."""
    worlds = sorted({float(point.x) for point in points})
    grows = worlds[-1] / worlds[0] >= WIDE_RANGE
    ideal = [{"x": world, "y": world / worlds[0]} for world in worlds]
    highest = max(
        [worlds[-1] / worlds[0], *(record["high"] for record in records_of(points, Unit(1.0, "×")))]
    )
    lowest = min(point.metric.median for point in points)
    x = axis_of(x_title, worlds, grows)
    y: Spec = {
        "type": "quantitative",
        "title": "speedup",
        "scale": {"type": "log", "base": 2, "domain": [min(1.0, lowest), highest * 1.08], "clamp": True}
        if grows
        else {"domain": [0, highest * 1.08], "nice": False},
        "axis": {"tickCount": 5},
    }
    line: Spec = {
        "data": {"values": ideal},
        "mark": {"type": "line", "color": FAINT, "strokeDash": [4, 4], "strokeWidth": 1.2, "aria": False},
        "encoding": {"x": {"field": "x", **x}, "y": {"field": "y", **y}},
    }
    name: Spec = {
        "data": {"values": ideal[-1:]},
        "mark": {
            "type": "text",
            "text": "ideal",
            "color": FAINT,
            "align": "right",
            "dx": -12,
            "dy": -9,
            "aria": False,
        },
        "encoding": {"x": {"field": "x", **x}, "y": {"field": "y", **y}},
    }
    layers = [line, name, *_series_layers(points, Unit(1.0, "×"), x, y)]
    return chart_of(layers, series_names(points), points=points)


def against(points: Sequence[Point], x_title: str, y_title: str, *, connected: bool = True) -> Chart:
    """A value against a swept argument, one line per series; x are numbers, or names in the given order."""
    unit = unit_of(points)
    if all(isinstance(point.x, (int, float)) for point in points):
        values = sorted({float(point.x) for point in points})
        grows = values[0] > 0 and values[-1] / values[0] >= 4
        x = axis_of(x_title, values, grows)
    else:
        x = {"type": "ordinal", "title": x_title, "sort": None, "axis": {"labelAngle": 0, "grid": False}}
    y: Spec = {"type": "quantitative", "title": title_with(y_title, unit), "scale": {"zero": True}}
    layers = _series_layers(points, unit, x, y, connected=connected)
    return chart_of(layers, series_names(points), points=points)


def step_strip(strips: Mapping[str, Sequence[float]], warmup: int) -> Chart:
    """Every step of one launch per series, in seconds; the first `warmup` are hollow on a shaded ground."""
    everything = [seconds for steps in strips.values() for seconds in steps if math.isfinite(seconds)]
    unit = choose_unit([median(everything)], "s")
    values: list[Spec] = [
        {
            "x": step,
            "y": seconds / unit.size,
            "series": name,
            "apart": step < warmup,
            "tip": f"{name}, step {step}{' (warm-up)' if step < warmup else ''}: {unit.show(seconds)}",
        }
        for name, steps in strips.items()
        for step, seconds in enumerate(steps)
        if math.isfinite(seconds)
    ]
    last = max(record["x"] for record in values)
    spread = max(everything) / median(everything)
    x: Spec = {
        "type": "quantitative",
        "title": "step",
        "scale": {"domain": [-0.5, last + 0.5], "nice": False},
        "axis": {"grid": False, "tickMinStep": 1},
    }
    y: Spec = {
        "type": "quantitative",
        "title": title_with("step time", unit) + (", log" if spread > SPIKE else ""),
        "scale": {"domain": [0, max(everything) / unit.size * HEADROOM], "nice": False},
    }
    if spread > SPIKE:
        low = min(everything) / unit.size / 1.6
        high = max(everything) / unit.size
        high *= (high / low) ** (HEADROOM - 1)
        y["scale"] = {"type": "log", "domain": [low, high], "nice": False}
        y["axis"] = {"values": [tick for tick in _LOG_TICKS if low <= tick <= high], "format": "~g"}
    names = list(strips)
    ground: Spec = {
        "data": {"values": [{"from": -0.5, "to": warmup - 0.5}]},
        "mark": {"type": "rect", "color": GRID, "opacity": 0.6, "aria": False},
        "encoding": {"x": {"field": "from", **x}, "x2": {"field": "to"}},
    }
    name: Spec = {
        "data": {"values": [{"x": -0.5}]},
        "mark": {
            "type": "text",
            "text": "warm-up",
            "align": "left",
            "dx": 3,
            "y": 0,
            "dy": 7,
            "fontSize": 10,
            "color": FAINT,
            "aria": False,
        },
        "encoding": {"x": {"field": "x", **x}},
    }
    marks = _marks(names, x, y, size=34)
    return chart_of([*([ground, name] if warmup else []), marks], names, values=values, height=200)


def scatter(points: Sequence[Point], x_title: str, y_title: str, line: Line | None = None) -> Chart:
    """Points with intervals and the line that was fitted to them; hollow ones are not in the fit."""
    unit = unit_of(points)
    x: Spec = {"type": "quantitative", "title": x_title, "scale": {"zero": True}}
    y: Spec = {"type": "quantitative", "title": title_with(y_title, unit), "scale": {"zero": True}}
    layers = _series_layers(points, unit, x, y, connected=False)
    if line is not None:
        ends = [
            {"x": at, "y": (line.intercept + line.slope * at) / unit.size, "text": line.label}
            for at in (line.low, line.high)
        ]
        at: Spec = {"x": {"field": "x", **x}, "y": {"field": "y", **y}}
        fitted: Spec = {
            "data": {"values": ends},
            "mark": {"type": "line", "color": FAINT, "strokeWidth": 1.4, "aria": False},
            "encoding": at,
        }
        name: Spec = {
            "data": {"values": ends[-1:]},
            "mark": {"type": "text", "align": "right", "dx": -8, "dy": -8, "color": FAINT, "aria": False},
            "encoding": {**at, "text": {"field": "text"}},
        }
        layers = [fitted, *layers, name]
    return chart_of(layers, series_names(points), points=points)


def _series_layers(
    points: Sequence[Point], unit: Unit, x: Spec, y: Spec, *, connected: bool = True
) -> list[Spec]:
    """Lines through what is comparable, intervals, and markers on top."""
    names = series_names(points)
    values = _apart(records_of(points, unit), names, x.get("scale", {}))
    at: Spec = {"x": {"field": "x", **x}, "y": {"field": "y", **y}}
    colour = _by_series(names, SERIES)
    # One layer per series: a dash by encoding would cut up the outline of the symbols in the legend too.
    lines: list[Spec] = [
        {
            "data": {
                "values": [record for record in values if record["series"] == name and not record["apart"]]
            },
            "mark": {
                "type": "line",
                "strokeWidth": 1.6,
                "stroke": stroke,
                "strokeDash": list(dash),
                "aria": False,
            },
            "encoding": at,
        }
        for name, stroke, dash in zip(names, SERIES, DASHES, strict=False)
    ]
    intervals: Spec = {
        "data": {"values": values},
        "mark": {"type": "rule", "strokeWidth": 1.4, "aria": False},
        "encoding": {"x": at["x"], "y": {"field": "low", **y}, "y2": {"field": "high"}, "stroke": colour},
    }
    marks = {"data": {"values": values}, **_marks(names, x, y)}
    return [*(lines if connected else []), intervals, marks]


def _apart(records: list[Spec], names: Sequence[str], scale: Spec) -> list[Spec]:
    """Series a little beside each other, or one hides the other; ticks stand at the true values."""
    if len(names) < 2 or "domain" not in scale:
        return records
    low, high = scale["domain"]
    shift = min(BESIDE, BESIDE_ALL / len(names))
    for record in records:
        part = shift * (names.index(record["series"]) - (len(names) - 1) / 2)
        logarithmic = scale.get("type") == "log"
        record["x"] = record["x"] * (high / low) ** part if logarithmic else record["x"] + (high - low) * part
    return records


def _by_series(names: Sequence[str], values: Sequence[Any]) -> Spec:
    """One channel that tells series apart; the channels of all layers share one legend."""
    scale = {"domain": list(names), "range": list(values)}
    return {
        "field": "series",
        "type": "nominal",
        "scale": scale,
        "legend": {**LEGEND, "offset": TITLE_PX} if len(names) > 1 else None,
    }


def _marks(names: Sequence[str], x: Spec, y: Spec, *, size: float = 60) -> Spec:
    colour = _by_series(names, SERIES)
    return {
        "mark": {"type": "point", "filled": True, "size": size, "opacity": 1, "strokeWidth": 1.4},
        "encoding": {
            "x": {"field": "x", **x},
            "y": {"field": "y", **y},
            "shape": _by_series(names, SHAPES),
            "stroke": colour,
            "fill": {"condition": {"test": "datum.apart", "value": PAPER}, **colour},
            "description": {"field": "tip"},
        },
    }
