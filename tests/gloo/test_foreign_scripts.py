"""Scripts that were not written for Paceline run unmodified, in the world that plain torchrun gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.launch import run_world
from paceline.record import RunRecord
from paceline.study import Config, Options

PROGRAMS = Path(__file__).parent.parent / "programs"


def run(
    folder: Path, program: str, world: int, *arguments: str, probe: bool = True, **options: object
) -> RunRecord:
    record = run_world(
        Config(str(PROGRAMS / program), arguments, world, "tuned"),
        Options(steps=15, warmup=4, **options),
        study="programs",
        round=0,
        key="k",
        cores_per_rank=1,
        run_dir=folder / "run",
        on_progress=lambda progress: None,
        probe=probe,
    )
    assert record.status == "ok", (record.cause, record.traceback)
    return record


def test_a_rank_starts_fast() -> None:
    # benchmarks/harness.py measures the time; this names the modules that would cost it.
    program = (
        "import sys, torch; before = set(sys.modules); import paceline.worker, paceline.probe.attach; "
        "print(*{name.split('.')[0] if not name.startswith('torch.') else '.'.join(name.split('.')[:3]) "
        "for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    new = set(done.stdout.split())
    assert not new & {
        "numpy",
        "scipy",
        "pydantic",
        "typer",
        "rich",
        "torch._dynamo",
        "torch.distributed.fsdp",
    }
    assert len(new) < 15, new
    program = "import sys, paceline.worker; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_accelerate(tmp_path: Path) -> None:
    record = run(tmp_path, "with_accelerate.py", 2)
    communication = record.ranks[0].facts["communication"]
    assert (communication["micro_steps"], communication["synchronising_micro_steps"]) == (2, 1)
    assert communication["bytes"] == 33 * 4


def test_fabric(tmp_path: Path) -> None:
    record = run(tmp_path, "with_fabric.py", 2)
    assert record.ranks[1].facts["communication"]["bytes"] == 33 * 4


def test_fsdp2(tmp_path: Path) -> None:
    record = run(tmp_path, "with_fsdp2.py", 2)
    kinds = record.ranks[0].facts["communication"]["by_kind"]
    layer_bytes = 64 * 64 * 4
    # Each of two layers is gathered for forward and again for backward, and its gradient scattered once.
    assert kinds["all_gather"] == {"calls": 4, "bytes": 4 * layer_bytes}
    assert kinds["reduce_scatter"] == {"calls": 2, "bytes": 2 * layer_bytes}
    memory = record.ranks[0].facts["memory"]["at_peak"]
    assert memory["parameters"] == layer_bytes  # half of two layers


def test_two_optimizers(tmp_path: Path) -> None:
    record = run(tmp_path, "with_two_optimizers.py", 1)
    (rank,) = record.ranks
    assert set(rank.series["micro_steps"]) == {3.0}
    assert len(rank.series["micro_steps"]) == 4 + 15 + 4


@pytest.mark.parametrize(("chosen", "threads"), [([], 1), (["2"], 2)])
def test_a_scripts_first_lines_come_before_torch(tmp_path: Path, chosen: list[str], threads: int) -> None:
    said = tmp_path / "said"
    (rank,) = run(tmp_path, "with_environment.py", 1, str(said), *chosen).ranks
    assert said.read_text() == f"[] None {threads}"
    assert rank.start["threads"] == threads
    assert rank.start["device"] == "cpu"


def test_os_exit(tmp_path: Path) -> None:
    record = run(tmp_path, "with_os_exit.py", 1, sampled=10)
    (rank,) = record.ranks
    assert len(rank.series["step_time_s"]) == 26
    assert [note["code"] for note in rank.notes] == ["no_samples"]


def test_os_exit_by_another_thread_ends_at_once_in_the_counted_step_too(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, "with_watchdog.py", 1, "19").ranks
    assert len(rank.series["step_time_s"]) == 4 + 15
    assert ["exit code 3 after 19 steps" in note["text"] for note in rank.notes] == [True]


def test_what_a_forked_child_trains_is_not_measured(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, "with_fork.py", 1, str(tmp_path / "trained")).ranks
    assert (tmp_path / "trained").exists()
    assert len(rank.series["step_time_s"]) == 13
    assert [note["code"] for note in rank.notes] == ["no_samples"]


def test_dataloader_workers_end_and_finally_does_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    record = run(tmp_path, "with_workers.py", 1, str(trace))
    assert max(record.ranks[0].series["dataloader_s"]) > 0
    assert not trace.exists()


def test_to_end_lets_the_script_finish(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    record = run(tmp_path, "with_workers.py", 1, str(trace), to_end=True)
    assert trace.exists()
    assert len(record.ranks[0].series["step_time_s"]) == 1000


def test_a_script_sees_what_plain_torchrun_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_USER", "1")
    views = {}
    for probe in (True, False):
        path = tmp_path / f"seen-{probe}.json"
        run(tmp_path / str(probe), "without_distributed.py", 1, str(path), probe=probe)
        views[probe] = json.loads(path.read_text())
    probed, plain = views[True], views[False]
    differing = {name for name in probed if probed[name] != plain[name]}
    assert differing <= {"argv", "environment"}
    assert probed["cwd"] == os.getcwd()
    assert "OF_THE_USER" in probed["environment"]
    assert not [name for name in probed["environment"] if name.startswith("PACELINE")]
