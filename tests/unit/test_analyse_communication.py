"""Counts of the busiest rank, times of the one that waits least."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic import communication, make_rank, make_run

from paceline.analyse import summarise
from paceline.record import Metric, RunRecord


def run_with(*facts: dict[str, Any], step_s: float = 0.020, **fields: Any) -> RunRecord:
    ranks = [make_rank(rank, [step_s] * 30, facts={"communication": fact}) for rank, fact in enumerate(facts)]
    return make_run(world=len(facts), ranks=ranks, **fields)


def metrics(*runs: RunRecord) -> dict[str, Metric]:
    (row,) = summarise(runs)
    return row.metrics


def test_counts_are_exact() -> None:
    found = metrics(run_with(*[communication(calls=7, bytes_=123_456)] * 2))
    assert found["collective_calls"] == Metric(7, 7, 7, 1, "count")
    assert found["collective_bytes"] == Metric(123_456, 123_456, 123_456, 1, "bytes")
    found = metrics(run_with(communication(calls=3, bytes_=100), communication(calls=7, bytes_=40)))
    assert (found["collective_calls"].median, found["collective_bytes"].median) == (7, 100)


def test_the_rank_that_waits_least_tells_the_cost_and_the_others_tell_the_waiting() -> None:
    found = metrics(
        run_with(communication(exposed_s=0.012, busy_s=0.014), communication(exposed_s=0.002, busy_s=0.004))
    )
    assert found["exposed_comm_s"].median == 0.002
    assert found["comm_wait_s"].median == pytest.approx(0.010)
    assert found["comm_busy_s"].median == 0.004
    assert found["exposed_comm_share"].median == pytest.approx(0.1)


def test_bus_bandwidth_is_that_of_the_rank_that_waits_least() -> None:
    found = metrics(
        run_with(communication(busy_s=0.004, bus_bytes=8e6), communication(busy_s=0.002, bus_bytes=8e6))
    )
    assert found["bus_bandwidth_bytes_s"].median == pytest.approx(4e9)


def test_one_launch_gives_no_interval_several_do() -> None:
    one = metrics(run_with(communication(exposed_s=0.002)))["exposed_comm_s"]
    assert one.low != one.low, "NaN"
    runs = [run_with(communication(exposed_s=0.002 + 0.0001 * round), round=round) for round in range(3)]
    several = metrics(*runs)["exposed_comm_s"]
    assert several.low < 0.0021 < several.high
    assert several.n == 3


def test_nothing_is_claimed_without_samples() -> None:
    found = metrics(make_run(world=2))
    assert not {"collective_calls", "exposed_comm_s", "bus_bandwidth_bytes_s"} & set(found)


def test_counts_stand_without_the_profiler_s_times() -> None:
    fact = communication(calls=3)
    for name in ("busy_s", "exposed_s"):
        del fact[name]
    found = metrics(run_with(fact))
    assert found["collective_calls"].median == 3
    assert "exposed_comm_s" not in found
    assert "bus_bandwidth_bytes_s" not in found


def test_of_a_slower_profiled_step_communication_has_the_same_share() -> None:
    timeline = {"steps": [{"start_s": 0.0, "end_s": 0.040, "slices": []}]}
    facts = {"communication": {"busy_s": 0.030, "exposed_s": 0.024}, "timeline": timeline}
    metrics = summarise([make_run(world=2, step_times_s=[0.020] * 30, facts=facts)])[0].metrics
    assert metrics["exposed_comm_s"].median == pytest.approx(0.012)
    assert metrics["comm_busy_s"].median == pytest.approx(0.015)
    assert metrics["exposed_comm_share"].median == pytest.approx(0.6)
    (faster,) = summarise([make_run(world=2, step_times_s=[0.080] * 30, facts=facts)])
    assert faster.metrics["exposed_comm_s"].median == pytest.approx(0.024), "what was seen is no less"
