"""Keeps what a benchmark measured, with the machine, the versions and the command that gives it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from paceline.machine import describe_machine

RESULTS = Path(__file__).parent / "results"


def write_result(name: str, numbers: dict[str, Any]) -> Path:
    """Write benchmarks/results/<name>.json."""
    machine = describe_machine()
    result = {
        "command": " ".join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            key: machine[key] for key in sorted(machine) if isinstance(machine[key], str | int | float)
        },
        "numbers": numbers,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {path}")
    return path
