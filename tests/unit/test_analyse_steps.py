"""Times and throughput of synthetic steps whose answers are known."""

from __future__ import annotations

import pytest
from synthetic import PHASES, make_rank, make_run

from paceline.analyse import summarise
from paceline.analyse.steps import rank0_step_times, world_step_times
from paceline.record import RunRecord


def median(runs: list[RunRecord], name: str) -> float:
    (row,) = summarise(runs)
    return row.metrics[name].median


def test_a_step_of_the_world_lasts_as_long_as_its_slowest_rank() -> None:
    run = make_run(world=2, step_times_s=[[0.010, 0.030, 0.010], [0.020, 0.020, 0.020]])
    assert world_step_times(run).tolist() == [0.020, 0.030, 0.020]
    # Neither the slowest rank's median nor the mean over ranks, which are both wrong here.
    run = make_run(world=2, step_times_s=[[0.010, 0.030] * 15, [0.030, 0.010] * 15])
    assert median([run], "step_time_s") == 0.030


def test_rank_0_is_shown_by_its_own_wall_clock() -> None:
    run = make_run(world=2, step_times_s=[[0.010] * 30, [0.020] * 30])
    run.ranks[0].series["wall_s"] = [2 * value for value in run.ranks[0].series["wall_s"]]
    assert len(rank0_step_times(run)) == 30
    assert median([run], "rank0_step_time_s") == pytest.approx(0.020, rel=1e-4)
    assert median([run], "step_time_s") == 0.020


def test_rank_0_is_found_by_its_number() -> None:
    run = make_run(world=2, step_times_s=[[0.010] * 30, [0.020] * 30])
    run.ranks.reverse()
    assert median([run], "rank0_step_time_s") == pytest.approx(0.010, rel=1e-4)


def test_warm_up_and_sampled_steps_do_not_count_but_warm_up_is_shown() -> None:
    rank = make_rank(0, [0.020] * 30, warmup=5, sampled=4, warmup_time_s=0.5)
    rank.series["step_time_s"][-4:] = [9.0] * 4
    rank.series["wall_s"][-4:] = [rank.series["wall_s"][-5] + 9.0 * (place + 1) for place in range(4)]
    run = make_run(ranks=[rank])
    wall_s = rank0_step_times(run)
    assert len(wall_s) == 30
    assert wall_s == pytest.approx([0.020] * 30, rel=1e-4)
    assert median([run], "step_time_s") == 0.020
    assert summarise([run])[0].metrics["step_time_s"].n == 30
    assert median([run], "first_step_s") == 0.5
    assert median([run], "warmup_s") == 2.5


def test_ranks_are_aligned_by_the_number_of_the_step() -> None:
    run = make_run(world=2, step_times_s=[[0.010, 0.010, 0.050], [0.020, 0.020]])
    for rank in run.ranks:
        rank.series = {name: values[:-4] for name, values in rank.series.items()}
    assert world_step_times(run).tolist() == [0.020, 0.020]


@pytest.mark.parametrize("world", [1, 2, 8])
@pytest.mark.parametrize("num_steps", [10, 40])
def test_throughput_counts_the_whole_world_once(world: int, num_steps: int) -> None:
    # 64 samples in 20 ms are 3,200 per second, however many ranks and steps there are.
    options = {"samples_per_step": 64}
    run = make_run(world=world, step_times_s=[0.020] * num_steps, options=options)
    assert median([run], "throughput_samples_s") == pytest.approx(3200)
    assert median([run], "throughput_steps_s") == pytest.approx(50)


def test_samples_that_each_rank_counted_are_added_up() -> None:
    run = make_run(world=4, step_times_s=[0.020] * 30, facts={"batch": {"samples_per_step": 16}})
    assert median([run], "throughput_samples_s") == pytest.approx(3200)
    del run.ranks[2].facts["batch"]
    assert "throughput_samples_s" not in summarise([run])[0].metrics


def test_throughput_is_high_where_the_time_is_low() -> None:
    runs = [make_run(step_times_s=[0.020 + 0.001 * round] * 30, round=round) for round in range(3)]
    (row,) = summarise(runs)
    time, rate = row.metrics["step_time_s"], row.metrics["throughput_steps_s"]
    assert (rate.low, rate.median, rate.high) == pytest.approx((1 / time.high, 1 / time.median, 1 / time.low))


def test_samples_per_second_need_the_number_of_samples() -> None:
    assert "throughput_samples_s" not in summarise([make_run()])[0].metrics


def test_phases_add_up_to_the_mean_rank_s_step() -> None:
    run = make_run(world=2, step_times_s=[[0.010] * 30, [0.020] * 30])
    assert sum(median([run], phase) for phase in PHASES) == pytest.approx(0.015)
    assert median([run], "data_s") == pytest.approx(0.0015)


def test_phases_that_are_not_known_are_absent() -> None:
    run = make_run()
    del run.ranks[0].series["forward_s"]
    assert "forward_s" not in summarise([run])[0].metrics


def test_spreads_tell_steps_from_launches() -> None:
    alternating = [make_run(step_times_s=[0.018, 0.022] * 15, round=round) for round in range(3)]
    assert median(alternating, "step_time_spread") == pytest.approx(0.1)
    assert median(alternating, "launch_spread") == 0.0
    launches = [make_run(step_times_s=[0.020 + 0.001 * round] * 30, round=round) for round in range(3)]
    assert median(launches, "step_time_spread") == 0.0
    assert median(launches, "launch_spread") == pytest.approx(0.001 / 0.021)


def test_a_median_over_rounds_is_that_of_all_steps() -> None:
    runs = [
        make_run(step_times_s=[value] * 30, round=round) for round, value in enumerate((0.01, 0.02, 0.04))
    ]
    assert median(runs, "step_time_s") == 0.02
