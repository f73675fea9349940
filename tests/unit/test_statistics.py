"""A 95 % interval must contain the truth at least 90 times in 100, on steps like those that were seen.

Steps remember the step before (a first-order memory, phi), and launches differ as a whole by 3.5 %. The
tests draw such steps from a known median and count.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from synthetic import ar1

from paceline.analyse import intervals
from paceline.analyse.intervals import (
    Array,
    block_length,
    counted,
    interval_is_narrow,
    median_over_rounds,
    one_per_round,
    ratio_over_rounds,
    relative_half_width,
    rounds_wanted,
)
from paceline.record import Metric, Row

TRUTH_S = 0.020
NUM_TRIALS = 250
# With 250 trials, a true coverage of 95 % gives less than this once in a thousand.
LEAST_COVERAGE = 0.90


@pytest.fixture(autouse=True)
def fewer_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "NUM_REPLICATES", 300)


def draw_rounds(
    generator: np.random.Generator,
    *,
    rounds: int,
    steps: int,
    phi: float,
    launches: float,
    spread: float = 0.08,
    spikes: float = 0.0,
) -> list[Array]:
    """`spikes`: the share of steps that are much longer or shorter than the others, without any memory."""
    drawn = []
    for _ in range(rounds):
        deviations = ar1(generator, steps, phi=phi, spread=spread) + generator.normal(0.0, launches)
        if spikes:
            deviations += generator.choice([-1.0, 1.0], steps) * (generator.random(steps) < spikes)
        drawn.append(TRUTH_S * np.exp(deviations))
    return drawn


def coverage_of_median(**how: float) -> float:
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(NUM_TRIALS):
        metric = median_over_rounds(draw_rounds(generator, **how), "s")  # type: ignore[arg-type]
        assert metric is not None
        hits += metric.low <= TRUTH_S <= metric.high
    return hits / NUM_TRIALS


CASES = [
    pytest.param({"rounds": 1, "steps": 30, "phi": 0.0, "launches": 0.0}, id="one launch, no memory"),
    pytest.param({"rounds": 1, "steps": 30, "phi": 0.6, "launches": 0.0}, id="one launch, memory"),
    pytest.param({"rounds": 1, "steps": 150, "phi": 0.8, "launches": 0.0}, id="one launch, long memory"),
    pytest.param(
        {"rounds": 1, "steps": 30, "phi": 0.6, "launches": 0.0, "spikes": 0.08}, id="one launch, spikes"
    ),
    pytest.param({"rounds": 3, "steps": 30, "phi": 0.6, "launches": 0.0}, id="equal launches"),
    pytest.param({"rounds": 2, "steps": 30, "phi": 0.3, "launches": 0.035}, id="two launches"),
    pytest.param({"rounds": 3, "steps": 30, "phi": 0.6, "launches": 0.035}, id="three launches"),
    pytest.param({"rounds": 8, "steps": 30, "phi": 0.6, "launches": 0.035}, id="eight launches"),
]


@pytest.mark.parametrize("how", CASES)
def test_the_interval_of_a_median_covers_the_truth(how: dict[str, float]) -> None:
    assert coverage_of_median(**how) >= LEAST_COVERAGE


@pytest.mark.parametrize("how", [case for case in CASES if case.id != "one launch, no memory"])
def test_drawing_single_steps_would_not_cover_it(
    how: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "block_length", lambda steps: 1)
    monkeypatch.setattr(intervals, "_between_launches", lambda medians, noise: (math.inf, -math.inf))
    assert coverage_of_median(**how) < LEAST_COVERAGE


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_the_interval_of_a_ratio_covers_the_truth_though_whole_rounds_drift(rounds: int) -> None:
    generator = np.random.default_rng(3)
    launches = 0.0 if rounds == 1 else 0.035
    hits = 0
    for _ in range(NUM_TRIALS):
        pairs = []
        for _ in range(rounds):
            drift = generator.uniform(0.7, 1.3)
            (slow,) = draw_rounds(generator, rounds=1, steps=30, phi=0.6, launches=launches)
            (fast,) = draw_rounds(generator, rounds=1, steps=30, phi=0.3, launches=launches)
            pairs.append((drift * slow, drift * fast / 1.7))
        metric = ratio_over_rounds(pairs)
        assert metric is not None
        hits += metric.low <= 1.7 <= metric.high
        assert relative_half_width(metric) < 1.0, "the drift cancels"
    assert hits / NUM_TRIALS >= LEAST_COVERAGE


def row_of(rounds: list[tuple[Array, Array]]) -> Row:
    """A row with what `--until` looks at."""
    step_time = median_over_rounds([fast for _, fast in rounds], "s")
    speedup = ratio_over_rounds(rounds)
    assert step_time is not None
    assert speedup is not None
    metrics = {"step_time_s": step_time, "speedup": speedup}
    return Row("train.py", [], 2, "tuned", "ok", rounds=len(rounds), metrics=metrics)


def test_until_stops_when_it_is_true_and_not_before() -> None:
    generator = np.random.default_rng(5)
    num_trials, until = 60, 0.03
    wrong = 0
    nums_rounds = []
    for _ in range(num_trials):
        rounds: list[tuple[Array, Array]] = []
        while not (rounds and interval_is_narrow([row_of(rounds)], until)):
            (slow,) = draw_rounds(generator, rounds=1, steps=30, phi=0.5, launches=0.02, spread=0.05)
            (fast,) = draw_rounds(generator, rounds=1, steps=30, phi=0.5, launches=0.02, spread=0.05)
            rounds.append((slow, fast / 1.7))
            assert len(rounds) < 60, "it must stop"
        row = row_of(rounds)
        nums_rounds.append(len(rounds))
        wrong += abs(row.metrics["speedup"].median / 1.7 - 1) > until
        wrong += abs(row.metrics["step_time_s"].median / (TRUTH_S / 1.7) - 1) > until
    assert wrong / (2 * num_trials) <= 0.10
    assert min(nums_rounds) >= 3
    # A t interval of two launches that differ by 2 % each needs about 7 launches for 3 %.
    assert 4 <= np.median(nums_rounds) <= 15


def narrow(width: float, rounds: int = 3, **widths: float) -> Row:
    metrics = {
        name: Metric(1.0, 1.0 - half, 1.0 + half, 30, "s")
        for name, half in {"step_time_s": width, **widths}.items()
    }
    return Row("train.py", [], 1, "tuned", "ok", rounds=rounds, metrics=metrics)


def test_until_wants_every_step_time_and_every_ratio_narrow() -> None:
    assert interval_is_narrow([narrow(0.029), narrow(0.01, speedup=0.0299)], 0.03)
    assert not interval_is_narrow([narrow(0.029), narrow(0.031)], 0.03)
    assert not interval_is_narrow([narrow(0.01, speedup=0.031)], 0.03)


def test_until_does_not_trust_two_launches() -> None:
    assert not interval_is_narrow([narrow(0.001, rounds=2)], 0.03)


def test_until_does_not_wait_for_what_failed() -> None:
    failed = Row("train.py", [], 4, "tuned", "oom")
    assert interval_is_narrow([narrow(0.01), failed], 0.03)
    crowded = replace(narrow(0.2), oversubscribed=True)
    assert interval_is_narrow([narrow(0.01), crowded], 0.03), "nobody concludes from such a row"
    assert not interval_is_narrow([crowded], 0.03)


def test_the_rounds_that_would_do_are_told() -> None:
    # 2.9 % between launches: t(6) · 2.9 % / √7 = 2.7 %, and 3.04 % with one round less.
    assert rounds_wanted(4.303 * 0.029 / math.sqrt(3), 3, 0.03) == 7
    assert rounds_wanted(1.0, 3, 0.03) is None
    # One launch known to 1.96 · 2.9 % by its steps: as many are needed as of launches that differ by 2.9 %.
    assert rounds_wanted(1.96 * 0.029, 1, 0.03) == 7
    assert rounds_wanted(0.01, 1, 0.03) == 3, "two agree by chance"


def test_blocks_grow_with_the_memory_of_the_steps() -> None:
    generator = np.random.default_rng(0)
    lengths = [
        np.mean([block_length(ar1(generator, 100, phi=phi, spread=1.0)) for _ in range(50)])
        for phi in (0.0, 0.4, 0.8)
    ]
    assert lengths[0] < lengths[1] < lengths[2]
    assert block_length(np.full(30, 0.02)) == 1


def test_the_same_runs_give_the_same_interval() -> None:
    rounds = draw_rounds(np.random.default_rng(1), rounds=3, steps=30, phi=0.5, launches=0.03)
    assert median_over_rounds(rounds, "s") == median_over_rounds(rounds, "s")


def test_a_ratio_and_its_inverse_have_the_same_interval() -> None:
    rounds = draw_rounds(np.random.default_rng(1), rounds=6, steps=30, phi=0.5, launches=0.03)
    pairs = list(zip(rounds[:3], rounds[3:], strict=True))
    there = ratio_over_rounds(pairs)
    back = ratio_over_rounds([(bottom, top) for top, bottom in pairs])
    assert there is not None
    assert back is not None
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low), rel=1e-3)


def test_a_ratio_to_what_is_exact_is_known_as_well_as_its_other_side() -> None:
    few = np.array([0.010, 0.020, 0.060, 0.025, 0.018])
    time, ratio = median_over_rounds([few], "s"), ratio_over_rounds([(few, np.ones(5))])
    assert time is not None
    assert ratio is not None
    assert (ratio.low, ratio.high) == pytest.approx((time.low, time.high))


def test_a_number_of_one_launch_has_no_interval_and_a_count_needs_none() -> None:
    timed, exact = one_per_round([0.004], "s"), counted([12.0], "count")
    assert timed is not None
    assert timed.median == 0.004
    assert math.isnan(timed.low)
    assert exact == Metric(12.0, 12.0, 12.0, 1, "count")
    assert one_per_round([math.nan], "s") is None
    assert counted([], "count") is None


def test_however_wide_no_interval_of_times_or_ratios_reaches_zero() -> None:
    few = np.array([0.010, 0.020, 0.060])
    for metric in (median_over_rounds([few], "s"), ratio_over_rounds([(few, few[::-1])])):
        assert metric is not None
        assert metric.low > 0
        assert relative_half_width(metric) > 1


def test_no_interval_of_times_goes_below_zero() -> None:
    metric = one_per_round([0.0, 0.001, 0.003], "s")
    assert metric is not None
    assert metric.low == 0.0
    loss = one_per_round([-1.0, -1.1, 0.2], "loss")
    assert loss is not None
    assert loss.low < -1.1


def test_values_that_are_not_known_are_left_out() -> None:
    metric = median_over_rounds([np.array([math.nan, 1.0, 3.0]), np.array([math.nan])], "s")
    assert metric is not None
    assert (metric.median, metric.n) == (2.0, 2)
    assert median_over_rounds([np.array([math.nan])], "s") is None
    assert ratio_over_rounds([(np.array([1.0]), np.array([math.nan]))]) is None


def test_a_very_long_run_stays_cheap() -> None:
    metric = median_over_rounds([np.full(200_000, 0.02)], "s")
    assert metric == Metric(0.02, 0.02, 0.02, 200_000, "s")
