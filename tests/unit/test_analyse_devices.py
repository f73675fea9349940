"""Per device: bytes, work and copies, from the fact "devices" with known numbers."""

from __future__ import annotations

import pytest
from synthetic import devices, make_rank, make_run

from paceline.analyse import summarise
from paceline.analyse.devices import copies_of, work_of
from paceline.record import Metric, RunRecord

# Device 0 works, hands over to device 1, and takes the gradients back; the host brings the batch.
ONE_AT_A_TIME = devices(
    peak_bytes=[300, 100],
    transfers=[(-1, 0, 1, 999), (0, 1, 1, 64), (1, 0, 1, 64)],
    forward_transfers=[(-1, 0, 1, 999), (0, 1, 1, 64)],
    busy={0: [(5.0, 6.0), (8.0, 9.0)], 1: [(6.0, 8.0)]},
)


def run_with(*facts: dict[str, object], round: int = 0) -> RunRecord:
    ranks = [make_rank(rank, [0.02] * 10, facts={"devices": fact}) for rank, fact in enumerate(facts)]
    return make_run(world=len(facts), ranks=ranks, round=round)


def metrics(*runs: RunRecord) -> dict[str, Metric]:
    (row,) = summarise(runs)
    return row.metrics


def test_each_device_has_its_peak() -> None:
    found = metrics(run_with(ONE_AT_A_TIME))
    assert found["peak_bytes_of_device.0"] == Metric(300, 300, 300, 1, "bytes")
    assert found["peak_bytes_of_device.1"].median == 100


def test_copies_of_a_step_and_of_its_forward_pass_without_those_of_the_host() -> None:
    found = metrics(run_with(ONE_AT_A_TIME))
    assert found["device_copies_per_step"] == Metric(2, 2, 2, 1, "count")
    assert found["device_copy_bytes_per_step"].median == 128
    assert found["device_copies_per_forward"].median == 1
    assert found["device_copy_bytes_per_forward"].median == 64


def test_the_matrix_has_each_pair_once() -> None:
    run = run_with(ONE_AT_A_TIME)
    assert copies_of(run) == {("virtual:0", "virtual:1"): (1, 64), ("virtual:1", "virtual:0"): (1, 64)}
    assert copies_of(run, "forward_transfers") == {("virtual:0", "virtual:1"): (1, 64)}


def test_one_device_at_a_time_is_told_from_both_at_once() -> None:
    found = metrics(run_with(ONE_AT_A_TIME))
    assert found["busy_share_of_device.0"].median == pytest.approx(0.5)
    assert found["busy_share_of_device.1"].median == pytest.approx(0.5)
    assert found["devices_together_share"].median == 0

    both = devices(peak_bytes=[1, 1], busy={0: [(0.0, 3.0)], 1: [(1.0, 4.0)]})
    assert metrics(run_with(both))["devices_together_share"].median == pytest.approx(0.5)


def test_overlapping_spans_of_one_device_count_once() -> None:
    fact = devices(peak_bytes=[1, 1], busy={0: [(0.0, 2.0), (1.0, 3.0)], 1: [(3.0, 4.0)]})
    found = metrics(run_with(fact))
    assert found["busy_share_of_device.0"].median == pytest.approx(0.75)
    assert found["devices_together_share"].median == 0


def test_ranks_with_a_device_each_are_put_together() -> None:
    first = devices(peak_bytes=[300, 0], busy={0: [(0.0, 3.0)]})
    second = devices(peak_bytes=[0, 200], busy={1: [(1.0, 4.0)]})
    found = metrics(run_with(first, second))
    assert [found[f"peak_bytes_of_device.{device}"].median for device in (0, 1)] == [300, 200]
    assert found["devices_together_share"].median == pytest.approx(0.5)


def test_real_devices_were_at_work_when_the_profiled_step_says() -> None:
    """The host hands work over and goes on: what the counted step could time says nothing."""
    run = run_with(devices(peak_bytes=[1, 1], busy={}, counted_by="operators"))
    run.ranks[0].facts["timeline"] = {"steps": [], "busy": {"0": [[0.0, 1.0]], "1": [[1.0, 4.0]]}}
    found = metrics(run)
    assert found["busy_share_of_device.0"].median == pytest.approx(0.25)
    assert found["devices_together_share"].median == 0


def test_a_device_that_does_nothing_has_no_time_and_its_bytes() -> None:
    fact = devices(peak_bytes=[10, 10, 0], busy={0: [(0.0, 1.0)], 1: [(1.0, 2.0)]})
    found = metrics(run_with(fact))
    assert found["peak_bytes_of_device.2"].median == 0
    assert "busy_share_of_device.2" not in found


def test_without_times_the_counts_stand() -> None:
    run = run_with(devices(peak_bytes=[1, 1], transfers=[(0, 1, 3, 30)], counted_by="operators"))
    assert work_of(run) is None
    found = metrics(run)
    assert found["device_copies_per_step"].median == 3
    assert not {"busy_share_of_device.0", "devices_together_share"} & set(found)


def test_nothing_is_said_of_a_process_with_one_device() -> None:
    assert not [name for name in metrics(make_run()) if "device" in name]


def test_shares_of_several_launches_have_their_range_and_stay_shares() -> None:
    later = devices(peak_bytes=[1, 1], busy={0: [(0.0, 1.0)], 1: [(1.0, 4.0)]})
    found = metrics(run_with(ONE_AT_A_TIME), run_with(later, round=1))
    share = found["busy_share_of_device.0"]
    assert share.low == pytest.approx(0.25)
    assert share.high == pytest.approx(0.5)
