"""Losses, skips, CPU time, faults and foreign load of synthetic steps."""

from __future__ import annotations

import math

import pytest
from synthetic import make_rank, make_run

from paceline.analyse import summarise
from paceline.analyse.health import disturbed_steps
from paceline.record import Metric, RankRecord


def metrics(*ranks: RankRecord) -> dict[str, Metric]:
    (row,) = summarise([make_run(world=len(ranks), ranks=list(ranks))])
    return row.metrics


def rank_with(
    number: int = 0, num_steps: int = 10, start: dict[str, object] | None = None, **series: list[float]
) -> RankRecord:
    return make_rank(number, [0.02] * num_steps, series=series, start=start)


def test_the_loss_is_the_mean_over_ranks_at_the_last_timed_step() -> None:
    falling = [10.0 - step for step in range(10)]
    found = metrics(rank_with(0, loss=falling), rank_with(1, loss=[value + 2 for value in falling]))
    assert found["loss"].median == 2.0


def test_skipped_steps_and_the_scale_after_them() -> None:
    found = metrics(rank_with(skipped=[1.0, 1.0] + [0.0] * 8, loss_scale=[4.0, 2.0] + [1.0] * 8))
    assert found["skipped_steps"].median == 2
    assert found["loss_scale"].median == 1.0
    assert "skipped_steps" not in metrics(rank_with()), "no scaler, no count"
    both = metrics(rank_with(0, skipped=[1.0] + [0.0] * 9), rank_with(1, skipped=[1.0] * 3 + [0.0] * 7))
    assert both["skipped_steps"].median == 3, "of the rank with most, not of all together"


def test_cpu_time_is_a_share_of_the_rank_s_own_cores() -> None:
    found = metrics(
        rank_with(0, cpu_s=[0.02] * 10, start={"cores": [0, 1]}),
        rank_with(1, cpu_s=[0.04] * 10, start={"cores": [], "threads": 2}),
    )
    assert found["cpu_share"].median == pytest.approx(0.75)


def test_faults_and_switches_are_those_of_the_rank_that_has_most() -> None:
    found = metrics(
        rank_with(0, page_faults=[10.0] * 10, involuntary_switches=[3.0] * 10),
        rank_with(1, page_faults=[50.0] * 10, involuntary_switches=[1.0] * 10),
    )
    assert found["page_faults"].median == 50
    assert found["involuntary_switches"].median == 3


def test_a_host_reading_covers_the_steps_since_the_one_before() -> None:
    nan = math.nan
    foreign = [nan, nan, 0.0, nan, nan, 0.9, nan, 0.0, nan, nan]
    run = make_run(ranks=[make_rank(0, [0.02] * 10, warmup=0, sampled=0, series={"foreign_cores": foreign})])
    assert disturbed_steps(run)[:8].tolist() == [0, 0, 0, 1, 1, 1, 0, 0]
    assert all(math.isnan(value) for value in disturbed_steps(run)[8:])
    (row,) = summarise([run])
    assert row.metrics["disturbed_share"].median == pytest.approx(3 / 8)


def test_stolen_time_disturbs_as_foreign_load_does() -> None:
    found = metrics(rank_with(foreign_cores=[0.1] * 10, steal_cores=[0.2] * 10))
    assert found["disturbed_share"].median == 1.0
    assert "disturbed_share" not in metrics(rank_with()), "the host was never read"


def test_operations_are_those_of_all_ranks_by_precision() -> None:
    facts = {
        "precision": {"matmul_flops": {"float32": 1e9, "bfloat16": 3e9}},
        "gradients": {"norms": [1.0, 3.0, 2.0]},
    }
    (row,) = summarise([make_run(world=2, facts=facts)])
    assert row.metrics["matmul_flops.bfloat16"].median == 6e9
    assert row.metrics["matmul_flops.float32"].unit == "flop"
    assert row.metrics["gradient_norm"].median == 2.0
