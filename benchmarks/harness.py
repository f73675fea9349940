"""What measuring costs beside training: the wall time of a sweep, and the import of the worker.

The same script is also launched by torchrun alone, for as many steps, in turns with the sweep: whoever
measures by hand pays that too. Claims: `import paceline.worker` costs less than 50 ms over torch; a sweep
takes at most 10 % more wall time than torchrun alone.

    python benchmarks/harness.py --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record_result import write_result
from rich.console import Console
from rich.table import Table

from paceline.launch import Progress
from paceline.measure import Plan, measure
from paceline.record import RunRecord
from paceline.store import Store
from paceline.study import Config, Options, Study

SCRIPT = str(Path(__file__).parent / "linear_layers.py")
OPTIONS = Options(steps=60, warmup=5, sampled=4)
NUM_STEPS = OPTIONS.steps + OPTIONS.warmup + OPTIONS.sampled
WORLDS = (1, 2)
MAX_IMPORT_S = 0.050
MAX_EXCESS = 0.10
TIME_IMPORT = """
import time, torch
began = time.perf_counter()
import paceline.worker, paceline.probe.attach
print(time.perf_counter() - began)
"""


class Silent:
    """A reporter that says nothing."""

    def begin(self, plan: Plan, remaining_s: float | None) -> None: ...
    def begin_run(self, config: Config, round: int, run_dir: Path) -> None: ...
    def show_progress(self, config: Config, round: int, progress: Progress) -> None: ...
    def end_run(
        self, config: Config, record: RunRecord, run_dir: Path, remaining_s: float | None
    ) -> None: ...
    def say(self, text: str) -> None: ...


def time_import(times: int) -> float:
    """Seconds that the worker and its probe take to import once torch is there."""
    command = [sys.executable, "-c", TIME_IMPORT]
    return statistics.median(
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(times)
    )


def time_sweep(rounds: int) -> tuple[float, list[RunRecord]]:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.db") as store:
        study = Study(
            "harness", [Config(SCRIPT, (), world, "tuned") for world in WORLDS], rounds, options=OPTIONS
        )
        began = time.monotonic()
        runs = measure(study, store, reporter=Silent())
        return time.monotonic() - began, runs


def time_torchrun(rounds: int) -> float:
    """Wall seconds of the same runs by hand."""
    began = time.monotonic()
    for _ in range(rounds):
        for world in WORLDS:
            torchrun = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={world}",
            ]
            # Without the script's own teardown this may abort: gloo does, now and then.
            subprocess.run([*torchrun, SCRIPT, "--steps", str(NUM_STEPS)], capture_output=True)
    return time.monotonic() - began


def split_wall(run: RunRecord) -> tuple[float, float, float]:
    """Seconds until the script has imported torch, from there to its last step, and after it."""
    # The first step begins when torch is there: the probe comes with it.
    script_began = min(rank.series["wall_s"][0] - rank.series["step_time_s"][0] for rank in run.ranks)
    last_step = max(rank.series["wall_s"][-1] for rank in run.ranks)
    return script_began - run.started, last_step - script_began, run.started + run.wall_s - last_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    worker_s = time_import(2 * rounds + 1)
    sweep_s = by_hand_s = 0.0
    runs: list[RunRecord] = []
    for _ in range(2):  # in turns: half a sweep, then the same by hand
        seconds, half = time_sweep(rounds)
        sweep_s += seconds
        runs += half
        by_hand_s += time_torchrun(rounds)
    before, training, after = (sum(parts) for parts in zip(*map(split_wall, runs), strict=True))
    numbers = {
        "import_worker_s": worker_s,
        "num_runs": len(runs),
        "sweep_s": sweep_s,
        "starting_s": before,
        "training_s": training,
        "ending_s": after,
        "between_runs_s": sweep_s - before - training - after,
        "outside_training_share": 1 - training / sweep_s,
        "torchrun_alone_s": by_hand_s,
        "excess_over_torchrun": sweep_s / by_hand_s - 1,
    }
    table = Table("", f"{len(runs)} runs, s", "share of the sweep")
    for label, name in (
        ("starting ranks, importing torch", "starting_s"),
        ("script until its last step", "training_s"),
        ("ending ranks, reading their files", "ending_s"),
        ("between runs: store, statistics", "between_runs_s"),
        ("the sweep", "sweep_s"),
        ("torchrun alone", "torchrun_alone_s"),
    ):
        table.add_row(label, f"{numbers[name]:.2f}", f"{numbers[name] / sweep_s:.1%}")
    Console().print(table)
    print(f"outside the ranks' own training: {numbers['outside_training_share']:.1%}")
    print(f"over torchrun alone: {numbers['excess_over_torchrun']:+.1%} (limit {MAX_EXCESS:+.0%})")
    print(f"import paceline.worker: {worker_s * 1e3:.0f} ms over torch (limit {MAX_IMPORT_S * 1e3:.0f})")
    write_result("harness", numbers)
    sys.exit(0 if worker_s < MAX_IMPORT_S and numbers["excess_over_torchrun"] <= MAX_EXCESS else 1)


if __name__ == "__main__":
    main()
