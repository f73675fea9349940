"""Programs whose timing, traffic, memory and health are known: what Paceline says of them must be true.

Times within 2 per cent, counts and bytes exactly, memory categories within 1 per cent.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from paceline.analyse import summarise
from paceline.explain import explain
from paceline.launch import run_world
from paceline.probe.collectives import Collective
from paceline.record import TIMED, RankRecord, Row, RunRecord
from paceline.study import Config, Options

PROGRAMS = Path(__file__).parent.parent / "programs"
TOLERANCE = 0.02
WARMUP = 5


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory):
    """Measure a program once, whatever the number of tests that look at it."""
    kept: dict[tuple[object, ...], RunRecord] = {}

    def run(
        program: str, world: int, *arguments: str, placement: str = "tuned", **options: object
    ) -> RunRecord:
        wanted = (program, world, arguments, placement, tuple(options.items()))
        if wanted not in kept:
            kept[wanted] = run_world(
                Config(str(PROGRAMS / program), arguments, world, "tuned"),
                Options(),
                study="truth",
                round=0,
                key=str(wanted),
                cores_per_rank=1,
                run_dir=tmp_path_factory.mktemp("run") / "r",
                on_progress=lambda progress: None,
            )
        record = kept[wanted]
        assert record.status == "ok", (record.cause, record.traceback)
        return record

    return run


def timed(rank: RankRecord, metric: str) -> list[float]:
    kinds = rank.series["kind"]
    return [value for value, kind in zip(rank.series[metric], kinds, strict=True) if kind == TIMED]


def explained(record: RunRecord) -> Row:
    (row,) = explain(summarise([record]), [record])
    return row


def codes(record: RunRecord) -> set[str]:
    return {finding.code for finding in explained(record).findings}


def test_a_step_of_20_ms_with_5_ms_of_data(measured, tmp_path: Path) -> None:
    log = tmp_path / "own-account"
    row = explained(measured("known_time.py", 1, "--log", str(log)))
    account = [json.loads(line) for line in log.read_text().splitlines()][WARMUP:]
    own = {name: statistics.median(step[name] for step in account) for name in ("data_s", "forward_s")}
    assert (own["data_s"], own["forward_s"]) == (pytest.approx(0.005, rel=0.5), pytest.approx(0.006, rel=0.5))
    assert row.metrics["step_time_s"].median == pytest.approx(0.020, rel=TOLERANCE)
    assert row.metrics["rank0_step_time_s"].median == pytest.approx(0.020, rel=TOLERANCE)
    for name, truth in own.items():
        assert row.metrics[name].median == pytest.approx(truth, rel=TOLERANCE, abs=2e-4), name


def test_every_seventh_step_is_slow(measured) -> None:
    record = measured("known_time.py", 1, "--slow-every", "7")
    slow = [time_s > 0.035 for time_s in record.ranks[0].series["step_time_s"]]
    assert [place for place, is_slow in enumerate(slow) if is_slow] == [0, 7, 14, 21, 28, 35][: sum(slow)]
    times = timed(record.ranks[0], "step_time_s")
    assert statistics.median(times) == pytest.approx(0.020, rel=TOLERANCE)
    slow_times = [time_s for time_s in times if time_s > 0.035]
    assert statistics.median(slow_times) == pytest.approx(0.050, rel=TOLERANCE)


def test_the_late_rank_is_found(measured) -> None:
    record = measured("known_straggler.py", 2)
    (finding,) = [f for f in explained(record).findings if f.code == "straggler"]
    assert finding.numbers["rank"] == 1
    assert finding.numbers["late_s"] == pytest.approx(0.010, rel=0.15)
    # It is the other one that waits.
    waits = [rank.facts["communication"]["exposed_s"] for rank in record.ranks]
    assert waits[0] > max(0.008, waits[1])


def test_a_rank_that_is_late_at_times_is_found(measured) -> None:
    record = measured("known_straggler.py", 2, "--every", "7")
    (finding,) = [f for f in explained(record).findings if f.code == "straggler"]
    assert finding.numbers["rank"] == 1


def test_collectives_are_counted_to_the_byte(measured) -> None:
    row = explained(measured("known_sizes.py", 2))
    assert row.metrics["collective_calls"].median == 1
    assert row.metrics["collective_bytes"].median == 8 * 2**20


def test_memory_is_split_as_it_is(measured) -> None:
    metrics = explained(measured("known_sizes.py", 2)).metrics
    mib = 2**20
    expected = {"parameters": 4, "gradients": 4, "optimizer": 8, "buffers": 1, "communication": 8}
    for category, size in expected.items():
        assert metrics[f"memory_bytes.{category}"].median == pytest.approx(size * mib, rel=0.01), category
    split = sum(m.median for name, m in metrics.items() if name.startswith("memory_bytes."))
    assert metrics["peak_memory_bytes"].median == pytest.approx(split, rel=0.01)


def test_skipped_steps_are_counted_as_skipped(measured) -> None:
    record = measured("known_skips.py", 1)
    (rank,) = record.ranks
    assert [step for step, skipped in enumerate(rank.series["skipped"]) if skipped] == [7, 11]
    scales = rank.series["loss_scale"]
    assert (scales[7], scales[8], scales[12]) == (1024.0, 512.0, 256.0)
    assert "scaler_skips" in codes(record)


def test_the_loss_is_the_unscaled_one(measured) -> None:
    (rank,) = measured("known_skips.py", 1).ranks
    assert all(0 < loss < 20 for loss in rank.series["loss"])


@pytest.mark.parametrize("how", ["plain", "checkpoint", "scaler", "grad", "penalty"])
def test_one_micro_step_is_one_however_gradients_are_asked_for(measured, how: str) -> None:
    (rank,) = measured("known_backward.py", 1, how).ranks
    assert set(rank.series["micro_steps"]) == {1.0}
    assert rank.series["loss"] == pytest.approx([4.0] * len(rank.series["loss"]))
    assert min(rank.series["backward_s"]) > 0
    assert rank.facts["batch"] == {"samples_per_step": 8}


def test_what_another_thread_loads_is_no_part_of_a_step(measured) -> None:
    (rank,) = measured("known_backward.py", 1, "thread").ranks
    assert set(rank.series["dataloader_s"]) == {0.0}


def test_a_nan_is_traced_to_its_step_and_rank(measured) -> None:
    record = measured("known_nan.py", 2)
    (finding,) = [f for f in explained(record).findings if f.code == "non_finite"]
    assert (finding.numbers["step"], finding.numbers["rank"]) == (12, 1)


def test_no_sync_synchronises_once_per_optimizer_step(measured) -> None:
    record = measured("known_accumulation.py", 2)
    communication = record.ranks[0].facts["communication"]
    assert (communication["calls"], communication["bytes"]) == (1, 64 * 64 * 4)
    assert (communication["micro_steps"], communication["synchronising_micro_steps"]) == (4, 1)
    assert set(timed(record.ranks[0], "micro_steps")) == {4.0}
    assert "accumulation_synchronises" not in codes(record)


def test_samples_are_those_of_all_ranks_and_micro_steps(measured) -> None:
    record = measured("known_accumulation.py", 2)
    metrics = explained(record).metrics
    samples_per_step = 2 * 4 * 8
    step_time_s = metrics["step_time_s"].median
    assert metrics["throughput_samples_s"].median == pytest.approx(samples_per_step / step_time_s)


def test_synchronising_on_every_micro_step_is_told(measured) -> None:
    record = measured("known_accumulation.py", 2, "--sync-always")
    communication = record.ranks[0].facts["communication"]
    assert (communication["calls"], communication["bytes"]) == (4, 4 * 64 * 64 * 4)
    assert communication["synchronising_micro_steps"] == 4
    assert "accumulation_synchronises" in codes(record)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 1.5),
        *((kind, 0.75) for kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")),
        *((kind, 1.0) for kind in ("broadcast", "reduce", "send", "recv")),
    ],
)
def test_bus_bytes_of_four_ranks_are_those_of_nccl_tests(kind: str, factor: float) -> None:
    assert Collective(kind, 4096, 4, []).bus_bytes == 4096 * factor
