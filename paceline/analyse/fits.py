"""Laws through measured numbers: Amdahl's, a straight line, where two lines cross, where a curve bends.

In: numbers with their intervals, at the places where they were measured. Out: the law's constants, and what
it predicts elsewhere, each with a 95 % interval. The points are drawn again within their own intervals and
the law is fitted to every draw: near a bound (a share of 0, a latency of 0) a covariance would mislead. What
is marked apart, such as worlds with more ranks than cores, is in no fit.
Try it: `pytest tests/unit/test_fits.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from paceline.analyse.intervals import CONFIDENCE, NUM_REPLICATES, Array
from paceline.record import Metric

# A curve has bent where twice the input gains less than this.
LEAST_GAIN = 0.10
LEAST_WEIGHED = 0.01
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_QUANTILE = float(stats.norm.ppf(_TAILS[1]))


@dataclass(frozen=True)
class Observed:
    """One measured point."""

    x: float
    metric: Metric
    apart: bool = False


@dataclass(frozen=True, eq=False)
class AmdahlFit:
    """S(n) = 1 / (s + (1 − s) / n): a share s of one rank's step does not become shorter."""

    serial_share: Metric
    unbounded_share: float  # what the points say without 0 ≤ s ≤ 1: above 1, more ranks are slower
    base: float  # ranks of the smallest world, where S is 1
    worlds: tuple[float, ...]  # those in the fit
    draws: Array

    def speedup_at(self, world: float) -> Metric:
        """What the law predicts for so many ranks that all have a core."""

        def predict(share: Array) -> Array:
            return 1 / (share + (1 - share) * self.base / world)

        known = math.isfinite(self.serial_share.low)
        return _metric(
            float(predict(np.array(self.serial_share.median))),
            predict(self.draws),
            known,
            len(self.worlds),
            "ratio",
        )


@dataclass(frozen=True, eq=False)
class LineFit:
    """y = intercept + slope · x."""

    intercept: Metric
    slope: Metric
    low: float  # the range of x that was measured
    high: float
    draws: Array  # replicates × (intercept, slope)

    def at(self, x: float) -> Metric:
        known = math.isfinite(self.slope.low) and math.isfinite(self.intercept.low)
        return _metric(
            self.intercept.median + self.slope.median * x,
            self.draws @ np.array([1.0, x]),
            known,
            self.slope.n,
            self.intercept.unit,
        )


@dataclass(frozen=True)
class Knee:
    """The first x from which doubling gains less than LEAST_GAIN each time; None when it still gains."""

    x: float | None
    certainty: float  # the share of draws that agree


def fit_amdahl(speedups: Sequence[Observed]) -> AmdahlFit | None:
    """x is the number of ranks. None without a world beyond the smallest that is comparable."""
    points = _comparable(speedups)
    if len(points) < 2:
        return None
    base = points[0].x
    parallel = np.array([base / point.x for point in points])

    def share_of(times: Array) -> Array:
        # Relative errors: a time of twice the length is known half as well.
        lost = (1 - parallel) / times
        excess = (times - parallel) / times
        found: Array = (excess * lost).sum(axis=-1) / (lost * lost).sum(axis=-1)
        return found

    unbounded = float(share_of(1 / np.array([point.metric.median for point in points])))
    draws = np.clip(share_of(1 / _redraw(points)), 0.0, 1.0)
    share = _metric(min(max(unbounded, 0.0), 1.0), draws, _known(points[1:]), len(points) - 1, "ratio")
    return AmdahlFit(share, unbounded, base, tuple(point.x for point in points), draws)


def fit_line(observed: Sequence[Observed], *, non_negative: bool = False) -> LineFit | None:
    """By least squares of relative errors; `non_negative` keeps intercept and slope from falling below 0.

    None with fewer than two places. Of a message's time against its bytes, the intercept is the latency α
    and the slope is 1 / bandwidth.
    """
    points = _comparable(observed)
    places = np.array([point.x for point in points])
    if len(set(places)) < 2:
        return None
    # In units of the largest place: bytes beside a constant 1 would be badly conditioned.
    scale = float(np.abs(places).max())
    columns = np.stack((np.ones_like(places), places / scale), axis=1)

    def solve(values: Array) -> Array:
        # A count of 0 is known no better than a hundredth of the largest.
        weights = 1 / np.maximum(np.abs(values), LEAST_WEIGHED * np.abs(values).max() or 1.0)
        weighted, goal = columns * weights[:, None], values * weights
        if non_negative:
            return np.asarray(optimize.nnls(weighted, goal)[0], float)
        return np.asarray(np.linalg.lstsq(weighted, goal, rcond=None)[0], float)

    to_units = np.array([1.0, 1 / scale])
    best = solve(np.array([point.metric.median for point in points])) * to_units
    draws = np.array([solve(values) for values in _redraw(points)]) * to_units
    unit, known = points[0].metric.unit, _known(points)
    intercept, slope = (
        _metric(float(best[place]), draws[:, place], known, len(points), unit) for place in (0, 1)
    )
    return LineFit(intercept, slope, float(places.min()), float(places.max()), draws)


