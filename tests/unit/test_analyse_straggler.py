"""A late rank is found though collectives make all step times equal; equal ranks are left alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from synthetic import communication, make_rank, make_run

from paceline.analyse.straggler import SlowSteps, find_slow_steps, find_straggler
from paceline.record import SAMPLED, RankRecord, RunRecord

NUM_STEPS = 30
STEP_S = 0.020


def joined_ranks(late_s: np.ndarray, *, place: str, seed: int = 0, jitter: float = 0.03) -> list[RankRecord]:
    """Ranks of which each computes for 20 ms plus `late_s[rank, step]`, joined by a collective in backward.

    The step times are equal: who is early has the rest of the step as waiting time in its backward phase.
    """
    generator = np.random.default_rng(seed)
    world, num_steps = late_s.shape
    noise = generator.normal(1.0, jitter, (3, world, num_steps))
    data, forward, backward = (share * STEP_S * noise[row] for row, share in enumerate((0.1, 0.3, 0.5)))
    optimizer = np.full((world, num_steps), 0.1 * STEP_S)
    own = {"data": data, "forward": forward, "backward": backward, "optimizer": optimizer}
    own[place] += late_s
    ranks_began_s = np.zeros(world)
    columns: list[dict[str, list[float]]] = [
        {name: [] for name in ("data_s", "forward_s", "backward_s", "optimizer_s", "step", "end", "wait")}
        for _ in range(world)
    ]
    for step in range(num_steps):
        arrived_s = ranks_began_s + data[:, step] + forward[:, step] + backward[:, step]
        joined_s = arrived_s.max()
        for rank, column in enumerate(columns):
            column["data_s"].append(data[rank, step])
            column["forward_s"].append(forward[rank, step])
            column["backward_s"].append(backward[rank, step] + joined_s - arrived_s[rank])
            column["wait"].append(joined_s - arrived_s[rank])
            column["optimizer_s"].append(optimizer[rank, step])
            ended_s = joined_s + optimizer[rank, step]
            column["step"].append(ended_s - ranks_began_s[rank])
            column["end"].append(ended_s)
            ranks_began_s[rank] = ended_s
    return [
        make_rank(
            rank,
            column["step"],
            warmup=0,
            sampled=0,
            phases={name: column[name] for name in ("data_s", "forward_s", "backward_s", "optimizer_s")},
            series={"end_s": column["end"]},
            facts={"communication": communication(exposed_s=float(np.median(column["wait"])))},
        )
        for rank, column in enumerate(columns)
    ]


def runs_of(late_s: np.ndarray, *, place: str = "data", rounds: int = 1) -> list[RunRecord]:
    world = len(late_s)
    return [
        make_run(world=world, round=round, ranks=joined_ranks(late_s, place=place, seed=round))
        for round in range(rounds)
    ]


def lateness(world: int, late: dict[int, Sequence[float]]) -> np.ndarray:
    return np.array([late.get(rank, [0.0] * NUM_STEPS) for rank in range(world)])


@pytest.mark.parametrize("place", ["data", "forward", "optimizer"])
@pytest.mark.parametrize("world", [2, 4])
def test_a_rank_that_is_always_late_by_10_of_20_ms_is_found(world: int, place: str) -> None:
    runs = runs_of(lateness(world, {1: [0.010] * NUM_STEPS}), place=place, rounds=2)
    medians = [np.median(rank.series["step_time_s"]) for rank in runs[0].ranks]
    assert np.ptp(medians) < 0.02 * STEP_S, "the collective hides it in the step times"
    straggler = find_straggler(runs)
    assert straggler is not None
    assert straggler.rank == 1
    assert straggler.always
    assert straggler.late_s == pytest.approx(0.010, rel=0.1)
    assert straggler.place == place


def test_a_rank_that_is_late_in_every_7th_step_is_found() -> None:
    late = [0.010 if step % 7 == 6 else 0.0 for step in range(NUM_STEPS)]
    straggler = find_straggler(runs_of(lateness(3, {2: late}), rounds=2))
    assert straggler is not None
    assert (straggler.rank, straggler.every, straggler.always) == (2, 7, False)
    assert straggler.late_s == pytest.approx(0.010, rel=0.1)
    assert straggler.share_of_steps == pytest.approx(1 / 7)


def test_a_rank_that_is_late_within_its_backward_pass_is_found_by_how_little_it_waits() -> None:
    runs = runs_of(lateness(2, {0: [0.010] * NUM_STEPS}), place="backward")
    straggler = find_straggler(runs)
    assert straggler is not None
    assert straggler.rank == 0
    assert straggler.place is None
    quiet = runs_of(lateness(2, {0: [0.002] * NUM_STEPS}), place="backward")
    quiet[0].round = 1
    assert find_straggler([*runs, *quiet]) is None, "in one round of two"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("world", [1, 2, 4])
def test_equal_ranks_have_no_straggler(world: int, seed: int) -> None:
    ranks = joined_ranks(np.zeros((world, NUM_STEPS)), place="data", seed=seed, jitter=0.05)
    assert find_straggler([make_run(world=world, ranks=ranks)]) is None


def test_slow_steps_that_fall_on_any_rank_are_no_straggler() -> None:
    slow = [0, 1, 0, 1, 1, 0]
    late = {
        rank: [0.010 if step % 5 == 0 and slow[step // 5] == rank else 0.0 for step in range(NUM_STEPS)]
        for rank in (0, 1)
    }
    assert find_straggler(runs_of(lateness(2, late))) is None


def test_what_the_profiled_steps_show_is_not_within_backward_when_it_began_before_it() -> None:
    late = np.zeros((2, NUM_STEPS))
    late[1, -4:] = 0.010
    for place, is_within in (("data", False), ("backward", True)):
        (run,) = runs_of(late, place=place)
        for rank, exposed_s in zip(run.ranks, (0.010, 0.0), strict=True):
            rank.series["kind"][-4:] = [float(SAMPLED)] * 4
            rank.facts["communication"]["exposed_s"] = exposed_s
        straggler = find_straggler([run])
        assert (straggler is not None) == is_within


def test_few_profiled_steps_that_differ_a_little_name_nobody() -> None:
    assert find_straggler(runs_of(lateness(2, {0: [0.004] * NUM_STEPS}), place="backward")) is None


@pytest.mark.parametrize("seed", range(4))
def test_a_rhythm_is_found_on_a_busy_machine(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # One step in twenty of either rank is late by up to 8 ms of its own accord.
    late = generator.uniform(0.0, 0.008, (2, NUM_STEPS)) * (generator.random((2, NUM_STEPS)) < 0.05)
    late[1, 2::7] = 0.010
    straggler = find_straggler(runs_of(late, rounds=2))
    assert straggler is not None
    assert (straggler.rank, straggler.every) == (1, 7)


def test_a_rank_that_is_late_without_a_rhythm_is_found_when_it_is_no_chance() -> None:
    late = np.zeros((2, NUM_STEPS))
    late[1, [2, 3, 7, 11, 13, 17, 18, 20, 22, 26, 29]] = 0.010
    late[0, [9, 24]] = 0.010
    straggler = find_straggler(runs_of(late, rounds=2))
    assert straggler is not None
    assert (straggler.rank, straggler.every, straggler.always) == (1, None, False)
    assert straggler.share_of_steps == pytest.approx(11 / 29)  # nobody saw the first step begin
    assert straggler.late_s == pytest.approx(0.010, rel=0.15)


def test_five_late_steps_of_one_rank_may_be_chance() -> None:
    late = np.zeros((2, NUM_STEPS))
    late[1, [3, 8, 15, 17, 26]] = 0.010
    assert find_straggler(runs_of(late)) is None, "one time in sixteen"


def test_a_neighbour_who_takes_a_core_for_a_while_is_one_event() -> None:
    late = np.zeros((2, NUM_STEPS))
    late[1, 8:20] = 0.010
    assert find_straggler(runs_of(late)) is None


def test_a_rank_that_is_last_in_half_of_the_steps_is_not_always_late() -> None:
    generator = np.random.default_rng(0)
    late = generator.normal(0.002, 0.008, (1, 3 * NUM_STEPS))
    assert np.median(late) > 0.05 * STEP_S
    late = np.concatenate((np.maximum(-late, 0.0), np.maximum(late, 0.0)))
    straggler = find_straggler(runs_of(late))
    assert straggler is None or not straggler.always


@pytest.mark.parametrize(("late_s", "is_late"), [(0.0008, False), (0.0014, True)])
def test_always_late_begins_at_5_percent_of_the_step(late_s: float, is_late: bool) -> None:
    ranks = joined_ranks(lateness(2, {1: [late_s] * NUM_STEPS}), place="data", jitter=0.001)
    assert (find_straggler([make_run(world=2, ranks=ranks)]) is not None) == is_late


def test_what_costs_more_is_told_of_a_rank_that_is_late_always_and_at_times() -> None:
    late = [0.003 + 0.060 * (step % 5 == 4) for step in range(NUM_STEPS)]
    straggler = find_straggler(runs_of(lateness(2, {1: late}), rounds=2))
    assert straggler is not None
    assert (straggler.rank, straggler.every) == (1, 5)
    assert straggler.late_s == pytest.approx(0.060, rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_a_busy_machine_alone_has_no_rhythm(seed: int) -> None:
    generator = np.random.default_rng(seed)
    late = generator.uniform(0.0, 0.015, (2, NUM_STEPS)) * (generator.random((2, NUM_STEPS)) < 0.2)
    assert find_straggler(runs_of(late, rounds=1)) is None


def test_ranks_that_no_collective_joins_are_compared_by_their_own_clocks() -> None:
    ranks = [
        make_rank(0, [0.020] * NUM_STEPS, start_s=1000.0),
        make_rank(1, [0.020] * NUM_STEPS, start_s=1003.0),
    ]
    assert find_straggler([make_run(world=2, ranks=ranks)]) is None
    ranks[1] = make_rank(1, [0.030] * NUM_STEPS, start_s=1003.0)
    straggler = find_straggler([make_run(world=2, ranks=ranks)])
    assert straggler is not None
    assert straggler.rank == 1


def test_clocks_of_two_machines_may_differ() -> None:
    runs = runs_of(lateness(2, {1: [0.010] * NUM_STEPS}))
    for run in runs:
        run.options["nnodes"] = "2"
        run.ranks[1].series["end_s"] = [value - 500 for value in run.ranks[1].series["end_s"]]
    straggler = find_straggler(runs)
    assert straggler is not None
    assert straggler.rank == 1


def test_stages_of_a_pipeline_wait_by_design() -> None:
    runs = runs_of(lateness(2, {1: [0.010] * NUM_STEPS}))
    for rank in runs[0].ranks:
        rank.facts["communication"]["by_kind"] = {"send": {"calls": 4, "bytes": 100}}
    assert find_straggler(runs) is None


def test_slow_steps_of_the_whole_world_at_a_period_are_found() -> None:
    times = [0.030 if step % 7 == 0 else 0.020 for step in range(NUM_STEPS)]
    assert find_slow_steps([make_run(world=2, step_times_s=times)]) == SlowSteps(7, 0.030, 0.020)
    times[3] = 0.030
    assert find_slow_steps([make_run(world=2, step_times_s=times)]) == SlowSteps(7, 0.030, 0.020)
    irregular = [0.030 if step in (2, 5, 13, 21, 22) else 0.020 for step in range(NUM_STEPS)]
    assert find_slow_steps([make_run(world=2, step_times_s=irregular)]) is None
