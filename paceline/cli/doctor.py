"""`paceline doctor`: this machine, what will limit a measurement on it, and the settings that help.

In: nothing. Out: a description, or lines for a shell, or JSON. Exercise: `paceline doctor`.
"""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    emit_env: Annotated[
        bool,
        typer.Option("--emit-env", help="Print the settings of --placement tuned for your own torchrun."),
    ] = False,
    cores_per_rank: Annotated[
        int, typer.Option(min=1, help="Threads for each rank in what --emit-env prints.")
    ] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the description as JSON.")] = False,
) -> None:
    """Describe this machine and what will limit a measurement here."""
    if emit_env:
        from paceline.placement import emit_env as list_settings

        print(list_settings(cores_per_rank), end="")
        return

    from paceline.machine import describe_machine, limits, measure_busy_cores

    machine = describe_machine()
    found = limits(machine, measure_busy_cores())
    if json:
        print(json_format.dumps({**machine, "limits": found}, indent=2))
        return
    print_machine(machine, found)


def print_machine(machine: dict[str, Any], limits: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in describe_lines(machine):
        table.add_row(name, Text(text))
    console.print(table)
    console.print("\n[bold]What limits a measurement here[/bold]")
    bullets = Table.grid(padding=(0, 1))
    for limit in limits:
        bullets.add_row(" ·", Text(limit))
    console.print(bullets if limits else "  nothing known")


def describe_lines(machine: dict[str, Any]) -> list[tuple[str, str]]:
    from paceline.quantity import format_bytes

    processor, accelerators = machine["processor"], machine["accelerators"]
    quota = f", cgroup quota {machine['cpu_quota']:g}" if machine["cpu_quota"] is not None else ""
    devices = [
        f"{device['name']}" + (f" ({format_bytes(device['memory_bytes'])})" if device["memory_bytes"] else "")
        for device in accelerators["devices"]
    ]
    memory = format_bytes(machine["memory_bytes"]) if machine["memory_bytes"] else "unknown"
    if machine["memory_limit_bytes"]:
        memory += f", cgroup limit {format_bytes(machine['memory_limit_bytes'])}"
    lines = [
        ("processor", f"{processor['model']} ({', '.join(processor['isa']) or 'no vector extension known'})"),
        (
            "cores",
            f"{machine['cores']} usable by ranks: {machine['physical_cores']} physical, "
            f"{machine['logical_cpus']} logical, {machine['numa_nodes']} NUMA node(s){quota}",
        ),
        ("memory", memory),
        ("accelerators", ", ".join(devices) or accelerators.get("error") or "none"),
        ("backend", accelerators["backend"]),
        ("torch", f"{machine['torch']}, Python {machine['python']}"),
        ("allocator", machine["allocator"]),
        ("system", f"{machine['system']} {machine['kernel']}"),
    ]
    return lines + ([("links", machine["links"])] if machine["links"] else [])
