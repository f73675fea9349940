"""This machine, described: what ranks can use, and what will limit a measurement here.

In: /proc, /sys, the process's affinity and cgroups. Out: a plain dict that is stored with every run.
torch is asked about accelerators in a process of its own, and only where a device node hints at one.

    python -m paceline.machine
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.darwin import FAST_CORES, MEMORY_BYTES, MODEL, PHYSICAL_CORES, VIRTUAL, ask_sysctl

CPUS = Path("/sys/devices/system/cpu")
# ISA extensions that decide how fast a matmul is, as /proc/cpuinfo (x86, ARM) names them.
ISA_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "bf16", "sve", "asimd")
# Any of these may be an accelerator that torch can use; without them its import can be saved.
DEVICE_NODES = ("nvidiactl", "kfd", "dri", "accel", "habanalabs", "davinci0")
ASK_TORCH = """
import json, torch, torch.distributed as dist
kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
devices = []
module = torch.get_device_module(kind) if kind else None
for index in range(torch.accelerator.device_count() if kind else 0):
    seen = module.get_device_properties(index) if hasattr(module, "get_device_properties") else None
    where = [getattr(seen, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    devices.append({"name": getattr(seen, "name", kind.type),
        "memory_bytes": getattr(seen, "total_memory", None),
        "pci": "%04x:%02x:%02x.0" % tuple(where) if None not in where else None})
backend = dist.get_default_backend_for_device(kind) if kind and dist.is_available() else "gloo"
print(json.dumps({"kind": kind.type if kind else None, "backend": backend, "devices": devices}))
"""


@dataclass(frozen=True)
class Cpu:
    """One logical CPU and where it sits."""

    cpu: int
    core: tuple[int, int]  # package, core in it
    node: int  # NUMA
    thread: int  # 0 for the first logical CPU of its core, 1 for the SMT sibling


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def parse_cpu_list(text: str) -> list[int]:
    """`0-2,8` → [0, 1, 2, 8]."""
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def list_cpus() -> list[Cpu]:
    """The CPUs that this process may run on, in the order in which ranks should get them:
    one per physical core first, neighbours together, SMT siblings last."""
    if not hasattr(os, "sched_getaffinity"):
        num_cpus = os.cpu_count() or 1
        num_cores = int(ask_sysctl().get(PHYSICAL_CORES, num_cpus))
        return [Cpu(cpu, (0, cpu % num_cores), 0, cpu // num_cores) for cpu in range(num_cpus)]
    nodes = {
        cpu: int(path.name.removeprefix("node"))
        for path in Path("/sys/devices/system/node").glob("node[0-9]*")
        for cpu in parse_cpu_list(_read(path / "cpulist"))
    }
    seen: dict[tuple[int, int], int] = {}
    cpus = []
    for cpu in sorted(os.sched_getaffinity(0)):
        topology = CPUS / f"cpu{cpu}" / "topology"
        core = (int(_read(topology / "physical_package_id") or 0), int(_read(topology / "core_id") or cpu))
        thread = seen.get(core, 0)
        seen[core] = thread + 1
        cpus.append(Cpu(cpu, core, nodes.get(cpu, 0), thread))
    return sorted(cpus, key=lambda c: (c.thread, c.node, c.core, c.cpu))


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """This process's cgroup of a controller and all above it, version 1 and 2, as far as they can be seen."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        if names == "" or controller in names.split(","):
            root = Path("/sys/fs/cgroup") / (controller if names else "")
            here = root / path.lstrip("/")
            yield here
            yield from (folder for folder in here.parents if folder.is_relative_to(root))


def cpu_quota() -> float | None:
    """The tightest cgroup limit in cores, None without one."""
    quotas = []
    for folder in _cgroup_folders("cpu"):
        limit, _, period = _read(folder / "cpu.max").partition(" ")
        limit = limit or _read(folder / "cpu.cfs_quota_us")
        period = period or _read(folder / "cpu.cfs_period_us")
        if limit not in ("", "max", "-1") and period:
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def memory_limit() -> int | None:
    limits = []
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            value = _read(folder / name)
            # Version 1 writes "no limit" as a number near 2**63.
            if value.isdigit() and int(value) < 2**60:
                limits.append(int(value))
    return min(limits, default=None)


def usable_cores() -> list[int]:
    """One logical CPU per physical core that ranks can really use: affinity and cgroup quota both count."""
    cores = [cpu.cpu for cpu in list_cpus() if cpu.thread == 0]
    quota = cpu_quota()
    return cores if quota is None else cores[: max(1, int(quota))]


def count_oom_kills() -> int:
    """How often the kernel has killed for memory since boot, in any cgroup."""
    found = re.search(r"^oom_kill (\d+)", _read(Path("/proc/vmstat")), re.MULTILINE)
    return int(found[1]) if found else 0


def measure_busy_cores(for_s: float = 0.3) -> float:
    """How many cores' worth others use now: everything that is busy while this process sleeps."""

    def read_ticks() -> tuple[int, int]:
        fields = [int(n) for n in _read(Path("/proc/stat")).partition("\n")[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    if not Path("/proc/stat").exists():
        return os.getloadavg()[0]
    total, idle = read_ticks()
    time.sleep(for_s)
    total_after, idle_after = read_ticks()
    passed = total_after - total
    return (os.cpu_count() or 1) * (1 - (idle_after - idle) / passed) if passed else 0.0


def find_allocator() -> str:
    """The allocator that this process and, by the same environment, its ranks use."""
    maps = _read(Path("/proc/self/maps"))
    preloaded = re.search(r"/lib(jemalloc|tcmalloc|mimalloc)[^/\n]*$", maps, re.MULTILINE)
    return preloaded[1] if preloaded else platform.libc_ver()[0] or f"of {platform.system()}"


@functools.cache
def describe_accelerators() -> dict[str, Any]:
    """Kind, default backend and devices, as torch sees them."""
    if sys.platform == "linux" and not any(Path("/dev", name).exists() for name in DEVICE_NODES):
        return {"kind": None, "backend": "gloo", "devices": []}
    asked = subprocess.run([sys.executable, "-c", ASK_TORCH], capture_output=True, text=True)
    if asked.returncode:
        return {"kind": None, "backend": "gloo", "devices": [], "error": asked.stderr.strip()[-300:]}
    found: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    for device in found["devices"]:
        node = _read(Path("/sys/bus/pci/devices") / str(device["pci"]) / "numa_node")
        device["numa_node"] = int(node) if node.isdigit() else None
    return found


def describe_links() -> str | None:
    """How accelerators are joined, in the words of the vendor's tool."""
    if not shutil.which("nvidia-smi"):
        return None
    asked = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True)
    return asked.stdout.strip() or None


def _describe_processor() -> dict[str, Any]:
    info = _read(Path("/proc/cpuinfo"))
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.MULTILINE)
    present = flags[1].split() if flags else []
    return {
        "model": model[1] if model else ask_sysctl().get(MODEL) or platform.processor() or platform.machine(),
        "isa": [flag for flag in ISA_FLAGS if flag in present],
        "governor": _read(CPUS / "cpu0/cpufreq/scaling_governor") or None,
        "turbo": {"0": True, "1": False}.get(_read(CPUS / "intel_pstate/no_turbo")),
        "virtual": "hypervisor" in present or ask_sysctl().get(VIRTUAL) == "1",
    }


@functools.cache
def describe_machine() -> dict[str, Any]:
    """Everything about this machine that a measurement may depend on; the same dict all through a process."""
    cpus = list_cpus()
    memory = re.search(r"MemTotal:\s+(\d+) kB", _read(Path("/proc/meminfo")))
    return {
        "cores": len(usable_cores()),
        "physical_cores": len({cpu.core for cpu in cpus}),
        "logical_cpus": len(cpus),
        "packages": len({cpu.core[0] for cpu in cpus}),
        "numa_nodes": len({cpu.node for cpu in cpus}),
        "cpu_quota": cpu_quota(),
        "cpus": [asdict(cpu) for cpu in cpus],
        "processor": _describe_processor(),
        "fast_cores": int(ask_sysctl().get(FAST_CORES, len(usable_cores()))),
        "memory_bytes": int(memory[1]) * 1024 if memory else int(ask_sysctl().get(MEMORY_BYTES, 0)) or None,
        "memory_limit_bytes": memory_limit(),
        "accelerators": describe_accelerators(),
        "links": describe_links(),
        "allocator": find_allocator(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


def identify_machine(machine: Mapping[str, Any]) -> str:
    """The same for all descriptions of one machine, and of another one hardly: times compare within it."""
    devices = (machine.get("accelerators") or {}).get("devices") or []
    memory_gib = round((machine.get("memory_bytes") or 0) / (1 << 30))
    parts = [(machine.get("processor") or {}).get("model"), machine.get("physical_cores"), memory_gib]
    return " ".join(map(str, [*parts, *(device.get("name") for device in devices)]))


def limits(machine: dict[str, Any], busy_cores: float = 0.0) -> list[str]:
    """What will limit a measurement here, each with what to do about it; `busy_cores` is others' load now."""
    found = []
    cores, processor = machine["cores"], machine["processor"]
    devices = machine["accelerators"]["devices"]
    if not devices:
        found.append("No accelerator: rows show how parallel training works, not how fast a GPU would be.")
    if cores == 1:
        found.append("One core: worlds of two ranks and more take turns on it, no speedup can show.")
    elif not devices:
        found.append(f"{cores} cores: worlds of more than {cores} ranks are oversubscribed.")
    if machine["cpu_quota"] is not None and machine["cpu_quota"] < machine["physical_cores"]:
        found.append(
            f"A cgroup allows {machine['cpu_quota']:.3g} cores' worth of time: "
            "a burst beyond it is stopped for up to 100 ms, in the middle of a step."
        )
    if machine["logical_cpus"] > machine["physical_cores"]:
        found.append(
            f"{machine['logical_cpus']} logical CPUs are {machine['physical_cores']} cores: "
            "siblings share one, ranks get one each of the latter."
        )
    if machine["fast_cores"] < cores:
        found.append(
            f"{machine['fast_cores']} of the {cores} cores are fast: a world of more ranks than those waits "
            "for its slow ones."
        )
    if processor["governor"] not in (None, "performance"):
        found.append(f"The governor is {processor['governor']!r}: clocks follow the load; use 'performance'.")
    if processor["turbo"]:
        found.append("Turbo is on: one busy core is clocked higher than many, which flatters one rank.")
    if processor["virtual"]:
        found.append("A virtual machine: neighbours can take time; steal is measured with every step.")
    if busy_cores > 0.1:
        found.append(
            f"Others use {busy_cores:.1f} cores now: wait for a quiet machine, or measure more rounds."
        )
    memory = min(filter(None, (machine["memory_bytes"], machine["memory_limit_bytes"])), default=None)
    if memory is not None and memory < 4 << 30:
        found.append(
            f"{memory / (1 << 30):.1f} GiB of memory: every rank needs about 0.4 GiB for torch alone."
        )
    if machine["allocator"] not in ("glibc", "jemalloc"):
        found.append(f"Allocator {machine['allocator']}: no setting is known that keeps the pages of a step.")
    if machine["system"] != "Linux":
        found.append(f"{machine['system']}: ranks cannot be pinned to cores here, steps will be noisier.")
    return found


if __name__ == "__main__":
    print(json.dumps(describe_machine(), indent=2))
    print("\n".join(limits(describe_machine(), measure_busy_cores())))
