"""Speedup and efficiency against the smallest world, on steps with known answers."""

from __future__ import annotations

import pytest
from synthetic import make_run

from paceline.analyse import ratio, summarise
from paceline.record import Row, RunRecord


def sweep(times_s: dict[int, float], rounds: int = 3, **fields: object) -> list[RunRecord]:
    """A world per entry, and each round 10 % slower than the one before: a machine that warms up."""
    return [
        make_run(world=world, step_times_s=[time_s * 1.1**round] * 30, round=round, **fields)  # type: ignore[arg-type]
        for round in range(rounds)
        for world, time_s in times_s.items()
    ]


def by_world(rows: list[Row]) -> dict[int, Row]:
    return {row.world: row for row in rows}


def test_speedup_and_efficiency_are_against_the_smallest_world() -> None:
    rows = by_world(summarise(sweep({4: 0.008, 1: 0.024, 2: 0.015})))
    assert rows[1].metrics["speedup"].median == 1.0
    assert rows[2].metrics["speedup"].median == pytest.approx(1.6)
    assert rows[4].metrics["speedup"].median == pytest.approx(3.0)
    assert rows[2].metrics["efficiency"].median == pytest.approx(0.8)
    assert rows[4].metrics["efficiency"].median == pytest.approx(0.75)


def test_efficiency_counts_from_the_smallest_world_there_is() -> None:
    rows = by_world(summarise(sweep({2: 0.020, 8: 0.010})))
    assert rows[8].metrics["speedup"].median == pytest.approx(2.0)
    assert rows[8].metrics["efficiency"].median == pytest.approx(0.5)


def test_a_drift_of_whole_rounds_does_not_widen_a_ratio() -> None:
    row = by_world(summarise(sweep({1: 0.024, 2: 0.015})))[2]
    speedup, step_time = row.metrics["speedup"], row.metrics["step_time_s"]
    assert speedup.high - speedup.low < 1e-6
    assert step_time.high / step_time.low > 1.2
    assert speedup.n == 3


def test_one_world_alone_has_no_speedup() -> None:
    (row,) = summarise(sweep({2: 0.020}))
    assert "speedup" not in row.metrics


def test_only_rows_that_differ_in_nothing_else_are_compared() -> None:
    runs = sweep({1: 0.020, 2: 0.010}) + sweep({1: 0.090, 2: 0.030}, placement="plain")
    runs += sweep({2: 0.001}, arguments=["--dim", "8"])
    speedups = {
        (row.placement, row.world, *row.arguments): row.metrics["speedup"].median
        for row in summarise(runs)
        if "speedup" in row.metrics
    }
    assert speedups == pytest.approx(
        {("tuned", 1): 1.0, ("tuned", 2): 2.0, ("plain", 1): 1.0, ("plain", 2): 3.0}
    )


def test_a_world_that_failed_is_no_base() -> None:
    runs = [make_run(world=1, status="oom", ranks=[], cause="out of memory"), *sweep({2: 0.020, 4: 0.010})]
    rows = by_world(summarise(runs))
    assert rows[1].metrics == {}
    assert rows[4].metrics["speedup"].median == pytest.approx(2.0)
    assert rows[4].metrics["efficiency"].median == pytest.approx(1.0)


def test_twice_the_samples_in_the_same_time_are_twice_as_fast() -> None:
    runs = sweep({1: 0.020}, options={"samples_per_step": 32}) + sweep(
        {2: 0.020}, options={"samples_per_step": 64}
    )
    rows = by_world(summarise(runs))
    assert rows[2].metrics["speedup"].median == pytest.approx(2.0)
    assert rows[2].metrics["efficiency"].median == pytest.approx(1.0)


def counted_facts(samples: int, flops: float) -> dict[str, object]:
    return {
        "batch": {"samples_per_step": samples},
        "precision": {"matmul_flops": {"float32": flops}},
    }


def test_samples_that_the_operations_confirm_are_believed() -> None:
    # Each rank has 32 samples of its own, in either world.
    runs = sweep({1: 0.020, 2: 0.020}, facts=counted_facts(32, 1e9))
    row = by_world(summarise(runs))[2]
    assert row.metrics["speedup"].median == pytest.approx(2.0)
    assert row.metrics["throughput_samples_s"].n == 90


def test_samples_that_the_operations_contradict_are_not() -> None:
    # What was taken for the batch is the length of the sequence: it is whole on every rank, the work is not.
    runs = sweep({1: 0.020}, facts=counted_facts(128, 1e9)) + sweep(
        {2: 0.010}, facts=counted_facts(128, 0.5e9)
    )
    row = by_world(summarise(runs))[2]
    assert row.metrics["speedup"].median == pytest.approx(2.0)
    assert "throughput_samples_s" not in row.metrics


def test_samples_that_a_person_named_are_believed_whatever_the_operations_say() -> None:
    runs = sweep({1: 0.020}, facts=counted_facts(8, 1e9), options={"samples_per_step": 32}) + sweep(
        {2: 0.020}, facts=counted_facts(8, 3e9), options={"samples_per_step": 64}
    )
    row = by_world(summarise(runs))[2]
    assert row.metrics["speedup"].median == pytest.approx(2.0)
    assert "throughput_samples_s" in row.metrics


def test_oversubscribed_rows_are_flagged() -> None:
    runs = sweep({1: 0.020, 2: 0.010}) + sweep({4: 0.010}, oversubscribed=True)
    assert [row.oversubscribed for row in summarise(runs)] == [False, False, True]


def test_the_ratio_of_two_configurations_pairs_their_rounds() -> None:
    plain, tuned = sweep({2: 0.030}, placement="plain"), sweep({2: 0.010})
    tuned.reverse()
    gain = ratio(plain, tuned)
    assert gain is not None
    assert gain.median == pytest.approx(3.0)
    assert gain.high - gain.low < 1e-6


def test_two_studies_without_a_common_round_are_paired_in_order() -> None:
    ours = [make_run(step_times_s=[0.020] * 30, round=round) for round in (1, 2)]
    theirs = [make_run(step_times_s=[0.010] * 30, round=round) for round in (7, 8)]
    gain = ratio(ours, theirs)
    assert gain is not None
    assert (gain.median, gain.n) == (pytest.approx(2.0), 2)
    assert ratio(ours, []) is None
