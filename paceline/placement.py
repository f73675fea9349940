"""Which cores a rank gets, how many threads it runs, and the allocator settings that go with them.

In: the CPUs that may be used, the ranks on this machine and the cores for each. Out: a list of cores per
rank and environment variables. On a CPU they are worth a factor, not per cents: see docs/placement.md.

    python -m paceline.placement
"""

from __future__ import annotations

import os
import sys
from typing import Any

from paceline.machine import Cpu, describe_accelerators, list_cpus, usable_cores

# glibc maps every large tensor anew and gives it back when it dies: a page fault for each 4 KiB, in every
# step. Never mapping, never trimming and growing by large pieces keeps the pages.
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": str(128 << 20),
}


def place_ranks(
    cpus: list[Cpu], local_world: int, cores_per_rank: int, near: list[int | None] | None = None
) -> list[list[int]]:
    """Cores by local rank: physical cores before SMT siblings, neighbours together, wrapping around where
    there are too few. `near` names the NUMA node of each rank's accelerator, as far as it is known."""
    placed: list[list[int]] = []
    taken: dict[int | None, int] = {}
    nodes = {cpu.node for cpu in cpus}
    for rank in range(local_world):
        node = near[rank % len(near)] if near else None
        node = node if node in nodes else None
        pool = [cpu.cpu for cpu in cpus if node is None or cpu.node == node]
        first = taken.get(node, 0)
        placed.append([pool[(first + i) % len(pool)] for i in range(min(cores_per_rank, len(pool)))])
        taken[node] = first + cores_per_rank
    return placed


def place_here(local_world: int, cores_per_rank: int, *, accelerated: bool = True) -> list[list[int]]:
    """`place_ranks` on this machine: within the cgroup's quota, each rank near its accelerator. Nothing
    where the system does not let a process choose its cores, as macOS does not."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cpus = list_cpus()
    usable = set(usable_cores())
    # A quota smaller than the affinity means that siblings are no reserve either.
    if len(usable) < sum(cpu.thread == 0 for cpu in cpus):
        cpus = [cpu for cpu in cpus if cpu.cpu in usable]
    devices: list[dict[str, Any]] = describe_accelerators()["devices"] if accelerated else []
    return place_ranks(cpus, local_world, cores_per_rank, [device["numa_node"] for device in devices])


def is_oversubscribed(local_world: int, cores_per_rank: int, *, accelerated: bool = True) -> bool:
    """Do ranks share cores, or accelerators where there are any?"""
    devices = describe_accelerators()["devices"] if accelerated else []
    return local_world > len(devices) if devices else local_world * cores_per_rank > len(usable_cores())


# What CUDA and ROCm read to learn which devices a process may see.
NO_ACCELERATORS = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}


def tuned_environment(cores_per_rank: int) -> dict[str, str]:
    """What a rank's process must find when it starts; MKL and oneDNN follow OpenMP, Accelerate does not."""
    threads = {"OMP_NUM_THREADS": str(cores_per_rank)}
    if sys.platform == "darwin":
        return {**threads, "VECLIB_MAXIMUM_THREADS": str(cores_per_rank)}
    return {**threads, **ALLOCATOR}


def emit_env(cores_per_rank: int) -> str:
    """The same for a user's own torchrun, as lines for a shell; as comments, what no variable can do."""
    settings = tuned_environment(cores_per_rank)
    exports = [f"export {name}={value}" for name, value in settings.items()]
    num_cores = len(usable_cores())
    ranks = max(1, num_cores // cores_per_rank)
    meant_for = (
        f"# ranks: {ranks} on {num_cores} cores, threads of each: {cores_per_rank}; see --cores-per-rank"
    )
    cores = place_here(ranks, cores_per_rank)
    if not cores:
        return "\n".join([meant_for, *exports, ""])
    by_hand = [
        "# What no variable can do: at the start of the script, before torch is imported,",
        f"#   import os; os.sched_setaffinity(0, {cores}[int(os.environ['LOCAL_RANK'])])",
        "# and after its first step, where ranks communicate by gloo,",
        "#   from paceline.probe.gloo_threads import lower_gloo_threads; lower_gloo_threads()",
    ]
    return "\n".join([meant_for, *exports, *by_hand, ""])


if __name__ == "__main__":
    print(emit_env(1), place_here(2, 1))
