"""Each finding fires on what it is about, with its numbers, and a sound measurement has none."""

from __future__ import annotations

import ast
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from synthetic import communication, make_rank, make_run, memory

from paceline.analyse import summarise
from paceline.explain import CODES, explain
from paceline.record import Finding, RunRecord

MACHINE = {"cores": 4, "accelerators": {"devices": []}}


def findings(*runs: RunRecord, world: int | None = None) -> dict[str, Finding]:
    """The findings of the largest world's row (or of `world`), by code."""
    rows = explain(summarise(runs), runs)
    wanted = max(row.world for row in rows) if world is None else world
    (row,) = (row for row in rows if row.world == wanted)
    assert len({finding.code for finding in row.findings}) == len(row.findings)
    for finding in row.findings:
        assert finding.code in CODES
        assert finding.text[0].isupper() or finding.text[0].isdigit()
        assert finding.text.endswith(".")
        assert "  " not in finding.text
        assert "nan" not in finding.text or finding.code == "non_finite"
        assert finding.numbers
        json.dumps(finding.numbers, allow_nan=False)
    return {finding.code: finding for finding in row.findings}


def sound_sweep(times_s: dict[int, float], rounds: int = 3, **fields: Any) -> list[RunRecord]:
    """Quiet runs: worlds with their step times, exposed communication small."""
    fact = communication(exposed_s=0.0005)
    return [
        make_run(
            world=world,
            step_times_s=[time_s] * 30,
            round=round,
            **{"facts": {"communication": fact}, "machine": MACHINE} | fields,
        )
        for round in range(rounds)
        for world, time_s in times_s.items()
    ]


def test_a_sound_measurement_has_no_findings() -> None:
    runs = sound_sweep({1: 0.020, 2: 0.0105})
    assert findings(*runs) == {}
    assert findings(*runs, world=1) == {}


@pytest.mark.parametrize("status", ["failed", "hung", "oom", "refused"])
def test_a_bad_end_is_told_with_its_cause(status: str) -> None:
    run = make_run(status=status, cause="rank 1 raised ValueError: boom", ranks=[])
    finding = findings(run)[status]
    assert "rank 1 raised ValueError: boom" in finding.text.replace("Rank", "rank")
    assert finding.severity == "warning"


def test_a_bad_round_among_good_ones_is_told() -> None:
    runs = sound_sweep({2: 0.020})
    runs.append(make_run(world=2, round=3, status="hung", cause="no step for 300 s", ranks=[]))
    finding = findings(*runs)["hung"]
    assert finding.text.startswith("No step for 300 s. In 1 of 4 rounds.")
    assert finding.numbers == {"runs": 1, "of": 4}


def test_more_ranks_than_cores() -> None:
    runs = sound_sweep({8: 0.020}, oversubscribed=True)
    finding = findings(*runs)["oversubscribed"]
    assert "8 ranks take turns on 4 cores" in finding.text
    assert finding.numbers == {"world": 8, "cores": 4}
    accelerators = {"cores": 4, "accelerators": {"devices": ["a", "b"]}}
    runs = sound_sweep({8: 0.020}, oversubscribed=True, machine=accelerators)
    assert "8 ranks take turns on 4 cores" in findings(*runs)["oversubscribed"].text
    for run in runs:
        for rank in run.ranks:
            rank.start["device"] = "cuda"
    assert "8 ranks take turns on 2 accelerators" in findings(*runs)["oversubscribed"].text
    for run in runs:
        run.options["device"] = "cpu"
    assert "8 ranks take turns on 4 cores" in findings(*runs)["oversubscribed"].text


def test_too_noisy_says_how_much_and_how_many_rounds_would_do() -> None:
    runs = [make_run(step_times_s=[0.020 * (1 + 0.06 * round)] * 30, round=round) for round in range(3)]
    finding = findings(*runs)["too_noisy"]
    assert finding.numbers["half_width"] > 0.05
    assert finding.numbers["rounds_wanted"] > 3
    assert "3 launches by 5.7 %" in finding.text
    assert f"--rounds {finding.numbers['rounds_wanted']}" in finding.text


