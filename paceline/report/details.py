"""What `show` adds to the table: warm-up, the phases of a step, memory by category, tracebacks.

In: the rows and runs of a study. Out: text through a rich console. Exercise: `paceline show STUDY`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from paceline.analyse.memory import CATEGORIES
from paceline.analyse.steps import of_kind
from paceline.quantity import format_duration
from paceline.record import WARMUP, Row, RunRecord
from paceline.report.labels import Labels
from paceline.report.terminal import NOT_KNOWN, make_table, show_number, unit_of

# Heading and metric.
PHASES = tuple((name, f"{name}_s") for name in ("data", "forward", "backward", "optimizer", "other"))
SHORT = {
    "parameters": "params",
    "gradients": "grads",
    "optimizer": "optim.",
    "activations": "activ.",
    "communication": "comm.",
}
MEMORY = (
    *((SHORT.get(category, category), f"memory_bytes.{category}") for category in CATEGORIES),
    ("all", "peak_memory_bytes"),
    ("resident", "resident_peak_bytes"),
    ("device", "device_peak_bytes"),
)
TIMES = (
    ("rank 0's step", "rank0_step_time_s"),
    ("steps vary", "step_time_spread"),
    ("launches vary", "launch_spread"),
    ("throughput", "throughput_samples_s"),
    ("CPU", "cpu_share"),
    ("disturbed", "disturbed_steps"),
)
COMMUNICATION = (
    ("collectives", "collective_calls"),
    ("payload", "collective_bytes"),
    ("busy", "comm_busy_s"),
    ("waiting", "comm_wait_s"),
    ("bus bandwidth", "bus_bandwidth_bytes_s"),
)


def print_metrics(
    title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Row], console: Console
) -> None:
    """Medians alone, one column per metric that any row knows."""
    shown = [(heading, name) for heading, name in columns if any(name in row.metrics for row in rows)]
    units = {name: unit_of([name], rows) for _, name in shown}
    cells = {name: lambda value, unit=units[name]: show_number(value, unit) for _, name in shown}
    print_table(
        title, [(f"{heading}\n{units[name].name}", name) for heading, name in shown], cells, rows, console
    )


def print_parts(
    title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Row], console: Console
) -> None:
    """Parts of one whole: one unit and one number of decimals, and no column that is zero throughout."""
    shown = [
        (heading, name)
        for heading, name in columns
        if any(name in row.metrics and row.metrics[name].median for row in rows)
    ]
    if not shown:
        return
    unit = unit_of([name for _, name in shown], rows)
    largest = max(row.metrics[name].median for row in rows for _, name in shown if name in row.metrics)
    decimals = 1 if largest / unit.size >= 10 else 2
    cells = {name: lambda value: f"{value / unit.size:.{decimals}f}" for _, name in shown}
    print_table(f"{title}\n{unit.name}", shown, cells, rows, console)


def print_table(
    title: str,
    columns: Sequence[tuple[str, str]],
    cells: Mapping[str, Callable[[float], str]],
    rows: Sequence[Row],
    console: Console,
) -> None:
    if not columns:
        return
    labels = Labels(rows)
    table = make_table()
    table.add_column(title, style="bold", overflow="fold")
    for heading, _ in columns:
        table.add_column(heading, justify="right", overflow="fold")
    for row in rows:
        if row.metrics:
            values = (
                cells[name](row.metrics[name].median) if name in row.metrics else NOT_KNOWN
                for _, name in columns
            )
            table.add_row(escape(labels.name(row)), *values)
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
    print_parts("phases of a step", PHASES, rows, console)
    print_metrics("steps", TIMES, rows, console)
    print_metrics("communication", COMMUNICATION, rows, console)
    print_parts("memory at peak", MEMORY, rows, console)


def print_tracebacks(runs: Sequence[RunRecord], console: Console) -> None:
    labels = Labels(runs)
    for run in runs:
        if run.traceback:
            console.rule(Text(f"{labels.name(run)}, round {run.round}"), align="left")
            console.print(Text(run.traceback), soft_wrap=True)
