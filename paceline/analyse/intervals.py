"""How sure a median is: samples in rounds enter, a `Metric` with its 95 % interval leaves.

Two things make a step time uncertain, and each has its own estimate. *Within* a launch, steps remember the
steps before them, so blocks of consecutive steps are drawn again, not single steps. *Between* launches the
whole level shifts by per cents, which no step of one launch can tell, so the launches' medians are compared
with each other. The interval is the wider of the two at either end.
Try it: `pytest tests/unit/test_statistics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from paceline.record import LaunchNoise, Metric, Row

Array = NDArray[np.float64]

CONFIDENCE = 0.95
NUM_REPLICATES = 1000
# Values drawn in all: bounds time and memory when a script ran for many thousands of steps.
MAX_DRAWN = 5_000_000
# Launches that must agree before a narrow interval is believed: two may be alike by chance.
MIN_ROUNDS_TO_STOP = 3

UNKNOWN_NOISE = LaunchNoise()

# Of e, that a float still holds: two launches that differ wildly have an interval without end.
LARGEST_EXPONENT = 700.0

# The metrics that `--until` is about: every step time, and every ratio between rows.
WATCHED = ("step_time_s", "speedup", "placement_gain")


def median_over_rounds(
    rounds: Sequence[Array], unit: str, noise: LaunchNoise = UNKNOWN_NOISE
) -> Metric | None:
    """The median of all steps of all rounds; a round is one launch's steps in order."""
    rounds = [steps[np.isfinite(steps)] for steps in rounds]
    rounds = [steps for steps in rounds if len(steps)]
    if not rounds:
        return None
    pooled = np.concatenate(rounds)
    median = float(np.median(pooled))
    drawn, num_blocks = _draw_blocks(rounds)
    replicates = np.median(np.concatenate(drawn, axis=1), axis=1)
    within = _percentiles(replicates, median, num_blocks)
    medians = [float(np.median(steps)) for steps in rounds]
    low, high = _hull(median, [within, _between_launches(medians, noise)])
    # Times are not negative, though a wall clock that was set back may say so.
    return Metric(median, max(low, min(median, 0.0)), high, len(pooled), unit)


def ratio_over_rounds(
    pairs: Sequence[tuple[Array, Array]], unit: str = "ratio", noise: LaunchNoise = UNKNOWN_NOISE
) -> Metric | None:
    """The median over rounds of median(numerator) / median(denominator), both of the same round.

    What slows a whole round (a warm machine, a neighbour) is in both and cancels.
    """
    tops = [top[np.isfinite(top)] for top, _ in pairs]
    bottoms = [bottom[np.isfinite(bottom)] for _, bottom in pairs]
    if not pairs or not all(len(steps) for steps in (*tops, *bottoms)):
        return None
    ratios = [float(np.median(top) / np.median(bottom)) for top, bottom in zip(tops, bottoms, strict=True)]
    median = float(np.median(ratios))
    drawn, num_blocks = _draw_blocks([*tops, *bottoms])
    logs = [np.log(np.median(steps, axis=1)) for steps in drawn]
    replicates = np.exp((sum(logs[: len(pairs)]) - sum(logs[len(pairs) :])) / len(pairs))
    within = _percentiles(replicates, float(np.exp(np.mean(np.log(ratios)))), num_blocks / 2)
    low, high = _hull(median, [within, _between_launches(ratios, noise)])
    return Metric(median, max(low, 0.0), high, len(pairs), unit)


def one_per_round(values: Iterable[float], unit: str) -> Metric | None:
    """The median of numbers of which each launch yields one. A single launch has no interval: NaN bounds."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return None
    median = float(np.median(known))
    low, high = _hull(median, [_between_launches(known)]) if len(known) > 1 else (math.nan, math.nan)
    return Metric(median, low, high, len(known), unit)


def counted(values: Iterable[float], unit: str) -> Metric | None:
    """Numbers that are counted, not timed: exact, so low and high are the smallest and the largest seen."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return None
    return Metric(float(np.median(known)), min(known), max(known), len(known), unit)


def relative_half_width(metric: Metric) -> float:
    """Half the interval over the median: 0.03 reads "known to 3 %"."""
    return (metric.high - metric.low) / 2 / abs(metric.median) if metric.median else math.inf


def interval_is_narrow(rows: Iterable[Row], until: float) -> bool:
    """Whether every step time and ratio is known to `until` (0.03 for 3 %), from enough launches to tell."""
    measured = [row for row in rows if "step_time_s" in row.metrics]
    # Ranks that take turns on cores may never hold still; nobody concludes from such a row.
    measured = [row for row in measured if not row.oversubscribed] or measured
    return all(row.rounds >= MIN_ROUNDS_TO_STOP for row in measured) and all(
        relative_half_width(row.metrics[name]) <= until
        for row in measured
        for name in WATCHED
        if name in row.metrics
    )


