"""Rows learn from each other how much launches differ, and no more than the others can teach."""

from __future__ import annotations

import math

import numpy as np
import pytest
from synthetic import make_run

from paceline.analyse import summarise
from paceline.analyse.intervals import median_over_rounds, ratio_over_rounds
from paceline.analyse.launches import learn_from_others
from paceline.record import LaunchNoise

NOISE = 0.03


def launches(rng: np.random.Generator, rounds: int, noise: float = NOISE) -> list[float]:
    return list(np.exp(noise * rng.standard_normal(rounds)))


def test_too_few_others_teach_nothing() -> None:
    rng = np.random.default_rng(0)
    assert set(learn_from_others({row: launches(rng, 3) for row in range(3)}).values()) == {LaunchNoise()}
    assert learn_from_others({row: launches(rng, 3) for row in range(4)})[0].freedom > 0
    once = {"a": [1.0], **{row: launches(rng, 3) for row in range(3)}}
    assert learn_from_others(once)["a"].freedom > 0, "one launch learns from rows with more"
    assert learn_from_others(once)[0].freedom == 0, "one launch teaches nothing"


def test_alike_rows_count_as_launches_of_ones_own() -> None:
    rng = np.random.default_rng(1)
    noises = learn_from_others({row: launches(rng, 5) for row in range(200)}).values()
    assert np.mean([noise.freedom for noise in noises]) > 20
    assert math.sqrt(np.mean([noise.variance for noise in noises])) == pytest.approx(NOISE, rel=0.1)


def test_unlike_rows_count_for_little() -> None:
    rng = np.random.default_rng(2)
    rows = {row: launches(rng, 5, NOISE * math.exp(1.5 * rng.standard_normal())) for row in range(200)}
    assert max(noise.freedom for noise in learn_from_others(rows).values()) < 3


def test_a_ratio_is_as_noisy_as_both_its_sides() -> None:
    assert LaunchNoise(0.01, 6.0) + LaunchNoise(0.03, 4.0) == LaunchNoise(0.04, 4.0)
    pairs = [(np.full(30, top), np.full(30, 1.0)) for top in (1.98, 2.0, 2.02)]
    alone, taught = ratio_over_rounds(pairs), ratio_over_rounds(pairs, noise=LaunchNoise(0.0001, 1e6))
    assert alone is not None
    assert taught is not None
    half = 1.96 * 0.01 / math.sqrt(3)
    assert (taught.low, taught.high) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)), rel=1e-3)
    assert taught.high < alone.high


@pytest.mark.parametrize("unlike", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rounds", [2, 3])
def test_intervals_hold_the_truth_and_are_narrower(rounds: int, unlike: float) -> None:
    rng = np.random.default_rng(3)
    held, narrower = [], []
    for _ in range(60):
        noises = NOISE * np.exp(unlike * rng.standard_normal(8))
        rows = {row: launches(rng, rounds, noise) for row, noise in enumerate(noises)}
        taught = learn_from_others(rows)
        for row, medians in rows.items():
            steps = [np.full(30, value) for value in medians]
            with_others, alone = median_over_rounds(steps, "s", taught[row]), median_over_rounds(steps, "s")
            assert with_others is not None
            assert alone is not None
            held.append(with_others.low <= 1.0 <= with_others.high)
            narrower.append(math.log(with_others.high / with_others.low) / math.log(alone.high / alone.low))
    assert np.mean(held) >= 0.90
    assert np.median(narrower) < 0.8


def test_a_study_teaches_rows_of_one_world_alone() -> None:
    rng = np.random.default_rng(4)
    runs = [
        make_run(
            arguments=["--batch", str(batch)], world=world, round=round, step_times_s=[0.02 * level] * 30
        )
        for world, rows in ((1, 5), (2, 2))
        for batch in range(rows)
        for round, level in enumerate(launches(rng, 3))
    ]
    freedoms = {(row.world, row.launch_noise.freedom > 0) for row in summarise(runs)}
    assert freedoms == {(1, True), (2, False)}
