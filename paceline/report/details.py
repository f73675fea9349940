"""What `show` adds to the table: warm-up, the phases of a step, memory by category, tracebacks.

In: the rows and runs of a study. Out: text through a rich console. Exercise: `paceline show STUDY`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from paceline.analyse.memory import CATEGORIES
from paceline.analyse.steps import of_kind
from paceline.quantity import format_duration
from paceline.record import WARMUP, Row, RunRecord
from paceline.report.labels import Labels
from paceline.report.terminal import NOT_KNOWN, format_metric

PHASES = ("data_s", "forward_s", "backward_s", "optimizer_s", "other_s")
TIMES = ("rank0_step_time_s", "step_time_spread", "launch_spread", "throughput_samples_s", "comm_busy_s")
COUNTS = ("collective_calls", "collective_bytes", "bus_bandwidth_bytes_s", "cpu_share", "disturbed_steps")
MEMORY = ("resident_peak_bytes", "device_peak_bytes", *(f"memory_bytes.{name}" for name in CATEGORIES))


def heading_of(metric: str) -> str:
    """`memory_bytes.gradients` → `gradients`; `forward_s` → `forward`."""
    name = metric.rpartition(".")[2].removeprefix("throughput_")
    for unit in ("_bytes_s", "_bytes", "_s"):
        name = name.removesuffix(unit)
    return {"samples": "samples/s"}.get(name, name.replace("_", " "))


def print_metrics(title: str, names: Sequence[str], rows: Sequence[Row], console: Console) -> None:
    """Medians alone, one column per metric that any row knows."""
    known = [name for name in names if any(name in row.metrics for row in rows)]
    if not known:
        return
    labels = Labels(rows)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column(title, style="bold", overflow="fold")
    for name in known:
        table.add_column(heading_of(name), justify="right", overflow="fold")
    for row in rows:
        if row.metrics:
            cells = (
                format_metric(name, row.metrics[name].median, row.metrics[name].unit)
                if name in row.metrics
                else NOT_KNOWN
                for name in known
            )
            table.add_row(escape(labels.name(row)), *cells)
    console.print(table)
    console.print()


def print_warmup(runs: Sequence[RunRecord], console: Console) -> None:
    """The first steps of the first good run of each configuration: what would spoil a mean."""
    labels = Labels(runs)
    console.print(Text("warm-up steps", style="bold"))
    shown: set[str] = set()
    for run in runs:
        name = labels.name(run)
        times = of_kind(run, "step_time_s", WARMUP)
        if run.status == "ok" and times.size and name not in shown:
            shown.add(name)
            known = times[:, ~np.isnan(times).any(axis=0)].max(axis=0)
            console.print(Text(f"  {name}: {', '.join(format_duration(seconds) for seconds in known)}"))
    console.print()


def print_details(rows: Sequence[Row], runs: Sequence[RunRecord], console: Console) -> None:
    print_warmup(runs, console)
    print_metrics("phases of a step", PHASES, rows, console)
    print_metrics("times", TIMES, rows, console)
    print_metrics("load", COUNTS, rows, console)
    print_metrics("memory at the peak", MEMORY, rows, console)


def print_tracebacks(runs: Sequence[RunRecord], console: Console) -> None:
    labels = Labels(runs)
    for run in runs:
        if run.traceback:
            console.rule(Text(f"{labels.name(run)}, round {run.round}"), align="left")
            console.print(Text(run.traceback), soft_wrap=True)
