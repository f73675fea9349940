"""What only a GPU can show: the device's own clock, its allocator, NCCL, and float16 that pays.

pytest tests/cuda     on a machine with one CUDA or ROCm accelerator or more
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from paceline.analyse import summarise
from paceline.explain import explain
from paceline.launch import run_world
from paceline.machine import describe_accelerators
from paceline.record import TIMED, RunRecord
from paceline.study import Config, Options

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(describe_accelerators()["kind"] != "cuda", reason="needs a CUDA or ROCm accelerator"),
]
ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def run(folder: Path, program: Path, world: int, *arguments: str, **options: object) -> RunRecord:
    return run_world(
        Config(str(program), arguments, world, "tuned"),
        Options(**options),
        study="cuda",
        round=0,
        key="k",
        cores_per_rank=1,
        run_dir=folder / "run",
        on_progress=lambda progress: None,
    )


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, dict[str, list[float]]]:
    """A program that keeps an account of its own, by the device's events."""
    folder = tmp_path_factory.mktemp("known")
    account = folder / "account.json"
    record = run(
        folder, ROOT / "tests" / "programs" / "known_device.py", 1, str(account), to_end=True, timeout_s=120.0
    )
    assert record.status == "ok", (record.cause, record.traceback)
    return record, json.loads(account.read_text())


def timed(record: RunRecord, metric: str) -> list[float]:
    series = record.ranks[0].series
    return [value for value, kind in zip(series[metric], series["kind"], strict=True) if kind == TIMED]


def test_a_step_lasts_as_long_as_on_the_device(known) -> None:
    record, account = known
    own_s = statistics.median(account["step_time_s"][5:35])
    assert own_s > 0.004  # or the program proves nothing: the host alone takes about a millisecond
    assert statistics.median(timed(record, "step_time_s")) == pytest.approx(own_s, rel=0.02)


def test_losses_and_skips_are_read_afterwards_and_all_there(known) -> None:
    record, account = known
    assert record.ranks[0].series["loss"][:39] == pytest.approx(account["loss"][:39], rel=1e-6)
    skipped = [step for step, value in enumerate(record.ranks[0].series["skipped"]) if value == 1.0]
    assert skipped == [8, 15]


def test_memory_is_the_allocators_and_its_parts_are_known(known) -> None:
    memory = known[0].ranks[0].facts["memory"]
    assert memory["at_peak"]["parameters"] == 4 * MIB
    matrix_and_product = 2 * 128 * MIB
    assert memory["device_peak_bytes"] >= memory["peak_bytes"] > matrix_and_product


def test_nccl_is_counted_and_timed(known) -> None:
    communication = known[0].ranks[0].facts["communication"]
    assert communication["backend"] == "nccl"
    assert (communication["calls"], communication["bytes"]) == (1, 4 * MIB)
    assert 0 <= communication["exposed_s"] <= communication["busy_s"]


def test_the_device_was_at_work_for_most_of_the_profiled_step(known) -> None:
    """What shows who works when on several accelerators; this test needs but one."""
    timeline = known[0].ranks[0].facts["timeline"]
    (spans,) = timeline["busy"].values()
    step_s = timeline["steps"][-1]["end_s"] - timeline["steps"][-1]["start_s"]
    assert 0.5 * step_s < sum(end - start for start, end in spans) <= step_s


def test_matrices_were_multiplied_in_float16(known) -> None:
    flops = known[0].ranks[0].facts["precision"]["matmul_flops"]
    assert flops["float16"] == pytest.approx(2 * 2 * 64 * 1024 * 1024)  # forward, and the weight's gradient


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("practical7/practical7_accumulation.py", ()),
        ("practical7/practical7_amp.py", ("--precision", "fp16")),
        ("hw2/practical5_single.py", ("--precision", "fp16")),
        ("hw1/ddp_benchmark.py", ()),
        ("hw1/dataparallel_benchmark.py", ()),
        ("hw3/model_parallel_dynamic.py", ()),
    ],
)
def test_the_labs_scripts_train_on_it(tmp_path: Path, script: str, arguments: tuple[str, ...]) -> None:
    record = run(tmp_path, ROOT / "labs" / script, 1, *arguments, "--steps", "60")
    assert record.status == "ok", (record.cause, record.traceback)
    assert record.ranks[0].facts["memory"]["device_peak_bytes"] > 0
    (row,) = explain(summarise([record]), [record])
    assert row.metrics["step_time_s"].median > 0


def test_hidden_accelerators_leave_the_script_its_cores(tmp_path: Path) -> None:
    script = ROOT / "labs" / "hw1" / "ddp_benchmark.py"
    record = run(tmp_path, script, 2, "--steps", "60", device="cpu")
    assert record.status == "ok", (record.cause, record.traceback)
    assert record.ranks[0].start["device"] == "cpu"
    assert record.ranks[0].facts["communication"]["backend"] == "gloo"
