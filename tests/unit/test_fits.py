"""Laws are found again in numbers that were made by them, and their intervals hold what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.analyse.fits import Observed, find_crossing, find_knee, fit_amdahl, fit_line, flat_line
from paceline.record import Metric


def around(median: float, width: float = 0.02, unit: str = "ratio") -> Metric:
    """Known to ± `width`."""
    return Metric(median, median * (1 - width), median * (1 + width), 3, unit)


def unsure(median: float, unit: str = "s") -> Metric:
    """From a single launch, without an interval."""
    return Metric(median, math.nan, math.nan, 1, unit)


def amdahl(share: float, world: float) -> float:
    return 1 / (share + (1 - share) / world)


def speedups(share: float, *worlds: int, width: float = 0.02) -> list[Observed]:
    one = Observed(1, Metric(1, 1, 1, 3, "ratio"))
    return [one, *(Observed(world, around(amdahl(share, world), width)) for world in worlds)]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_amdahl_s_share_is_found_and_predicts_other_worlds(share: float) -> None:
    fit = fit_amdahl(speedups(share, 2, 4))
    assert fit is not None
    assert fit.serial_share.median == pytest.approx(share)
    assert fit.serial_share.low < share < fit.serial_share.high
    assert fit.speedup_at(64).median == pytest.approx(amdahl(share, 64))


def test_a_smallest_world_of_two_is_the_base() -> None:
    points = [Observed(2, around(1.0, 0)), Observed(8, around(amdahl(0.2, 4)))]
    fit = fit_amdahl(points)
    assert fit is not None
    assert fit.serial_share.median == pytest.approx(0.2)
    assert fit.speedup_at(32).median == pytest.approx(amdahl(0.2, 16))


def test_a_lopsided_interval_makes_a_lopsided_fit() -> None:
    one = Observed(1, Metric(1, 1, 1, 3, "ratio"))
    lopsided = Metric(1.6, 1.59, 1.9, 3, "ratio")
    fit = fit_amdahl([one, Observed(2, lopsided)])
    assert fit is not None
    # s = 2 / S - 1: from 1 / 19 to about 1 / 4, where S is 1.6 to the right and little beyond it.
    assert (fit.serial_share.low, fit.serial_share.high) == pytest.approx(
        (2 / 1.9 - 1, 2 / 1.59 - 1), abs=0.01
    )


def test_a_perfect_or_superlinear_speedup_is_a_share_of_zero_with_an_interval_inside_the_bounds() -> None:
    fit = fit_amdahl(speedups(-0.01, 2, 4, width=0.1))
    assert fit is not None
    assert fit.serial_share.median == fit.serial_share.low == 0
    assert 0 < fit.serial_share.high < 0.3
    assert fit.unbounded_share == pytest.approx(-0.01)


def test_a_slowdown_lies_beyond_the_law_and_says_so() -> None:
    fit = fit_amdahl(speedups(1.4, 2, 4))
    assert fit is not None
    assert fit.serial_share.median == 1
    assert fit.unbounded_share == pytest.approx(1.4)
    assert fit.speedup_at(4).median == 1


def test_worlds_that_stand_apart_are_in_no_fit() -> None:
    points = [*speedups(0.1, 2), Observed(4, around(0.5), apart=True)]
    fit = fit_amdahl(points)
    assert fit is not None
    assert fit.serial_share.median == pytest.approx(0.1)
    assert fit.worlds == (1, 2)
    assert fit_amdahl([points[0], points[2]]) is None


def test_nine_in_ten_intervals_hold_the_share_that_made_the_numbers() -> None:
    generator = np.random.default_rng(1)
    share, held = 0.25, 0
    for _ in range(100):
        points = [Observed(1, Metric(1, 1, 1, 3, "ratio"))]
        for world in (2, 4, 8):
            measured = amdahl(share, world) * math.exp(generator.normal(0, 0.02))
            points.append(Observed(world, around(measured, 1.96 * 0.02)))
        fit = fit_amdahl(points)
        assert fit is not None
        held += fit.serial_share.low <= share <= fit.serial_share.high
    assert held >= 90


def test_what_rests_on_one_launch_has_no_interval() -> None:
    fit = fit_amdahl([Observed(1, around(1.0, 0)), Observed(2, unsure(1.6, "ratio"))])
    assert fit is not None
    assert fit.serial_share.median == pytest.approx(0.25)
    assert math.isnan(fit.serial_share.low)
    assert math.isnan(fit.speedup_at(4).low)


def test_a_line_is_found_even_where_x_is_large() -> None:
    points = [Observed(size, around(100e-6 + size / 1.5e9, unit="s")) for size in (1e3, 1e6, 3e7, 1e8)]
    fit = fit_line(points, non_negative=True)
    assert fit is not None
    assert fit.intercept.median == pytest.approx(100e-6)
    assert 1 / fit.slope.median == pytest.approx(1.5e9)
    assert fit.slope.low < 1 / 1.5e9 < fit.slope.high
    assert fit.at(5e7).median == pytest.approx(100e-6 + 5e7 / 1.5e9)
    assert (fit.low, fit.high) == (1e3, 1e8)


def test_points_apart_do_not_bend_the_line() -> None:
    points = [Observed(x, around(2.0 + x, unit="s")) for x in (1, 2, 3)]
    fit = fit_line([*points, Observed(4, around(60.0, unit="s"), apart=True)])
    assert fit is not None
    assert fit.slope.median == pytest.approx(1)
    assert fit_line(points[:1]) is None


def test_a_latency_is_not_negative() -> None:
    points = [Observed(1, around(0.5, unit="s")), Observed(2, around(2.0, unit="s"))]
    free, bounded = fit_line(points), fit_line(points, non_negative=True)
    assert free is not None
    assert bounded is not None
    assert free.intercept.median == pytest.approx(-1)
    assert bounded.intercept.median == bounded.intercept.low == 0


def test_computing_and_sending_cross_where_they_are_equal() -> None:
    computing = fit_line([Observed(batch, around(1e-3 + batch * 1e-4, unit="s")) for batch in (16, 32, 64)])
    assert computing is not None
    crossing = find_crossing(computing, flat_line(around(21e-3, unit="s")))
    assert crossing is not None
    assert crossing.median == pytest.approx(200)
    assert crossing.low < 200 < crossing.high


def test_latency_and_bandwidth_cross_at_their_product() -> None:
    message = fit_line([Observed(size, around(100e-6 + size / 1e9, unit="s")) for size in (1e3, 1e5, 1e7)])
    assert message is not None
    twice = Metric(2 * message.intercept.median, math.nan, math.nan, 1, "s")
    crossing = find_crossing(message, flat_line(twice))
    assert crossing is not None
    assert crossing.median == pytest.approx(100e-6 * 1e9)
    assert math.isnan(crossing.low), "one of the two has no interval"


def test_lines_that_never_meet_have_no_crossing() -> None:
    slow = fit_line([Observed(x, around(5.0 + x, unit="s")) for x in (1, 2, 3)])
    assert slow is not None
    assert find_crossing(slow, flat_line(around(1.0, unit="s"))) is None


def test_lines_that_may_never_meet_have_a_crossing_without_an_upper_end() -> None:
    points = [Observed(x, around(1.0 + 0.01 * x, 0.05, unit="s")) for x in (1, 2, 4)]
    line = fit_line(points)
    assert line is not None
    crossing = find_crossing(line, flat_line(around(1.5, unit="s")))
    assert crossing is not None
    assert crossing.median == pytest.approx(50)
    assert crossing.high == math.inf


@pytest.mark.parametrize(
    ("curve", "knee"),
    [
        ([1.0, 1.5, 1.9, 1.95], 128),
        ([1.0, 1.3, 1.7, 2.2], None),
        ([1.8, 1.81, 1.82, 1.83], 32),
        ([1.9, 1.6, 1.3, 1.0], 32),
    ],
)
def test_a_curve_bends_where_doubling_gains_no_more(curve: list[float], knee: float | None) -> None:
    points = [Observed(x, around(y, 0.005)) for x, y in zip((32, 64, 128, 256), curve, strict=True)]
    found = find_knee(points)
    assert found is not None
    assert found.x == knee
    assert found.certainty > 0.9


def test_a_knee_in_noise_is_uncertain() -> None:
    points = [Observed(x, around(y, 0.5)) for x, y in zip((32, 64, 128), (1.0, 1.12, 1.2), strict=True)]
    found = find_knee(points)
    assert found is not None
    assert found.certainty < 0.8
    assert find_knee(points[:2]) is None


def test_a_count_of_nothing_lies_on_the_line_too() -> None:
    points = [Observed(devices, Metric(n, n, n, 1, "count")) for devices, n in ((1, 0), (2, 2), (5, 8))]
    fit = fit_line(points)
    assert fit is not None
    assert fit.slope.median == pytest.approx(2)
    assert fit.at(1).median == pytest.approx(0, abs=1e-9)


def test_two_lines_are_drawn_independently() -> None:
    rising = fit_line([Observed(x, around(float(x), 0.1, unit="s")) for x in (1, 100)])
    level = fit_line([Observed(x, around(50.0, 0.1, unit="s")) for x in (1, 100)])
    assert rising is not None
    assert level is not None
    crossing = find_crossing(rising, level)
    assert crossing is not None
    # Of the rising line's one point and the level one's two: 10 % × √(1 + 1/2).
    assert (crossing.high - crossing.low) / 2 / 50 == pytest.approx(0.122, rel=0.2)
