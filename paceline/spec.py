"""The two files that start a world: what its ranks must know, and what its torchrun must know.

In: a configuration, its options, the cores for each rank. Out: spec.json and agent.json in the run's folder.
Exercise: `pytest tests/unit/test_spec.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.placement import ALLOCATOR, NO_ACCELERATORS, place_here, tuned_environment
from paceline.study import Config, Options


def meeting_id(config: Config, options: Options, round: int) -> str:
    """Of one run alone: nodes that are about to do different ones must not meet, and measure a mixture."""
    content = json.dumps([asdict(config), round])
    return f"{options.rdzv_id or 'paceline'}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def build_arguments(
    config: Config, options: Options, run_dir: Path, probe: bool, round: int = 0
) -> list[str]:
    """torchrun's command line: standalone on one machine, a rendezvous on several."""
    if options.nnodes == "1" and options.rdzv_endpoint is None:
        where = ["--standalone"]
    else:
        given = {
            "--rdzv-endpoint": options.rdzv_endpoint,
            "--rdzv-id": meeting_id(config, options, round),
            "--rdzv-conf": options.rdzv_conf,
            "--local-addr": options.local_addr,
            "--node-rank": options.node_rank,
        }
        where = ["--nnodes", options.nnodes, "--rdzv-backend", "c10d"]
        for name, value in given.items():
            where += [name, str(value)] if value is not None else []
    logs = ["--max-restarts", "0", "--log-dir", str(run_dir / "logs"), "--redirects", "3"]
    # Behind "--", or torchrun takes a script's --log for one of its own options, abbreviated.
    rank = ["-m", "--", "paceline.worker"] if probe else ["--"]
    return [*where, "--nproc-per-node", str(config.world), *logs, *rank, config.program, *config.arguments]


def write_specs(
    config: Config, options: Options, cores_per_rank: int, run_dir: Path, probe: bool, round: int = 0
) -> dict[str, Any]:
    """spec.json for the ranks, agent.json for their torchrun; the latter is returned."""
    tuned = config.placement == "tuned"
    added = tuned_environment(cores_per_rank) if tuned else {}
    if tuned:
        # A user's own allocator settings stay; threads follow the cores that a rank gets.
        added = {k: v for k, v in added.items() if k not in ALLOCATOR or k not in os.environ}
    # torchrun itself would set this one for several ranks, so the script may see it then.
    own = {"OMP_NUM_THREADS"} if config.world > 1 else set()
    virtual = {
        "devices": options.virtual_devices,
        "memory": options.virtual_memory,
        "link": options.virtual_link,
        "as_cuda": options.virtual_as_cuda,
    }
    spec = {
        "version": 1,
        "out": str(run_dir),
        "steps": options.steps,
        "warmup": options.warmup,
        "sampled": options.sampled,
        "to_end": options.to_end,
        "step_marker": options.step_marker,
        "placement": config.placement,
        "cores": place_here(config.world, cores_per_rank, accelerated=not options.hides_accelerators)
        if tuned
        else [],
        "added_environment": sorted(added.keys() - own - os.environ.keys()),
        "virtual": virtual if options.virtual_devices else None,
        "nnodes": int(options.nnodes.partition(":")[0]),
    }
    (run_dir / "spec.json").write_text(json.dumps(spec))
    # The script keeps these: torch may ask for devices at any later time.
    environment = {**os.environ, **added, **(NO_ACCELERATORS if options.hides_accelerators else {})}
    if probe:
        environment["PACELINE_SPEC"] = str(run_dir / "spec.json")
    agent = {
        "arguments": build_arguments(config, options, run_dir, probe, round),
        "environment": environment,
        "directory": os.getcwd(),
        "out": str(run_dir),
    }
    (run_dir / "agent.json").write_text(json.dumps(agent))
    return agent
