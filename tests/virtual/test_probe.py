"""Homework 3 as it is measured: what the probe writes down of a model that is cut over several devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.analyse.devices import copies_of, device_facts, moves_of
from paceline.store import Store

LABS = Path(__file__).parents[2] / "labs" / "hw3"
DIM, DEPTH, BATCH = 256, 10, 64
X_BYTES = 4 * BATCH * DIM


@pytest.mark.parametrize(
    ("script", "devices"), [("model_parallel.py", 2), ("model_parallel_dynamic.py", 5)], ids=["2", "5"]
)
def test_moves_of_a_forward_pass_are_counted_and_traced(
    library: None, tmp_path: Path, script: str, devices: int
) -> None:
    store = tmp_path / "store.sqlite"
    command = ["run", "--virtual", str(devices), "--store", str(store), "--name", "mp", "--rounds", "1"]
    sizes = ["--dim", str(DIM), "--depth", str(DEPTH), "--batch", str(BATCH)]
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *command, "--steps", "3", "--warmup", "1", LABS / script, *sizes],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    with Store(store, readonly=True) as stored:
        (run,) = stored.runs("mp")
    cuts = [(f"virtual:{at}", f"virtual:{at + 1}") for at in range(devices - 1)]
    assert copies_of(run, "forward_transfers") == dict.fromkeys(cuts, (1, X_BYTES))

    layers = DEPTH // devices
    line = 1 + next(
        number
        for number, text in enumerate((LABS / script).read_text().splitlines())
        if text.strip().startswith("x = x.to(")
    )
    traced = [(move.source, move.target, move.after_products, move.at) for move in moves_of(run)]
    assert traced == [(*cut, layers * (at + 1), f"{script}:{line}") for at, cut in enumerate(cuts)]

    # Weights and gradients of its layers, and what it keeps for backward, which is no more than all of it.
    held = 2 * 4 * (DIM * DIM + DIM) * layers
    (fact,) = device_facts(run)
    for peak in fact["peak_bytes"]:
        assert held <= peak <= held + X_BYTES * (2 * layers + 6)