@pytest.mark.parametrize(("spread", "is_noisy"), [(0.018, False), (0.022, True)])
def test_too_noisy_begins_at_5_percent(spread: float, is_noisy: bool) -> None:
    # Of three launches, t(2) / √3 = 2.48 times their standard deviation.
    runs = [make_run(step_times_s=[0.020 * (1 + spread * place)] * 30, round=place) for place in (-1, 0, 1)]
    for round, run in enumerate(runs):
        run.round = round
    assert ("too_noisy" in findings(*runs)) == is_noisy


def test_too_noisy_promises_no_number_of_rounds_that_would_not_do() -> None:
    runs = [make_run(step_times_s=[0.020 * 2**round] * 30, round=round) for round in range(3)]
    finding = findings(*runs)["too_noisy"]
    assert "rounds_wanted" not in finding.numbers
    assert "--rounds" not in finding.text
    assert "--steps" in finding.text


def test_a_speedup_that_may_be_a_slowdown_is_said_to_be_undecided() -> None:
    runs = sound_sweep({1: 0.020}) + [
        make_run(world=2, step_times_s=[time_s] * 30, round=round)
        for round, time_s in enumerate((0.015, 0.020, 0.024))
    ]
    assert "too little to say whether it is faster or slower" in findings(*runs)["too_noisy"].text
    clearly_faster = sound_sweep({1: 0.020}) + [
        make_run(world=2, step_times_s=[time_s] * 30, round=round)
        for round, time_s in enumerate((0.010, 0.011, 0.012))
    ]
    finding = findings(*clearly_faster)["too_noisy"]
    assert "faster or slower" not in finding.text, "1.8 ×, between 1.4 and 2.3"


def test_a_comparison_of_single_launches_is_pointed_out() -> None:
    assert "single_launch" in findings(*sound_sweep({1: 0.020, 2: 0.0105}, rounds=1))
    assert "single_launch" not in findings(*sound_sweep({2: 0.0105}, rounds=1))
    one_pair = sound_sweep({1: 0.020}, rounds=1) + sound_sweep({2: 0.0105}, rounds=3)
    assert "single_launch" in findings(*one_pair)


def test_foreign_load_is_told_with_what_it_cost() -> None:
    foreign = [0.0] * 15 + [0.9] * 15
    times = [0.020] * 15 + [0.030] * 15
    finding = findings(make_run(ranks=[make_rank(0, times, series={"foreign_cores": foreign})]))["disturbed"]
    assert finding.numbers["disturbed_share"] == pytest.approx(0.5)
    assert finding.numbers["slower"] == pytest.approx(1.5)
    assert finding.severity == "warning"


def test_foreign_load_that_slowed_no_step_is_only_a_note() -> None:
    foreign = [0.0] * 15 + [0.9] * 15
    rank = make_rank(0, [0.020] * 30, series={"foreign_cores": foreign})
    assert findings(make_run(ranks=[rank]))["disturbed"].severity == "note"
    rare = make_rank(0, [0.020] * 30, series={"foreign_cores": [0.0] * 27 + [0.9] * 3})
    rare.series["foreign_cores"][-4:] = [0.0] * 4
    assert "disturbed" not in findings(make_run(ranks=[rare])), "three steps of thirty"
    rare.series["foreign_cores"][5:7] = [0.9] * 2
    assert "disturbed" in findings(make_run(ranks=[rare])), "five of thirty"


