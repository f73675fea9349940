"""The fullest rank's peak, and a split that adds up to it."""

from __future__ import annotations

from synthetic import make_rank, make_run, memory

from paceline.analyse import summarise
from paceline.analyse.memory import CATEGORIES
from paceline.record import Metric


def test_the_split_is_that_of_the_fullest_rank_and_adds_up() -> None:
    light = memory(parameters=100, gradients=900)
    heavy = memory(parameters=500, gradients=400, optimizer=300)
    ranks = [make_rank(rank, [0.02] * 30, facts={"memory": fact}) for rank, fact in enumerate((light, heavy))]
    (row,) = summarise([make_run(world=2, ranks=ranks)])
    assert row.metrics["peak_memory_bytes"] == Metric(1200, 1200, 1200, 1, "bytes")
    assert row.metrics["memory_bytes.gradients"].median == 400
    assert sum(row.metrics[f"memory_bytes.{category}"].median for category in CATEGORIES) == 1200
    assert row.metrics["memory_between_steps_bytes.optimizer"].median == 300


def test_resident_size_stands_beside_the_peak() -> None:
    (row,) = summarise([make_run(facts={"memory": memory(parameters=100)})])
    assert row.metrics["resident_bytes"].median == 1100
    assert row.metrics["resident_peak_bytes"].median == 2100
    assert "device_peak_bytes" not in row.metrics


def test_an_accelerator_s_own_peak_is_shown_where_there_is_one() -> None:
    (row,) = summarise([make_run(facts={"memory": {**memory(parameters=100), "device_peak_bytes": 4096}})])
    assert row.metrics["device_peak_bytes"].median == 4096


def test_memory_that_was_not_sampled_is_absent() -> None:
    (row,) = summarise([make_run()])
    assert not [name for name in row.metrics if "memory" in name or "resident" in name]
