"""Horizontal bars: values with intervals, and memory by category; names of any length fit beside them.

In: points, or bytes by category. Out: a `Chart`. Solid and hatched fills stay apart in grey print.
Exercise: `pytest tests/unit/test_report_charts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.report.chart_parts import (
    LEGEND,
    Point,
    Spec,
    chart_of,
    records_of,
    series_names,
    title_with,
    unit_of,
)
from paceline.report.drawing import Chart
from paceline.report.palette import (
    DOTTED_SAND,
    HATCHED_BLUE,
    HATCHED_ORANGE,
    HATCHED_VIOLET,
    INK,
    PAPER,
    SOLID_BLUE,
    SOLID_GREY,
    SOLID_PALE,
    SOLID_TEAL,
)
from paceline.report.units import choose_unit

# Fixed places and fills: a category looks the same in every figure.
MEMORY_FILLS = {
    "parameters": SOLID_BLUE,
    "gradients": HATCHED_ORANGE,
    "optimizer": SOLID_TEAL,
    "activations": HATCHED_BLUE,
    "buffers": SOLID_PALE,
    "communication": HATCHED_VIOLET,
    "other": DOTTED_SAND,
    "not tracked": SOLID_GREY,
}


def bars(points: Sequence[Point], value_title: str) -> Chart:
    """One bar per name (`x`), its interval and its value; several series stand beside each other."""
    unit = unit_of(points)
    names = series_names(points)
    values = [{**record, "fill": record["series"] or "all"} for record in records_of(points, unit)]
    highest = max(record["high"] for record in values)
    y: Spec = {"field": "x", "type": "nominal", "sort": None, "title": None}
    offset: Spec = (
        {"yOffset": {"field": "series", "type": "nominal", "sort": names}} if len(names) > 1 else {}
    )
    at: Spec = {"y": y, **offset}
    x: Spec = {
        "field": "y",
        "type": "quantitative",
        "title": title_with(value_title, unit),
        "scale": {"domain": [0, highest * 1.18], "nice": False},
    }
    fills = [SOLID_BLUE, HATCHED_ORANGE, SOLID_TEAL, HATCHED_VIOLET, SOLID_PALE, DOTTED_SAND][: len(names)]
    fill: Spec = {
        "condition": {"test": "datum.apart", "value": PAPER},
        "field": "fill",
        "type": "nominal",
        "scale": {"domain": [name or "all" for name in names], "range": fills},
        "legend": LEGEND if len(names) > 1 else None,
    }
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "stroke": INK, "strokeWidth": 0.6, "height": {"band": 0.75}},
            "encoding": {**at, "x": x, "fill": fill, "description": {"field": "tip"}},
        },
        # On a light ground, or the interval's lower half would vanish in the bar.
        *(
            {
                "mark": {"type": "rule", "color": colour, "strokeWidth": width, "aria": False},
                "encoding": {**at, "x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
            }
            for colour, width in ((PAPER, 5), (INK, 1.4))
        ),
        {
            "mark": {"type": "text", "align": "left", "dx": 5, "color": INK, "aria": False},
            "encoding": {**at, "x": {"field": "high", "type": "quantitative"}, "text": {"field": "text"}},
        },
    ]
    rows = len({record["x"] for record in values}) * max(len(names), 1)
    chart = chart_of(layers, names, points=points, values=values)
    return Chart(
        {**chart.spec, "height": 60 + 26 * rows}, chart.names, max(len(record["x"]) for record in values)
    )


def memory_stack(stacks: Sequence[tuple[str, Mapping[str, float]]]) -> Chart:
    """Bytes by category, one bar per name, in the order of MEMORY_FILLS; the sum stands at the end."""
    unit = choose_unit([sum(split.values()) for _, split in stacks], "bytes")
    order = {category: place for place, category in enumerate(MEMORY_FILLS)}
    unknown = {category for _, split in stacks for category in split} - set(order)
    if unknown:
        raise ValueError(f"no fill for the memory category {min(unknown)!r}; one of {', '.join(order)}")
    present = [category for category in order if any(split.get(category) for _, split in stacks)]
    values = [
        {
            "x": name,
            "category": category,
            "order": order[category],
            "y": split[category] / unit.size,
            "tip": f"{name}, {category}: {unit.show(split[category])}",
        }
        for name, split in stacks
        for category in present
        if split.get(category)
    ]
    sums: list[Spec] = [{"x": name, "y": sum(split.values()) / unit.size} for name, split in stacks]
    for total in sums:
        total["text"] = unit.show(total["y"] * unit.size)
    highest = max(total["y"] for total in sums)
    y: Spec = {"field": "x", "type": "nominal", "sort": None, "title": None}
    x: Spec = {
        "field": "y",
        "type": "quantitative",
        "title": title_with("peak memory", unit),
        "scale": {"domain": [0, highest * 1.3], "nice": False},
    }
    fill: Spec = {
        "field": "category",
        "type": "nominal",
        "sort": present,
        "scale": {"domain": present, "range": [MEMORY_FILLS[category] for category in present]},
        "legend": LEGEND,
    }
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "stroke": INK, "strokeWidth": 0.6, "height": {"band": 0.7}},
            "encoding": {
                "y": y,
                "x": {**x, "stack": "zero"},
                "order": {"field": "order"},
                "fill": fill,
                "description": {"field": "tip"},
            },
        },
        {
            "data": {"values": sums},
            "mark": {"type": "text", "align": "left", "dx": 5, "color": INK, "aria": False},
            "encoding": {"y": y, "x": x, "text": {"field": "text"}},
        },
    ]
    chart = chart_of(layers, present, values=values)
    height = 62 + 28 * len(stacks)
    return Chart({**chart.spec, "height": height}, chart.names, max(len(name) for name, _ in stacks))
