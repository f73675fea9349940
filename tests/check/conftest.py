"""Worlds for the tests of the check, started quickly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from paceline.check.observations import Seen, read_folder
from paceline.check.world import OBSERVER, explain_failure, find_line
from paceline.ingest import read_ranks
from paceline.outcome import Ended

RANKS = 2


class RunScript(Protocol):
    """Run a script on observed ranks; with virtual devices on one."""

    def __call__(self, script: Path, *arguments: str, devices: int = 0) -> Seen: ...


@pytest.fixture(scope="session")
def rank_server() -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("rank_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    yield server
    assert server.stdin
    server.stdin.close()
    server.wait(10)


@pytest.fixture(scope="session")
def run_script(rank_server: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory) -> RunScript:
    def run(script: Path, *arguments: str, devices: int = 0) -> Seen:
        num_ranks = 1 if devices else RANKS
        run_dir = tmp_path_factory.mktemp(script.stem)
        virtual = {"devices": devices, "memory": None, "link": None, "as_cuda": False}
        spec = {
            "version": 1,
            "out": str(run_dir),
            "steps": 3,
            "warmup": 1,
            "sampled": 0,
            "to_end": True,
            "step_marker": "auto",
            "placement": "plain",
            "cores": [],
            "added_environment": [],
            "virtual": virtual if devices else None,
            "nnodes": 1,
            "observer": OBSERVER,
        }
        (run_dir / "spec.json").write_text(json.dumps(spec))
        assert rank_server.stdin
        assert rank_server.stdout
        order = {
            "script": str(script),
            "arguments": arguments,
            "run_dir": str(run_dir),
            "ranks": num_ranks,
        }
        rank_server.stdin.write(json.dumps(order) + "\n")
        rank_server.stdin.flush()
        codes = json.loads(rank_server.stdout.readline())
        tails = {rank: (run_dir / f"rank{rank}.log").read_text()[-4000:] for rank in range(num_ranks)}
        ended = Ended(
            script=script,
            logs=read_ranks(run_dir),
            failures=[
                {"rank": rank, "local_rank": rank, "exit_code": code, "signal": None, "unix_s": 0.0}
                for rank, code in enumerate(codes)
                if code
            ],
            exit_code=max(codes),
            hung_after_s=None,
            stacks={},
            output={-1: "", **tails},
            steps=0,
            warmup=0,
            to_end=True,
        )
        failure = explain_failure(ended, 60.0)
        return Seen(read_folder(run_dir), num_ranks, failure, find_line(failure, script.name))

    return run
