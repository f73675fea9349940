"""Rows: one per configuration, whatever became of its runs."""

from __future__ import annotations

import warnings

import pytest
from synthetic import make_rank, make_run

from paceline.analyse import group_runs, summarise
from paceline.record import RankRecord


def test_one_row_per_configuration_in_the_order_of_the_first_round() -> None:
    runs = [
        make_run(world=world, arguments=arguments, round=round)
        for round in (2, 1)
        for world in (2, 1)
        for arguments in ([], ["--dim", "8"])
    ]
    rows = summarise(runs)
    assert [(row.world, row.arguments) for row in rows] == [
        (2, []),
        (2, ["--dim", "8"]),
        (1, []),
        (1, ["--dim", "8"]),
    ]
    assert all(row.rounds == 2 for row in rows)
    assert [[run.round for run in group] for group in group_runs(runs).values()] == [[1, 2]] * 4


def test_a_configuration_that_only_failed_keeps_its_status_and_cause() -> None:
    (row,) = summarise([make_run(status="hung", cause="rank 1 waits in all_reduce", ranks=[])])
    assert (row.status, row.cause, row.metrics, row.rounds) == ("hung", "rank 1 waits in all_reduce", {}, 0)


def test_a_placement_is_compared_with_the_plain_one_of_its_round() -> None:
    # The machine is three times slower in the second round, for both alike.
    runs = [
        make_run(
            placement=placement,
            world=world,
            round=round,
            ranks=[make_rank(rank, [step_s * slow] * 30) for rank in range(world)],
        )
        for round, slow in enumerate([1.0, 3.0, 1.0])
        for world in (1, 2)
        for placement, step_s in (("plain", 0.03), ("tuned", 0.02))
    ]
    gains = {(row.placement, row.world): row.metrics.get("placement_gain") for row in summarise(runs)}
    assert gains["plain", 1] is None
    for world in (1, 2):
        gain = gains["tuned", world]
        assert gain is not None
        assert gain.median == pytest.approx(1.5, rel=1e-6)
        assert gain.high - gain.low < 0.01


def test_one_good_round_is_a_measurement() -> None:
    runs = [make_run(round=1), make_run(round=2, status="failed", cause="killed", ranks=[])]
    (row,) = summarise(runs)
    assert (row.status, row.rounds) == ("ok", 1)
    assert row.metrics["step_time_s"].n == 30


def test_measured_and_simulated_rows_are_kept_apart() -> None:
    assert [row.source for row in summarise([make_run(), make_run(source="simulated")])] == [
        "measured",
        "simulated",
    ]


def test_runs_with_little_in_them_raise_nothing_and_claim_nothing() -> None:
    bare = [
        make_run(ranks=[]),
        make_run(ranks=[RankRecord(0)], world=1),
        make_run(ranks=[make_rank(0, [], warmup=3, sampled=0)]),
        make_run(ranks=[make_rank(0, [0.02], warmup=0, sampled=0)]),
        make_run(ranks=[RankRecord(0, series={"kind": [1.0, 1.0]})]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for run in bare:
            (row,) = summarise([run])
            assert all(metric.n > 0 for metric in row.metrics.values())
        assert "step_time_s" not in summarise(bare[:3])[0].metrics
    assert summarise([]) == []
