"""What charts say, how they are told apart without colour, and that they are the same on every repeat."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import pytest
from report_samples import SPEEDUP, ratio, seconds

from paceline.record import Metric
from paceline.report import palette
from paceline.report.bar_charts import MEMORY_FILLS, bars, memory_stack
from paceline.report.chart_parts import APART, CUT_NOTE, Point
from paceline.report.charts import Line, against, scatter, speedup, step_strip
from paceline.report.drawing import rasterise
from paceline.report.palette import PAPER, SERIES, css_variables, follow_theme, hatch
from paceline.report.units import choose_unit

pytest.importorskip("vl_convert")


def titles(svg: str) -> list[str]:
    return re.findall(r"<title>([^<]*)</title>", svg)


def test_unit_is_the_largest_that_keeps_numbers_above_one() -> None:
    assert choose_unit([0.02, 0.004], "s").name == "ms"
    assert choose_unit([2e-5], "s").show(2e-5) == "20.0 µs"
    assert choose_unit([3 * 2**20], "bytes").show(1.5 * 2**20) == "1.50 MiB"
    assert choose_unit([], "s").name == "µs"


def test_every_point_says_its_value_and_interval() -> None:
    assert "2: 1.70 × (1.61 × to 1.78 ×)" in titles(SPEEDUP.draw(340))


def test_oversubscribed_points_are_hollow_off_the_line_and_explained() -> None:
    svg = SPEEDUP.draw(340)
    marks = re.findall(r'<path [^>]*fill="(#\w+)"[^>]*><title>([^<]*)</title>', svg)
    assert [fill == PAPER for fill, _ in marks] == [False, False, True]
    assert "oversubscribed" in marks[2][1]
    assert APART in svg
    (line,) = re.findall(rf'd="(M[^"]*)" stroke="{SERIES[0]}" stroke-width="1.6"', svg)
    assert line.count("L") == 1  # from 1 to 2 ranks, not on to 4
    assert APART not in speedup([Point(1, ratio(1.0)), Point(2, ratio(1.7))]).draw(340)


def test_series_differ_in_shape_and_dash_not_only_in_colour() -> None:
    points = [
        Point(x, seconds(x * t), name) for x in (4, 8) for name, t in (("with", 1e-3), ("without", 2e-3))
    ]
    svg = against(points, "ACCUM_STEPS", "step time").draw(340)
    shapes = {
        (stroke, re.sub(r"[-\d.,]+", "", path))
        for path, stroke in re.findall(r'd="([^"]*)" fill="[^"]*" stroke="([^"]*)"[^>]*><title>', svg)
    }
    assert len({shape for _, shape in shapes}) == 2
    dashes = set(re.findall(r'stroke-width="1.6" stroke-dasharray="([^"]*)"', svg))
    assert len(dashes) == 2


def test_all_memory_fills_differ_in_lightness_or_hatching() -> None:
    names = list(MEMORY_FILLS)
    svg = hatch(memory_stack([("all", dict.fromkeys(names, 2.0**20))]).draw(340), "x")
    fills = re.findall(r'fill="([^"]*)"[^>]*><title>all, ([^:]*):', svg)
    assert [name for _, name in fills] == names
    solid = sorted(lightness(fill) for fill, _ in fills if fill.startswith("#"))
    assert all(b - a > 0.1 for a, b in pairwise(solid))
    hatched = [fill for fill, _ in fills if fill.startswith("url")]
    assert len(set(hatched)) == len(hatched) == len(names) - len(solid)


def test_memory_category_without_a_fill_is_refused() -> None:
    with pytest.raises(ValueError, match="no fill for the memory category 'socks'"):
        memory_stack([("one", {"socks": 1.0})])


def test_bars_show_values_and_intervals_of_names_of_any_length() -> None:
    svg = bars(
        [Point("a rather long name of a code", seconds(0.02)), Point("b", seconds(0.01))], "time"
    ).draw(340)
    assert {"a rather long name of a code: 20.0 ms (19.0 ms to 21.0 ms)"} <= set(titles(svg))


def test_warm_up_steps_are_marked_and_a_spike_makes_the_axis_logarithmic() -> None:
    svg = step_strip({"one": [0.9, 0.02, 0.02, 0.02]}, warmup=1).draw(340)
    assert "one, step 0 (warm-up): 900 ms" in titles(svg)
    assert "warm-up</text>" in svg
    assert ", log" in svg
    assert ", log" not in step_strip({"one": [0.03, 0.02, 0.02, 0.02]}, warmup=1).draw(340)


def plot_height(svg: str) -> float:
    """Of what lies within the axes."""
    (height,) = re.findall(r'<path d="M0,0h[\d.]+v([\d.]+)h-[\d.]+Z"/>', svg)
    return float(height)


def test_legends_and_notes_do_not_take_the_room_of_the_plot() -> None:
    bare = speedup([Point(1, ratio(1.0)), Point(2, ratio(1.7))])
    wild = Metric(0.9, 0.01, 99.0, 2, "ratio")
    full = speedup([
        Point(world, wild if world == 4 else ratio(1.0), f"accum-steps {n}, precision float32", world == 4)
        for world in (1, 2, 4)
        for n in range(4)
    ])  # fmt: skip
    for scale in (1.0, 0.6):
        assert plot_height(full.draw(310, scale)) > 0.8 * plot_height(bare.draw(310, scale))
    assert plot_height(bare.draw(310, 0.1)) > 40


def test_title_of_the_value_axis_is_not_cut_off_on_a_low_chart() -> None:
    svg = step_strip({"one": [0.9, 0.02, 0.02, 0.02]}, warmup=1).draw(310, 0.3)
    (title,) = re.findall(r"<text[^>]*>step time, ms, log</text>", svg)
    assert "rotate" not in title


def test_what_warm_up_means_stands_above_its_steps() -> None:
    for spike in (0.9, 0.03):
        svg = step_strip({"one": [spike, 0.02, 0.02, 0.02]}, warmup=1).draw(310, 0.6)
        (label,) = re.findall(r'translate\([\d.]+,([\d.]+)\)"[^>]*>warm-up', svg)
        (mark,) = re.findall(r'translate\([\d.]+,([\d.]+)\)"[^>]*><title>one, step 0', svg)
        assert float(mark) - float(label) > 4  # the label's foot, the middle of the mark


def test_series_stand_beside_each_other_not_on_each_other() -> None:
    points = [Point(n, seconds(0.01 * n), name) for n in (4, 8, 16) for name in ("with", "without")]
    svg = against(points, "ACCUM_STEPS", "step time").draw(310)
    places = [
        float(x)
        for name in ("with", "without")
        for x in re.findall(rf'translate\(([\d.]+),[\d.]+\)"[^>]*><title>8, {name}:', svg)
    ]
    assert 5 < places[1] - places[0] < 15
    # The ticks stay where the numbers are.
    assert re.findall(r'text-anchor="middle"[^>]*>(4|8|16)</text>', svg) == ["4", "8", "16"]


def test_metric_without_an_interval_is_drawn_as_a_point() -> None:
    nan = float("nan")
    svg = against([Point(1, Metric(0.02, nan, nan, 1, "s")), Point(2, seconds(0.03))], "n", "time").draw(340)
    assert "1: 20.0 ms" in titles(svg)
    assert "NaN" not in svg


def test_interval_that_says_nothing_does_not_flatten_what_is_known() -> None:
    wild = Metric(0.020, 1e-4, 38.6, 2, "s")
    svg = against([Point(1, wild), Point(2, seconds(0.030))], "n", "time").draw(340)
    assert "1: 20.0 ms (0.100 ms to 38600 ms)" in titles(svg)
    assert CUT_NOTE in svg
    labels = [float(label) for label in re.findall(r'text-anchor="end"[^>]*>([\d.]+)</text>', svg)]
    assert max(labels) <= 60
    assert CUT_NOTE not in SPEEDUP.draw(340)


def test_fitted_line_is_drawn_and_named() -> None:
    points = [Point(n, seconds(0.01 + 0.002 * n)) for n in (1, 2, 4)]
    svg = scatter(points, "devices", "time", Line(0.01, 0.002, 1, 4, "10 ms + 2 ms per device")).draw(340)
    assert "10 ms + 2 ms per device" in svg


def test_drawing_again_in_another_process_yields_the_same_bytes() -> None:
    # Another drawing before it: counters inside the renderer must not show.
    script = "from report_samples import SPEEDUP; SPEEDUP.draw(500); sys.stdout.write(SPEEDUP.draw(340))"
    paths = [path for path in sys.path if path]
    other = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout == SPEEDUP.draw(340)


def test_png_is_drawn_on_white() -> None:
    assert rasterise(SPEEDUP.draw(340)).startswith(b"\x89PNG")


def test_dark_theme_replaces_every_colour() -> None:
    svg = follow_theme(hatch(SPEEDUP.draw(340), "x"))
    assert not re.search(r'(fill|stroke)="#', svg)
    used = set(re.findall(r"var\(--([\w-]+)\)", svg))
    assert used <= set(re.findall(r"--([\w-]+):", css_variables(dark=True)))


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_in_both_themes(dark: bool) -> None:
    colours = dict(re.findall(r"--([\w-]+): (#\w+);", css_variables(dark=dark)))
    for ground in ("paper", "shade"):
        for text in ("ink", "faint"):
            assert contrast(colours[text], colours[ground]) >= 4.5
    for place in range(1, len(SERIES) + 1):
        assert contrast(colours[f"series-{place}"], colours["paper"]) >= 3


def test_palette_has_no_colour_twice() -> None:
    assert len(palette._THEME) == len({name for name, _ in palette._THEME.values()})


def lightness(colour: str) -> float:
    """Relative luminance, on the scale of what the eye sees."""
    return luminance(colour) ** (1 / 2.2)


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    darker, lighter = sorted((luminance(a), luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)
