"""Does a configuration fit into memory? The arithmetic is done before anything is started.

In: a configuration of the course's model (DEPTH layers of DIM × DIM) and the memory that there is. Out: None,
or the sum that is too large. Exercise: `pytest tests/unit/test_lab_fit.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from paceline.quantity import format_bytes
from paceline.report.labels import split_arguments
from paceline.study import Config

FLOAT_BYTES = 4
# What a process takes for Python and torch before it has a single tensor.
PROCESS_BYTES = 400 << 20
CONSTANTS = ("DIM", "DEPTH", "BATCH", "SAMPLES")


def refuse_too_large(config: Config, num_devices: int, memory_bytes: int, *, on_devices: bool) -> str | None:
    """The reason why a configuration is not started, None when it fits or its size cannot be known.

    `memory_bytes` is the machine's; with `on_devices` it is that of each accelerator.
    """
    constants = read_constants(Path(config.program)) | _given(config)
    if not {"DIM", "DEPTH", "BATCH"} <= set(constants):
        return None
    parts = estimate_rank_bytes(constants, synchronises=config.world > 1)
    model = " + ".join(f"{format_bytes(size)} of {name}" for name, size in parts.items() if size)
    if on_devices:
        # One process that spreads its layers over devices needs a share of it on each.
        share = num_devices // config.world
        needed = sum(parts.values()) // share
        where = f"each accelerator needs {model}" + (f", over {share} devices" if share > 1 else "")
        there = f"an accelerator here has {format_bytes(memory_bytes)}"
    else:
        needed = (sum(parts.values()) + PROCESS_BYTES) * config.world
        ranks = f"{config.world} ranks" if config.world > 1 else "1 process"
        where = f"{ranks} × ({model} + {format_bytes(PROCESS_BYTES)} for torch)"
        there = f"this machine has {format_bytes(memory_bytes)}"
    if needed <= memory_bytes:
        return None
    return f"not started: {where} = {format_bytes(needed)}, {there}"


def estimate_rank_bytes(constants: Mapping[str, int], *, synchronises: bool) -> dict[str, int]:
    """What a rank holds at the least when backward begins. SGD without momentum keeps no state."""
    dim, depth, batch = constants["DIM"], constants["DEPTH"], constants["BATCH"]
    parameters = depth * (dim * dim + dim) * FLOAT_BYTES
    return {
        "parameters": parameters,
        "gradients": parameters,
        "optimizer state": 0,
        "DDP's buckets": parameters if synchronises else 0,
        # Of each layer what goes into ReLU and what comes out.
        "activations": depth * 2 * batch * dim * FLOAT_BYTES,
        "data": constants.get("SAMPLES", 0) * dim * 2 * FLOAT_BYTES,
    }


def read_constants(program: Path) -> dict[str, int]:
    """DIM, DEPTH, BATCH and SAMPLES where a script sets them at its top; it is read, not run."""
    found = {}
    for node in ast.parse(program.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in CONSTANTS and type(node.value.value) is int:
                    found[target.id] = node.value.value
    return found


def _given(config: Config) -> dict[str, int]:
    """What the arguments say instead of the script's constants."""
    given = split_arguments(config.arguments)
    names = {name: name.lower().replace("_", "-") for name in CONSTANTS}
    return {name: int(given[flag]) for name, flag in names.items() if given.get(flag, "").isdecimal()}
