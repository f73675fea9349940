"""When a training is called stable, one condition at a time."""

from __future__ import annotations

import math

import pytest
from synthetic import make_rank, make_run

from paceline.analyse import summarise
from paceline.explain import explain
from paceline.labs.answers.stability import judge, loss_deviation, say_deviation
from paceline.labs.data import LabRow
from paceline.labs.spec import Experiment
from paceline.record import RunRecord
from paceline.study import Config

EXPERIMENT = Experiment(id="x", title="x", program="x.py")
LOSSES = [1.0 / (1 + step) for step in range(30)]


def row(losses: list[float] = LOSSES, skipped: list[float] | None = None, rounds: int = 2) -> LabRow:
    series = {"loss": losses, **({} if skipped is None else {"skipped": skipped})}
    runs: list[RunRecord] = [
        make_run(round=round, world=2, ranks=[make_rank(r, [0.02] * 30, series=series) for r in range(2)])
        for round in range(rounds)
    ]
    (found,) = explain(summarise(runs), runs)
    return LabRow(EXPERIMENT, Config("train.py", (), 2, "tuned"), found, runs)


def test_the_deviation_is_the_largest_of_all_steps_relative_to_the_twin() -> None:
    changed = [loss * (1.02 if step == 17 else 1.001) for step, loss in enumerate(LOSSES)]
    assert loss_deviation(row(changed), row()) == pytest.approx(0.02)
    assert loss_deviation(row(), row()) == 0
    unread = row([math.nan] * 30)
    assert math.isnan(loss_deviation(unread, row()))


def test_near_the_twin_is_stable_and_far_from_it_is_not() -> None:
    near, far = (
        judge(row([loss * 1.049 for loss in LOSSES]), row()),
        judge(row([loss * 0.94 for loss in LOSSES]), row()),
    )
    assert near is not None
    assert far is not None
    assert (near.verdict, far.verdict) == ("stable", "unstable")


def test_a_tenth_of_the_steps_may_be_skipped_and_no_more() -> None:
    # The synthetic launch repeats its last timed value in the sampled steps: skips stand in the middle.
    few, many = ([1.0 if 5 <= step < 5 + number else 0.0 for step in range(30)] for number in (3, 5))
    kept, lost = judge(row(skipped=few), None), judge(row(skipped=many), None)
    assert kept is not None
    assert lost is not None
    assert (kept.skipped, kept.num_steps, kept.verdict) == (6, 78, "stable")
    assert (lost.skipped, lost.verdict) == (10, "unstable")


def test_a_loss_that_is_not_a_number_is_unstable() -> None:
    found = judge(row(LOSSES[:20] + [math.nan] * 10), None)
    assert found is not None
    assert not found.finite
    assert found.describe().startswith("**unstable**: **not all finite**")


def test_nothing_is_called_stable_whose_losses_or_twin_were_not_seen() -> None:
    blind = judge(row([math.nan] * 30), None)
    alone = judge(row(), LabRow(EXPERIMENT, reason="refused"))
    assert blind is not None
    assert alone is not None
    assert blind.describe().startswith("**cannot be told**: no loss was read")
    assert alone.describe().startswith(
        "**cannot be told**: there is no fp32 twin to compare with, all finite"
    )


def test_nothing_measured_is_not_judged() -> None:
    assert judge(LabRow(EXPERIMENT, reason="refused"), None) is None


def test_deviations_are_readable() -> None:
    assert [say_deviation(x) for x in (0.0, 1.2e-7, 0.0031, 0.25)] == ["0", "1e-7", "0.31 %", "25 %"]
