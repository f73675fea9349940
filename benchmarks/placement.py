"""What placement is worth: the same script launched as torchrun alone would, and tuned, in turns.

Claims: DDP on two ranks (DIM 1024, DEPTH 2, batch 64) at least 1.3 × faster, its spread at most half;
bf16 at DIM 4096 on one rank at least 2 × faster. Ratios are taken within a round and shown with their
95 % interval over the rounds. Needs two cores; a quiet machine, or more rounds.

    python benchmarks/placement.py --rounds 5
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from record_result import write_result
from rich.console import Console
from rich.table import Table

from paceline.analyse.scaling import ratio
from paceline.analyse.steps import step_metrics
from paceline.launch import run_world
from paceline.machine import usable_cores
from paceline.record import Metric, RunRecord
from paceline.study import Config, Options

SCRIPT = str(Path(__file__).parent / "linear_layers.py")


@dataclass(frozen=True)
class Case:
    name: str
    arguments: tuple[str, ...]
    world: int
    steps: int
    min_gain: float


CASES = (
    Case("DDP, 2 ranks, DIM 1024", ("--dim", "1024"), 2, 100, 1.3),
    Case("bf16, 1 rank, DIM 4096", ("--dim", "4096", "--bf16"), 1, 30, 2.0),
)
MIN_CALMER = 2.0  # DDP's spread under plain placement over that under tuned


def launch(case: Case, placement: str, round: int) -> RunRecord:
    with tempfile.TemporaryDirectory() as folder:
        record = run_world(
            Config(SCRIPT, case.arguments, case.world, placement),
            Options(steps=case.steps, warmup=10, sampled=0),
            study="placement",
            round=round,
            key=f"{case.name} {placement} {round}",
            cores_per_rank=len(usable_cores()) // case.world,
            run_dir=Path(folder) / "run",
            on_progress=lambda progress: None,
        )
    if record.status != "ok":
        sys.exit(f"{case.name}, {placement}: {record.cause}\n{record.traceback or ''}")
    return record


def show(metric: Metric | None, scale: float = 1.0, digits: int = 2) -> str:
    assert metric is not None
    low, high = metric.low * scale, metric.high * scale
    return f"{metric.median * scale:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    runs: dict[tuple[Case, str], list[RunRecord]] = {}
    for round in range(rounds):
        # Whoever goes first meets another machine than who goes second: take turns at that as well.
        for placement in ("plain", "tuned") if round % 2 else ("tuned", "plain"):
            for case in CASES:
                runs.setdefault((case, placement), []).append(launch(case, placement, round))
    table = Table(
        "", "plain ms", "tuned ms", "gain", "spread plain", "spread tuned", "page faults plain → tuned"
    )
    numbers: dict[str, dict[str, float]] = {}
    holds = True
    for case in CASES:
        plain, tuned = runs[case, "plain"], runs[case, "tuned"]
        times = [step_metrics(side) for side in (plain, tuned)]
        spreads = [side["step_time_spread"] for side in times]
        gain = ratio(plain, tuned)
        assert gain is not None
        assert spreads[0] is not None
        assert spreads[1] is not None
        faults = [
            float(np.nanmedian([run.ranks[0].series["page_faults"] for run in s])) for s in (plain, tuned)
        ]
        table.add_row(
            case.name,
            *(show(side["step_time_s"], 1e3) for side in times),
            show(gain),
            *(f"{spread.median:.1%}" for spread in spreads if spread),
            f"{faults[0]:.0f} → {faults[1]:.0f}",
        )
        calmer = spreads[0].median / spreads[1].median
        numbers[case.name] = {
            "plain_step_time_s": getattr(times[0]["step_time_s"], "median", np.nan),
            "tuned_step_time_s": getattr(times[1]["step_time_s"], "median", np.nan),
            "gain": gain.median,
            "gain_low": gain.low,
            "gain_high": gain.high,
            "plain_spread": spreads[0].median,
            "tuned_spread": spreads[1].median,
            "spread_ratio": calmer,
            "rounds": rounds,
            "steps": case.steps,
        }
        holds &= gain.median >= case.min_gain and (case.world == 1 or calmer >= MIN_CALMER)
    Console(width=160).print(table)
    print(f"claim (gain >= 1.3 and 2.0, spread of DDP / {MIN_CALMER:g}): {'holds' if holds else 'IS FALSE'}")
    write_result("placement", numbers)
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
