"""A launcher that is killed, and started again: only what is missing runs. Real ranks, real signals."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.store import Store, StoreError

SCRIPT = """
import time, torch
import torch.distributed as dist
dist.init_process_group("gloo")
weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(10_000):
    (weight * 2).sum().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
    time.sleep(0.05)
"""
COMMAND = [
    "run",
    "--nproc",
    "1,2",
    "--rounds",
    "2",
    "--steps",
    "5",
    "--warmup",
    "1",
    "--sampled",
    "0",
    "train.py",
]
PATIENCE_S = 120


@pytest.fixture
def start(tmp_path):
    """Start `paceline` in an empty folder with a script that trains for minutes unless it is ended."""
    (tmp_path / "train.py").write_text(SCRIPT)
    started = []

    def launch(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def stored(tmp_path):
    """Key → when it was started, of every run that the store holds now."""

    def read(study: str = "train") -> dict[str, float]:
        with (
            contextlib.suppress(StoreError),
            Store(tmp_path / ".paceline/store.sqlite", readonly=True) as store,
        ):
            return {run.key: run.started for run in store.runs(study)}
        return {}

    return read


def wait_until(condition) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def find_ranks(folder: Path) -> list[int]:
    """Live processes that work in the folder: agents of torchrun and ranks."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int(entry.name) != os.getpid() and (entry / "cwd").resolve() == folder.resolve():
                found.append(int(entry.name))
    return found


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, error


def check_resumed(start, stored, num_kept: int) -> None:
    """The same command again: what was there stays, the rest is measured, and no more."""
    before = stored()
    assert len(before) == num_kept
    code, out, error = finish(start(*COMMAND))
    assert code == 0, out + error
    assert f"{4 - num_kept} runs to do, {num_kept} in the store already" in error
    after = stored()
    assert len(after) == 4
    assert {key: after[key] for key in before} == before


@pytest.mark.slow
def test_killed_during_a_run(start, stored, tmp_path):
    launcher = start(*COMMAND)
    runs_dir = tmp_path / ".paceline/store.runs/train"
    wait_until(lambda: len(stored()) == 1)
    wait_until(lambda: any(runs_dir.glob("*/rank0.jsonl")))
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate()
    wait_until(lambda: not find_ranks(tmp_path))
    check_resumed(start, stored, num_kept=1)
    assert [path for path in runs_dir.iterdir() if path.is_dir()] == []


@pytest.mark.slow
def test_killed_between_runs(start, stored, tmp_path):
    launcher = start(*COMMAND)
    wait_until(lambda: len(stored()) == 2)
    launcher.send_signal(signal.SIGKILL)
    launcher.communicate()
    wait_until(lambda: not find_ranks(tmp_path))
    check_resumed(start, stored, num_kept=2)


@pytest.mark.slow
def test_interrupted_by_ctrl_c(start, stored, tmp_path):
    launcher = start(*COMMAND)
    wait_until(lambda: len(stored()) == 1)
    launcher.send_signal(signal.SIGINT)
    code, out, error = finish(launcher)
    assert (code, out) == (130, "")
    assert "the same command goes on from there" in error
    assert "Traceback" not in error
    assert find_ranks(tmp_path) == []
    check_resumed(start, stored, num_kept=1)


@pytest.mark.slow
def test_two_studies_into_one_store_at_once(start, stored):
    processes = [
        start(*COMMAND[:3], "--name", name, "--rounds", "1", *COMMAND[5:]) for name in ("one", "two")
    ]
    assert [finish(process)[0] for process in processes] == [0, 0]
    assert [len(stored(name)) for name in ("one", "two")] == [2, 2]