def rounds_wanted(
    half_width: float, rounds: int, wanted: float, most: int = 50, others: float = 0.0
) -> int | None:
    """How many rounds would bring an interval down to `wanted`, as Student's t narrows with launches.

    Of one launch the steps alone are known: it takes so many rounds even if launches do not differ. None
    where more than `most` would be needed. `others` is the freedom of the row's LaunchNoise.
    """
    tail = (1 + CONFIDENCE) / 2

    def width(num: int) -> float:
        freedom = num - 1 + others
        return float(stats.t.ppf(tail, freedom) if freedom else stats.norm.ppf(tail)) / math.sqrt(num)

    goal = width(rounds) * wanted / half_width
    enough = (num for num in range(max(rounds + 1, MIN_ROUNDS_TO_STOP), most + 1) if width(num) <= goal)
    return next(enough, None)


def block_length(steps: Array) -> int:
    """How many consecutive steps to draw together, from how strongly a step remembers the one before.

    Carlstein's length for a first-order memory, (2r / (1 - r²))^(2/3) · n^(1/3), and half as long again: r is
    itself estimated from few steps, and on simulated ones that is what brings the coverage above 90 %.
    """
    n = len(steps)
    if n < 4 or np.ptp(steps) <= 1e-9 * abs(steps.mean()):
        return 1
    # Of ranks, since it is about a median: among a few spikes the memory of the other steps would not show.
    deviations = stats.rankdata(steps) - (n + 1) / 2
    r = float(deviations[1:] @ deviations[:-1]) / float(deviations @ deviations)
    r += (1 + 4 * r) / n  # the estimate from n steps is too low by about this much
    r = min(max(r, 0.0), 0.95)
    length = math.ceil(1.5 * float((2 * r / (1 - r * r)) ** (2 / 3) * n ** (1 / 3)))
    return min(max(length, 1), n // 3)


def _draw_blocks(rounds: Sequence[Array]) -> tuple[list[Array], float]:
    """Per round replicates × steps, rows made of blocks drawn with replacement; and the number of blocks."""
    generator = np.random.default_rng(0)  # the same runs always give the same interval
    num_replicates = max(100, min(NUM_REPLICATES, MAX_DRAWN // sum(map(len, rounds))))
    drawn, num_blocks = [], 0.0
    for steps in rounds:
        n, length = len(steps), block_length(steps)
        # Circular: without it the first and last steps would be drawn less often.
        starts = generator.integers(0, n, (num_replicates, math.ceil(n / length)))
        places = (starts[:, :, None] + np.arange(length)) % n
        drawn.append(steps[places.reshape(num_replicates, -1)[:, :n]])
        num_blocks += n / length
    return drawn, num_blocks


def _percentiles(replicates: Array, centre: float, num_blocks: float) -> tuple[float, float]:
    """The central 95 % of the replicates, widened as Student's t widens the normal when blocks are few."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(replicates, (tail, 1 - tail))
    freedom = max(num_blocks - 1, 1.0)
    student = float(stats.t.ppf(1 - tail, freedom) / stats.norm.ppf(1 - tail))
    widening = student * math.sqrt(num_blocks / freedom)
    if min(centre, low) > 0:
        # As a factor, for however wide it is, no time and no ratio is 0.
        farthest = math.log(centre) + math.log(high / centre) * widening
        return centre * float(low / centre) ** widening, math.exp(min(farthest, LARGEST_EXPONENT))
    return centre - (centre - float(low)) * widening, centre + (float(high) - centre) * widening


def _between_launches(medians: Sequence[float], noise: LaunchNoise = UNKNOWN_NOISE) -> tuple[float, float]:
    """Student's interval for the centre of one value per launch, with what is known from other rows.

    One launch of which nothing else is known tells nothing: its own value.
    """
    values = np.array(medians)
    # Launches differ by per cents, and in logarithms a ratio and its inverse have the same interval.
    logarithmic = bool(np.all(values > 0))
    values = np.log(values) if logarithmic else values
    own, others = len(values) - 1, noise.freedom if logarithmic else 0.0
    if own + others == 0:
        return float(medians[0]), float(medians[0])
    centre = float(np.mean(values))
    squares = float(np.sum((values - centre) ** 2)) + others * noise.variance
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, own + others)
    half = float(quantile * math.sqrt(squares / (own + others) / len(values)))
    low, high = centre - half, centre + half
    if logarithmic:
        return math.exp(low), math.exp(min(high, LARGEST_EXPONENT))
    return (max(low, 0.0), high) if np.all(values >= 0) else (low, high)


def _hull(median: float, intervals: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(median, *(low for low, _ in intervals)), max(median, *(high for _, high in intervals))
