"""What one rank of a checked script may use, so that it cannot bring the machine down.

Enters: the number of ranks. Leaves: the kernel's limits on this process and what it starts.

    python -c "from paceline.check.watch.limits import memory_limit_bytes; print(memory_limit_bytes(2))"
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

LARGEST_FILE_BYTES = 256 << 20  # printed output goes to a file, too
LEAST_MEMORY_BYTES = 4 << 30
SHARE_OF_MEMORY = 0.8  # of what is free, for all ranks together


def memory_limit_bytes(num_ranks: int) -> int:
    return max(LEAST_MEMORY_BYTES, int(available_memory_bytes() * SHARE_OF_MEMORY / num_ranks))


def available_memory_bytes() -> int:
    """What can be had without swapping, or all there is where the system does not tell."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def limit_this_process(num_ranks: int, has_accelerator: bool) -> None:
    _lower(resource.RLIMIT_FSIZE, LARGEST_FILE_BYTES)
    _lower(resource.RLIMIT_CORE, 0)
    if not has_accelerator:  # whose driver maps the devices' memory into the process
        _lower(resource.RLIMIT_DATA, memory_limit_bytes(num_ranks))


def _lower(which: int, limit: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(which, (limit, hard))
