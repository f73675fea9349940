"""What makes two runs the same measurement, so that the second need not be made.

In: a configuration, its options, and where it runs. Out: a key. Exercise: `pytest tests/unit/test_study.py`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

from paceline.nearest import find_program
from paceline.study import Config, Options

# What may change without a reason to measure again: patience, and where the nodes meet.
DECIDES_NOTHING = ("timeout_s", "node_rank", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "local_addr")


def hash_script(program: str) -> str:
    """The script's own content; modules that it imports are not followed."""
    return hashlib.sha256(find_program(program).read_bytes()).hexdigest()


def run_key(
    config: Config,
    options: Options,
    round: int,
    script_hash: str,
    *,
    cores_per_rank: int = 0,
    torch_version: str = "",
    machine: str = "",
) -> str:
    """A stable name for one run: two runs with the same key would measure the same thing."""
    decisive = {
        name: value for name, value in dataclasses.asdict(options).items() if name not in DECIDES_NOTHING
    }
    content = [
        dataclasses.asdict(config),
        decisive,
        round,
        script_hash,
        cores_per_rank,
        torch_version,
        machine,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