def test_exposed_communication_is_told_in_seconds_and_share() -> None:
    fact = communication(exposed_s=0.008, busy_s=0.010, calls=4, bytes_=1 << 20)
    finding = findings(*sound_sweep({2: 0.020}, facts={"communication": fact}))["communication_exposed"]
    assert "8.00 ms of each 20.0 ms step (40 %)" in finding.text
    assert "4 collectives, 1.00 MiB" in finding.text
    assert finding.numbers["hidden_comm_s"] == pytest.approx(0.002)
    assert finding.numbers["share"] == pytest.approx(0.4)
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("share", "severity"), [(0.14, None), (0.16, "note"), (0.24, "note"), (0.26, "warning")]
)
def test_communication_is_told_from_15_percent_and_a_warning_from_25(
    share: float, severity: str | None
) -> None:
    fact = communication(exposed_s=0.020 * share)
    found = findings(*sound_sweep({2: 0.020}, facts={"communication": fact}))
    assert (found["communication_exposed"].severity if found else None) == severity


def test_hidden_communication_is_no_finding() -> None:
    fact = communication(exposed_s=0.001, busy_s=0.018)
    assert findings(*sound_sweep({2: 0.020}, facts={"communication": fact})) == {}


def late_ranks(late_s: list[float], **series: list[float]) -> RunRecord:
    """Two ranks joined in backward; rank 1's data takes `late_s` longer, step by step."""
    step_s = [0.020 + late for late in late_s]
    early = {"data_s": [0.002] * len(late_s), "backward_s": [0.010 + late for late in late_s]}
    waits = communication(exposed_s=sorted(late_s)[len(late_s) // 2])
    late = {"data_s": [0.002 + late for late in late_s], "backward_s": [0.010] * len(late_s)}
    common = {"forward_s": [0.006] * len(late_s), "optimizer_s": [0.002] * len(late_s)}
    return make_run(
        world=2,
        ranks=[
            make_rank(0, step_s, phases={**early, **common}, facts={"communication": waits}),
            make_rank(1, step_s, phases={**late, **common}, facts={"communication": communication()}),
        ],
    )


def test_a_rank_that_is_always_late_is_named() -> None:
    finding = findings(late_ranks([0.010] * 30))["straggler"]
    assert re.search(r"Rank 1 arrives 10.0+ ms after the others in every step", finding.text)
    assert finding.numbers["rank"] == 1
    assert finding.numbers["late_s"] == pytest.approx(0.010)
    assert finding.numbers["share"] == pytest.approx(1 / 3)


def test_a_rank_that_is_late_in_every_7th_step_is_named() -> None:
    found = findings(late_ranks([0.010 if step % 7 == 6 else 0.0 for step in range(30)]))
    assert "periodic_steps" not in found, "the same steps"
    finding = found["straggler"]
    assert "in every 7th step" in finding.text
    assert finding.numbers["every"] == 7
    assert finding.numbers["share"] == pytest.approx(0.010 / (7 * 0.020 + 0.010), rel=0.01)


def test_ranks_that_nothing_joins_do_not_wait_for_each_other() -> None:
    run = late_ranks([0.010] * 30)
    for rank in run.ranks:
        rank.facts["communication"] = communication(calls=0, bytes_=0, busy_s=0.0)
    assert "straggler" not in findings(run)


def test_late_data_of_one_rank_is_that_ranks_matter() -> None:
    found = findings(*sound_sweep({1: 0.040}), late_ranks([0.020] * 30))
    assert "data_bound" not in found, "12 of 40 ms as a mean over ranks, all but 2 of them rank 1's"
    lost_s = 0.040 - 0.040 / 2
    parts_s = sum(part_s for name, part_s in found["no_speedup"].numbers.items() if name.endswith("_s"))
    assert parts_s - found["no_speedup"].numbers["ideal_step_time_s"] == pytest.approx(lost_s, rel=0.05)
    assert "straggler" in found["no_speedup"].text, "most of the loss is that rank's lateness"
    assert found["no_speedup"].numbers["waiting_for_a_late_rank_s"] == pytest.approx(0.020)


def test_slow_steps_of_all_ranks_are_periodic_steps() -> None:
    times = [0.030 if step % 7 == 6 else 0.020 for step in range(30)]
    found = findings(make_run(world=1, step_times_s=times))
    assert "Every 7th step takes 30.0 ms where the others take 20.0 ms" in found["periodic_steps"].text
    assert found["periodic_steps"].numbers["share"] == pytest.approx(10 / 150)
    times = [0.030 if step % 3 == 2 else 0.020 for step in range(30)]
    assert "Every 3rd step" in findings(make_run(world=1, step_times_s=times))["periodic_steps"].text


def test_data_that_takes_much_of_the_step() -> None:
    phases = {"data_s": [0.008] * 30, "dataloader_s": [0.007] * 30}
    finding = findings(make_run(ranks=[make_rank(0, [0.020] * 30, phases=phases)]))["data_bound"]
    assert "8.00 ms of each 20.0 ms step (40 %)" in finding.text
    assert "num_workers" in finding.text
    phases["dataloader_s"] = [0.0] * 30
    finding = findings(make_run(ranks=[make_rank(0, [0.020] * 30, phases=phases)]))["data_bound"]
    assert "No DataLoader is involved" in finding.text
    phases["dataloader_s"] = [0.001] * 30
    finding = findings(make_run(ranks=[make_rank(0, [0.020] * 30, phases=phases)]))["data_bound"]
    assert "num_workers" not in finding.text, "the loader is an eighth of it"
    phases["data_s"] = [0.0052] * 30
    assert "data_bound" in findings(make_run(ranks=[make_rank(0, [0.020] * 30, phases=phases)]))
    phases["data_s"] = [0.0048] * 30
    assert findings(make_run(ranks=[make_rank(0, [0.020] * 30, phases=phases)])) == {}


def test_a_host_that_waits_for_its_accelerator_is_not_short_of_data() -> None:
    """`loss.item()` after the optimizer's step waits there for all that the device has still to do."""
    phases = {"data_s": [0.014] * 30, "dataloader_s": [0.0] * 30}

    def found(compute_share: float) -> dict[str, Finding]:
        facts = {"timeline": {"steps": [], "compute_share": compute_share}}
        rank = make_rank(0, [0.020] * 30, phases=phases, start={"device": "cuda"}, facts=facts)
        return findings(make_run(ranks=[rank]))

    assert found(0.95) == {}
    assert "14.0 ms of each" in found(0.3)["data_bound"].text
    assert "10.0 ms of each" in found(0.5)["data_bound"].text


def test_host_phases_of_an_accelerator_are_no_part_of_what_is_lost() -> None:
    def run(world: int, time_s: float) -> RunRecord:
        phases = {"data_s": [time_s * 0.7] * 30}
        ranks = [make_rank(r, [time_s] * 30, phases=phases, start={"device": "cuda"}) for r in range(world)]
        return make_run(world=world, ranks=ranks)

    text = findings(run(1, 0.020), run(2, 0.022))["no_speedup"].text
    assert "unattributed 12.0 ms" in text
    assert "data" not in text


def test_more_threads_than_cores_fight() -> None:
    ranks = [make_rank(rank, [0.020] * 30, start={"threads": 4, "cores": []}) for rank in range(2)]
    finding = findings(make_run(world=2, ranks=ranks, placement="plain", machine=MACHINE))["threads_fight"]
    assert finding.numbers["threads"] == 8
    assert "OMP_NUM_THREADS=2" in finding.text
    ranks = [make_rank(rank, [0.020] * 30, start={"threads": 2, "cores": []}) for rank in range(2)]
    assert findings(make_run(world=2, ranks=ranks, placement="plain", machine=MACHINE)) == {}
    ranks = [make_rank(rank, [0.020] * 30, start={"threads": 4, "cores": []}) for rank in range(2)]
    crowded = make_run(world=2, ranks=ranks, machine=MACHINE, oversubscribed=True)
    assert "threads_fight" not in findings(crowded), "told as oversubscribed"


def test_threads_that_the_script_itself_raised_fight_too() -> None:
    ranks = [make_rank(rank, [0.020] * 30, facts={"timeline": {"threads": 8}}) for rank in range(2)]
    finding = findings(make_run(world=2, ranks=ranks, machine=MACHINE))["threads_fight"]
    assert finding.numbers["threads"] == 16
    assert finding.numbers["cores"] == 2
    assert "torch.set_num_threads" in finding.text
    fewer = {"start": {"threads": 4}, "facts": {"timeline": {"threads": 1}}}
    ranks = [make_rank(rank, [0.020] * 30, **fewer) for rank in range(2)]
    assert findings(make_run(world=2, ranks=ranks, machine=MACHINE)) == {}


def test_threads_of_two_machines_do_not_fight_each_other() -> None:
    places = [
        {"local_rank": rank % 2, "threads": 2, "cores": [2 * (rank % 2), 2 * (rank % 2) + 1]}
        for rank in range(4)
    ]
    ranks = [make_rank(rank, [0.020] * 30, start=place) for rank, place in enumerate(places)]
    assert findings(make_run(world=4, ranks=ranks, machine=MACHINE)) == {}


def test_no_speedup_is_explained_by_its_parts() -> None:
    base = sound_sweep({1: 0.020})
    fact = {"communication": communication(exposed_s=0.009)}
    found = findings(*base, *sound_sweep({2: 0.020}, facts=fact))
    finding = found["no_speedup"]
    assert "2 ranks are 1.00 × as fast as 1" in finding.text
    assert "exposed communication 8.75 ms" in finding.text
    assert finding.numbers["ideal_step_time_s"] == pytest.approx(0.010)
    assert "no_speedup" not in findings(*base, *sound_sweep({2: 0.012}))


def test_time_that_nothing_explains_is_called_unattributed() -> None:
    found = findings(*sound_sweep({1: 0.020, 2: 0.020}))
    assert found["unattributed"].numbers["unattributed_s"] > 0.003
    for rest_s, is_told in ((0.0013, False), (0.0032, True)):
        # Beyond half of 20 ms: 2.5 ms of exposed communication, 1 + 1 ms of data and optimizer, and the rest.
        fact = {"communication": communication(exposed_s=0.0025)}
        phases = {"data_s": [0.002] * 30, "optimizer_s": [0.002] * 30}
        ranks = [make_rank(rank, [0.0145 + rest_s] * 30, phases=phases, facts=fact) for rank in range(2)]
        found = findings(make_run(step_times_s=[0.020] * 30), make_run(world=2, ranks=ranks))
        assert ("unattributed" in found) == is_told
    assert "unattributed" not in findings(
        *sound_sweep({1: 0.020}),
        *sound_sweep({2: 0.020}, facts={"communication": communication(exposed_s=0.009)}),
    )


def test_work_that_grows_with_the_world_is_pointed_out() -> None:
    def facts(flops: float) -> dict[str, Any]:
        return {"communication": communication(), "precision": {"matmul_flops": {"float32": flops}}}

    runs = sound_sweep({1: 0.020}, facts=facts(1e9)) + sound_sweep({2: 0.020}, facts=facts(1e9))
    found = findings(*runs)
    assert found["work_differs"].numbers == {"work": 2.0, "speedup_per_work": pytest.approx(2.0)}
    assert found["work_differs"].severity == "warning"
    assert "no_speedup" not in found, "per unit of work it is 2 ×"
    assert "unattributed" not in found, "the undivided work explains it"
    found = findings(*sound_sweep({1: 0.020}, facts=facts(1e9)), *sound_sweep({2: 0.038}, facts=facts(1e9)))
    assert "no_speedup" in found, "not per unit of work either"
    runs = sound_sweep({1: 0.020}, facts=facts(1e9)) + sound_sweep({2: 0.0105}, facts=facts(0.57e9))
    assert "work_differs" in findings(*runs), "14 % more"
    runs = sound_sweep({1: 0.020}, facts=facts(1e9)) + sound_sweep({2: 0.0105}, facts=facts(0.5e9))
    assert findings(*runs) == {}


def test_a_batch_per_rank_is_compared_by_the_sample() -> None:
    def facts(exposed_s: float) -> dict[str, Any]:
        return {
            "communication": communication(exposed_s=exposed_s),
            "precision": {"matmul_flops": {"float32": 1e9}},
            "batch": {"samples_per_step": 32},
        }

    base = sound_sweep({1: 0.020}, facts=facts(0.0))
    assert findings(*base, *sound_sweep({2: 0.021}, facts=facts(0.001))) == {}
    found = findings(*base, *sound_sweep({2: 0.038}, facts=facts(0.017)))
    finding = found["no_speedup"]
    assert finding.numbers["speedup"] == pytest.approx(2 * 20 / 38)
    assert finding.numbers["ideal_step_time_s"] == pytest.approx(0.020)
    assert "a step takes 38.0 ms for 2 × the samples, an even division would take 20.0 ms" in finding.text
    assert "work that is not divided" not in finding.text
    assert "unattributed" not in found


def test_no_speedup_says_what_to_do_about_its_largest_part() -> None:
    base = sound_sweep({1: 0.020})
    assert (
        "larger batch"
        in findings(*base, *sound_sweep({2: 0.020}, facts={"communication": communication(exposed_s=0.009)}))[
            "no_speedup"
        ].text.split("The difference")[1]
    )
    phases = {"data_s": [0.010] * 30, "forward_s": [0.003] * 30, "backward_s": [0.005] * 30}
    ranks = [make_rank(rank, [0.019] * 30, phases=phases) for rank in range(2)]
    finding = findings(*base, make_run(world=2, ranks=ranks))["no_speedup"]
    assert "data 9.00 ms" in finding.text
    assert "its own part of the batch" in finding.text


def test_waiting_is_a_mean_over_ranks_as_the_phases_are() -> None:
    ranks = [
        make_rank(rank, [0.030] * 30, facts={"communication": communication(exposed_s=exposed_s)})
        for rank, exposed_s in enumerate((0.001, 0.007, 0.007, 0.001))
    ]
    finding = findings(make_run(step_times_s=[0.030] * 30), make_run(world=4, ranks=ranks))["no_speedup"]
    assert finding.numbers["waiting_for_a_late_rank_s"] == pytest.approx(0.003)


def test_a_speedup_that_may_yet_be_one_is_given_with_its_interval() -> None:
    base = sound_sweep({1: 0.020})
    assert "1.00 × as fast as 1: " in findings(*base, *sound_sweep({2: 0.020}))["no_speedup"].text
    unsteady = [
        make_run(world=2, step_times_s=[time_s] * 30, round=round)
        for round, time_s in enumerate((0.016, 0.020, 0.024))
    ]
    text = findings(*base, *unsteady)["no_speedup"].text
    assert re.search(r"1\.00 × as fast as 1 \(0\.\d\d to [1-9]\.\d\d\): ", text)


@pytest.mark.parametrize(("time_s", "is_told"), [(0.0180, False), (0.0184, True)])
def test_no_speedup_is_less_than_a_tenth_of_the_possible_gain(time_s: float, is_told: bool) -> None:
    assert ("no_speedup" in findings(*sound_sweep({1: 0.020, 2: time_s}))) == is_told


def test_a_loss_that_is_no_number_is_told_with_step_and_rank() -> None:
    loss = [1.0] * 7 + [math.nan] * 23
    ranks = [
        make_rank(0, [0.02] * 30, series={"loss": [1.0] * 30}),
        make_rank(1, [0.02] * 30, series={"loss": loss}),
    ]
    finding = findings(make_run(world=2, ranks=ranks))["non_finite"]
    assert "The loss of rank 1 is nan from step 12 on" in finding.text
    assert (finding.numbers["step"], finding.numbers["rank"]) == (12, 1)


def test_an_infinite_loss_is_found_in_a_run_that_failed_of_it() -> None:
    ranks = [make_rank(0, [0.02] * 30, series={"loss": [1.0] * 10 + [math.inf] * 20})]
    found = findings(make_run(ranks=ranks, status="failed", cause="loss exploded"))
    assert found["non_finite"].numbers["step"] == 15


def test_a_loss_that_nobody_read_is_not_called_bad() -> None:
    unknown = [math.nan] * 30
    assert findings(make_run(ranks=[make_rank(0, [0.02] * 30, series={"loss": unknown})])) == {}
    rank = make_rank(0, [0.02] * 30, series={"loss": [1.0] * 30})
    rank.series["loss"][-4:] = [math.nan] * 4  # sampled steps
    assert findings(make_run(ranks=[rank])) == {}


def test_gradients_that_are_no_numbers_are_told_unless_a_scaler_expects_them() -> None:
    facts = {"gradients": {"norms": [1.0], "nonfinite": 1}}
    rank = make_rank(0, [0.02] * 30, facts=facts, series={"loss": [1.0] * 30})
    finding = findings(make_run(ranks=[rank]))["non_finite"]
    assert finding.numbers == {"rank": 0, "sampled_steps": 1, "round": 0}
    assert "though the loss was" in finding.text
    rank = make_rank(0, [0.02] * 30, facts=facts, series={"loss": [1.0] * 30, "loss_scale": [2.0] * 30})
    assert "non_finite" not in findings(make_run(ranks=[rank]))


@pytest.mark.parametrize("scaler", [{}, {"loss_scale": [2.0] * 30}])
def test_a_training_that_is_no_number_from_its_first_step_on_is_told(scaler: dict[str, list[float]]) -> None:
    facts = {"gradients": {"norms": [], "nonfinite": 2}}
    rank = make_rank(0, [0.02] * 30, facts=facts, series={"loss": [math.nan] * 30, **scaler})
    finding = findings(make_run(ranks=[rank]))["non_finite"]
    assert "though the loss was" not in finding.text
    assert "not one finite loss was seen from step 0 on" in finding.text
    assert finding.numbers["step"] == 0


def test_accumulation_that_synchronises_each_micro_step_says_what_no_sync_saves() -> None:
    fact = communication(exposed_s=0.008, micro_steps=4, synchronising_micro_steps=4)
    facts = {"communication": fact, "batch": {"samples_per_step": 32}}
    finding = findings(*sound_sweep({2: 0.020}, facts=facts))["accumulation_synchronises"]
    assert "`with model.no_sync():`" in finding.text
    assert finding.numbers["saved_s"] == pytest.approx(0.006)
    fact["synchronising_micro_steps"] = 2
    finding = findings(*sound_sweep({2: 0.020}, facts=facts))["accumulation_synchronises"]
    assert finding.numbers["saved_s"] == pytest.approx(0.004)
    fact["synchronising_micro_steps"] = 1
    assert "accumulation_synchronises" not in findings(*sound_sweep({2: 0.020}, facts=facts))


@pytest.mark.parametrize(("bytes_", "is_told"), [(4 * 4096, True), (4 * 1000, False)])
def test_only_gradients_need_not_be_synchronised_in_each_micro_step(bytes_: int, is_told: bool) -> None:
    """Tensor parallelism sums activations in every micro-step; a gradient is as large as its parameter."""
    fact = communication(exposed_s=0.008, bytes_=bytes_, micro_steps=4, synchronising_micro_steps=4)
    facts = {"communication": fact, "memory": memory(parameters=4096)}
    found = findings(*sound_sweep({2: 0.020}, facts=facts))
    assert ("accumulation_synchronises" in found) == is_told
    assert ("no_sync" in found["communication_exposed"].text) == is_told


def test_sharded_models_have_their_own_way_to_accumulate() -> None:
    fact = communication(
        kind="reduce_scatter", bytes_=4 * 8192, exposed_s=0.008, micro_steps=4, synchronising_micro_steps=4
    )
    fact["by_kind"]["all_gather"] = {"calls": 8, "bytes": 8 * 8192}
    fact["bytes"] += 8 * 8192
    facts = {"communication": fact, "memory": memory(parameters=4096)}
    finding = findings(*sound_sweep({2: 0.020}, facts=facts))["accumulation_synchronises"]
    assert "set_requires_gradient_sync(False)" in finding.text
    assert finding.numbers["saved_s"] == pytest.approx(0.008 / 3 * 3 / 4), "parameters are gathered anyway"


def test_skipped_optimizer_steps_are_counted() -> None:
    rank = make_rank(0, [0.02] * 30, series={"skipped": [1.0] * 2 + [0.0] * 28, "loss_scale": [16384.0] * 30})
    finding = findings(make_run(ranks=[rank]))["scaler_skips"]
    assert "skipped 2 of 30 optimizer steps" in finding.text
    assert finding.severity == "note"


@pytest.mark.parametrize(("placement", "remedy"), [("plain", "--placement tuned"), ("tuned", "jemalloc")])
def test_page_faults_that_cost_time(placement: str, remedy: str) -> None:
    rank = make_rank(0, [0.168] * 30, series={"page_faults": [65_000.0] * 30})
    finding = findings(make_run(ranks=[rank], placement=placement))["allocator_costs"]
    assert "65,000 page faults" in finding.text
    assert remedy in finding.text
    assert finding.numbers["share"] == pytest.approx(0.58, abs=0.01)
    assert finding.severity == "warning"


def test_float16_on_a_cpu() -> None:
    assert "fp16_on_cpu" in findings(make_run(facts={"precision": {"matmul_flops": {"float16": 1e9}}}))
    ranks = [
        make_rank(
            0, [0.02] * 30, start={"device": "cuda"}, facts={"precision": {"matmul_flops": {"float16": 1e9}}}
        )
    ]
    assert findings(make_run(ranks=ranks)) == {}


def test_no_collectives_in_several_ranks_is_a_loud_warning() -> None:
    fact = communication(calls=0, bytes_=0, busy_s=0.0)
    finding = findings(*sound_sweep({2: 0.020}, facts={"communication": fact}))["no_collectives"]
    assert finding.severity == "warning"
    assert findings(*sound_sweep({1: 0.020}, facts={"communication": fact})) == {}


@pytest.mark.parametrize(
    ("code", "expected"),
    [("no_samples", "no_samples"), ("steps_restart", "steps_restarted"), ("ended_badly", "ended_badly")],
)
def test_notes_of_the_ranks_are_passed_on(code: str, expected: str) -> None:
    rank = make_rank(
        0, [0.02] * 30, notes=[{"event": "note", "code": code, "text": "what was seen", "step": 3}]
    )
    assert "hat was seen" in findings(make_run(ranks=[rank]))[expected].text


def test_warnings_come_first_and_the_largest_before_the_small() -> None:
    fact = communication(exposed_s=0.006)
    phases = {"data_s": [0.012] * 30}
    ranks = [
        make_rank(
            rank,
            [0.020] * 30,
            phases=phases,
            facts={"communication": fact},
            series={"page_faults": [1000.0] * 30},
        )
        for rank in range(2)
    ]
    assert list(findings(make_run(world=2, ranks=ranks))) == [
        "data_bound",
        "communication_exposed",
        "allocator_costs",
    ]


def test_what_puts_the_whole_row_in_doubt_comes_before_any_share_of_it() -> None:
    fact = communication(exposed_s=0.018)
    runs = sound_sweep({8: 0.020}, facts={"communication": fact}, oversubscribed=True)
    assert list(findings(*runs)) == ["oversubscribed", "communication_exposed"]


def test_explaining_changes_no_row_that_was_given() -> None:
    runs = sound_sweep({8: 0.020}, oversubscribed=True)
    rows = summarise(runs)
    explained = explain(rows, runs)
    assert rows[0].findings == []
    assert explained[0].findings != []
    assert explained[0].metrics == rows[0].metrics


def test_the_list_of_codes_is_closed_and_every_code_is_used() -> None:
    folder = Path(__file__).parents[2] / "paceline" / "findings"
    used = {"failed", "hung", "oom", "refused"}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                assert node.args
                if isinstance(node.args[0], ast.Constant):
                    used.add(node.args[0].value)
    assert used == set(CODES)


def test_findings_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## `(\w+)`$", text, re.MULTILINE)) == set(CODES)