def flat_line(metric: Metric) -> LineFit:
    """What does not depend on x."""
    draws = _redraw([Observed(0.0, metric)])
    zero = Metric(0.0, 0.0, 0.0, metric.n, metric.unit)
    return LineFit(metric, zero, -math.inf, math.inf, np.concatenate((draws, np.zeros_like(draws)), axis=1))


def find_crossing(first: LineFit, second: LineFit) -> Metric | None:
    """The x > 0 at which both lines have one value; None where they do not meet there.

    Alpha–beta: the line of a message's time and the flat line 2α cross at the size below which latency
    is most of the time.
    """

    def cross(one: Array, other: Array) -> Array:
        apart = other[..., 0] - one[..., 0]
        closing = one[..., 1] - other[..., 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            found = apart / closing
        return np.where(found > 0, found, np.inf)

    best = float(cross(_constants(first), _constants(second)))
    if not math.isfinite(best):
        return None
    # The same generator drew both, so the second's draws are taken in another order.
    draws = cross(first.draws, second.draws[::-1])
    known = all(math.isfinite(line.intercept.low) for line in (first, second))
    return _metric(best, draws, known, min(first.slope.n, second.slope.n), "")


def find_knee(observed: Sequence[Observed]) -> Knee | None:
    """Where a growing curve bends; None with fewer than three places."""
    points = _comparable(observed)
    if len(points) < 3:
        return None
    places = np.array([point.x for point in points])

    def bend(values: Array) -> Array:
        """The index of the knee in every row; the last one means that there is none."""
        per_doubling = np.diff(np.log(values), axis=-1) / np.diff(np.log2(places))
        still_gains = per_doubling >= math.log1p(LEAST_GAIN)
        from_end = np.argmax(still_gains[..., ::-1], axis=-1)
        last_gain = np.where(still_gains.any(axis=-1), len(places) - 1 - from_end, 0)
        return np.asarray(last_gain)

    knee = int(bend(np.array([point.metric.median for point in points])))
    agree = float(np.mean(bend(np.maximum(_redraw(points), np.finfo(float).tiny)) == knee))
    return Knee(float(places[knee]) if knee < len(places) - 1 else None, agree)


def _comparable(observed: Sequence[Observed]) -> list[Observed]:
    chosen = [point for point in observed if not point.apart and math.isfinite(point.metric.median)]
    return sorted(chosen, key=lambda point: point.x)


def _known(points: Sequence[Observed]) -> bool:
    """A single launch of some numbers has no interval, and then nothing that follows from them has."""
    return all(math.isfinite(point.metric.low) and math.isfinite(point.metric.high) for point in points)


def _redraw(points: Sequence[Observed]) -> Array:
    """Replicates × points: each drawn so that 95 % fall into its interval and half below its median."""
    generator = np.random.default_rng(0)  # the same numbers always give the same interval
    drawn = []
    for point in points:
        deviations = generator.standard_normal(NUM_REPLICATES) / _QUANTILE
        metric = point.metric
        if not _known([point]):
            drawn.append(np.full(NUM_REPLICATES, metric.median))
        elif metric.low > 0:
            up, down = math.log(metric.high / metric.median), math.log(metric.median / metric.low)
            drawn.append(metric.median * np.exp(deviations * np.where(deviations > 0, up, down)))
        else:
            up, down = metric.high - metric.median, metric.median - metric.low
            drawn.append(metric.median + deviations * np.where(deviations > 0, up, down))
    return np.stack(drawn, axis=1)


def _constants(line: LineFit) -> Array:
    return np.array([line.intercept.median, line.slope.median])


def _metric(best: float, draws: Array, known: bool, n: int, unit: str) -> Metric:
    if not known:
        return Metric(best, math.nan, math.nan, n, unit)
    # A draw without a crossing is infinite, and between finite and infinite there is nothing to interpolate.
    low, high = (float(found) for found in np.quantile(draws, _TAILS, method="inverted_cdf"))
    return Metric(best, min(low, best), max(high, best), n, unit)
