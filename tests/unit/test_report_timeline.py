"""Lanes of a step, of devices, and the matrix of copies: own SVG whose every share is known."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from report_samples import make_study, profiled_rank
from synthetic import make_run

from paceline.report.step_timeline import MOST_RANKS, Span, busy_share, device_timeline, step_timeline
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


@pytest.mark.parametrize("width", [310, 340, 680])
def test_every_timeline_has_a_scale(width: int) -> None:
    for tenths in range(10, 100):
        ranks = [profiled_rank(0, tenths * 1e-3, communicates=True)]
        timeline = step_timeline(make_run(world=1, ranks=ranks))
        assert timeline is not None
        assert re.search(r">[\d.]+ ms</text>", timeline.draw(width)), f"{tenths} ms"


def test_world_of_many_ranks_is_shown_by_some() -> None:
    run = make_run(world=64, ranks=[profiled_rank(rank, 0.02, communicates=True) for rank in range(64)])
    timeline = step_timeline(run)
    assert timeline is not None
    groups = list(dict.fromkeys(lane.group for lane in timeline.lanes))
    assert len(groups) == MOST_RANKS
    assert (groups[0], groups[-1]) == ("rank 0", "rank 63")


def test_many_devices_fit_beside_each_other() -> None:
    names = tuple(f"device {number}" for number in range(8))
    svg = Transfers(names, {("device 0", "device 1"): (1, 2**17)}).draw(310, 0.6)
    heads = re.findall(r'<text x="([\d.]+)" y="30.0"[^>]*>([^<]*)<', svg)
    assert [text for _, text in heads] == list("01234567")
    assert "to device<" in svg
    # What does not fit into its cell is left to the tooltip.
    assert "128 KiB</text>" not in svg
    assert "1 copies, 128 KiB</title>" in svg
    few = Transfers(names[:2], {("device 0", "device 1"): (1, 2**17)})
    assert "128 KiB</text>" in few.draw(310, 0.6)


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
