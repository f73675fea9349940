"""Lanes of a step, of devices, and the matrix of copies: own SVG whose every share is known."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from report_samples import make_study, profiled_rank
from synthetic import make_run

from paceline.report.step_timeline import Span, busy_share, device_timeline, step_timeline
from paceline.report.transfers import Transfers


def test_lanes_of_a_step_have_the_shares_that_were_recorded() -> None:
    run = make_run(world=2, ranks=[profiled_rank(rank, 0.020, communicates=True) for rank in range(2)])
    timeline = step_timeline(run)
    assert timeline is not None
    assert [(lane.group, lane.kind) for lane in timeline.lanes[:3]] == [
        ("rank 0", "compute"),
        ("rank 0", "communication"),
        ("rank 0", "idle"),
    ]
    assert [busy_share(lane.spans, timeline.length_s) for lane in timeline.lanes[:3]] == pytest.approx(
        [0.5, 0.3, 0.2]
    )
    svg = timeline.draw(680)
    assert all(f">{share} %<" in svg for share in (50, 30, 20))
    assert "gloo:all_reduce: 6.00 ms" in svg


def test_ranks_without_a_common_clock_start_at_zero_each() -> None:
    far = profiled_rank(1, 0.020, communicates=True)
    (step,) = far.facts["timeline"]["steps"]
    step["start_s"], step["end_s"] = step["start_s"] + 1e4, step["end_s"] + 1e4
    step["slices"] = [[kind, name, start + 1e4, end + 1e4] for kind, name, start, end in step["slices"]]
    timeline = step_timeline(make_run(world=2, ranks=[profiled_rank(0, 0.020, communicates=True), far]))
    assert timeline is not None
    assert timeline.length_s == pytest.approx(0.020)


def test_overlapping_spans_count_once() -> None:
    assert busy_share([Span(0, 2), Span(1, 3), Span(5, 6)], 10) == pytest.approx(0.4)


def test_run_without_a_profile_has_no_timeline() -> None:
    assert step_timeline(make_run()) is None


def test_thousands_of_operators_stay_a_small_figure() -> None:
    spans = [Span(i * 1e-6, i * 1e-6 + 9e-7, "op") for i in range(4000)]
    svg = device_timeline([("virtual:0", spans)], 0.02).draw(680)
    assert len(svg) < 5000
    assert "4000 in 4.00 ms" in svg


def test_labels_of_the_axis_do_not_collide_on_a_phone() -> None:
    svg = device_timeline([("virtual:0", [Span(0, 0.01)])], 0.052).draw(340)
    places = sorted(float(x) for x in re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="middle"', svg))
    assert len(places) >= 2
    assert min(b - a for a, b in pairwise(places)) > 45


def test_transfers_show_counts_and_bytes_and_leave_the_diagonal_empty() -> None:
    svg = Transfers(("0", "1"), {("0", "1"): (30, 3 * 2**20), ("1", "0"): (29, 2**20)}).draw(340)
    assert "30 ×" in svg
    assert "3.00 MiB" in svg
    assert svg.count("<title>") == 2
    # More bytes, darker.
    shades = [float(shade) for shade in re.findall(r'fill-opacity="([\d.]+)"', svg)]
    assert shades[0] > shades[1]


def test_own_figures_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    timeline = step_timeline(make_study({2: 0.02})[0])
    assert timeline is not None
    assert timeline.draw(340).startswith("<svg")
