"""The machine's description: topology, cgroups of both versions, and what it says about a measurement."""

import copy
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from paceline import darwin, machine
from paceline.machine import describe_machine, limits, list_cpus, parse_cpu_list, usable_cores


def write_topology(root: Path, cores: list[tuple[int, int]]) -> None:
    for cpu, (package, core) in enumerate(cores):
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")


def test_cpu_lists_as_the_kernel_writes_them():
    assert parse_cpu_list("0-2,8,10-11") == [0, 1, 2, 8, 10, 11]
    assert parse_cpu_list("") == []


def test_siblings_come_after_all_physical_cores(tmp_path, monkeypatch):
    write_topology(tmp_path, [(0, 0), (0, 0), (0, 1), (0, 1)])  # siblings are neighbours, as on many laptops
    monkeypatch.setattr(machine, "CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert [cpu.cpu for cpu in list_cpus()] == [0, 2, 1, 3]
    monkeypatch.setattr(machine, "cpu_quota", lambda: None)
    assert usable_cores() == [0, 2]


def test_affinity_and_quota_both_count(tmp_path, monkeypatch):
    write_topology(tmp_path, [(0, core) for core in range(8)])
    monkeypatch.setattr(machine, "CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5, 7})
    monkeypatch.setattr(machine, "cpu_quota", lambda: 2.5)
    assert usable_cores() == [1, 3]
    monkeypatch.setattr(machine, "cpu_quota", lambda: 0.5)
    assert usable_cores() == [1]


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, 2.0),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_quota_of_both_cgroup_versions(tmp_path, monkeypatch, files, quota):
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "_cgroup_folders", lambda controller: iter([tmp_path]))
    assert machine.cpu_quota() == quota


def test_memory_without_a_limit_is_no_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_cgroup_folders", lambda controller: iter([tmp_path]))
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine.memory_limit() is None
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert machine.memory_limit() == 1 << 30


SYSCTL = """machdep.cpu.brand_string: Apple M2
hw.memsize: 17179869184
hw.physicalcpu: 8
hw.perflevel0.physicalcpu: 4
kern.hv_vmm_present: 0
"""


def test_macos_is_asked_in_its_own_way(monkeypatch, request):
    caches = (darwin.ask_sysctl, describe_machine)
    for cached in caches:
        cached.cache_clear()
        request.addfinalizer(cached.cache_clear)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(darwin.subprocess, "run", lambda command, **_: CompletedProcess(command, 1, SYSCTL))
    monkeypatch.setattr(machine, "describe_accelerators", lambda: {"kind": None, "devices": []})
    monkeypatch.setattr(machine, "_read", lambda path: "")
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    here = describe_machine()
    assert (here["cores"], here["physical_cores"], here["logical_cpus"]) == (8, 8, 16)
    assert here["memory_bytes"] == 16 << 30
    assert here["processor"]["model"] == "Apple M2"
    assert any("4 of the 8 cores are fast" in line for line in limits(here))


def test_this_machine_is_described():
    here = describe_machine()
    assert here["cores"] == len(usable_cores()) >= 1
    assert here["cores"] <= here["physical_cores"] <= here["logical_cpus"]
    assert here["memory_bytes"] > 1 << 28
    assert here["torch"].startswith("2.")
    assert machine.count_oom_kills() >= 0
    assert 0 <= machine.measure_busy_cores(0.05) <= os.cpu_count()


@pytest.mark.parametrize(
    ("changes", "busy", "said"),
    [
        ({"cores": 1}, 0.0, "One core"),
        ({"cpu_quota": 0.5}, 0.0, "cgroup allows 0.5 cores"),
        ({"logical_cpus": 99}, 0.0, "99 logical CPUs"),
        ({"cores": 8, "fast_cores": 4}, 0.0, "4 of the 8 cores are fast"),
        ({"processor": {"governor": "powersave", "turbo": True, "virtual": False}}, 0.0, "'powersave'"),
        ({"processor": {"governor": None, "turbo": True, "virtual": False}}, 0.0, "Turbo"),
        ({}, 1.5, "Others use 1.5 cores"),
        ({"memory_limit_bytes": 1 << 30}, 0.0, "1.0 GiB"),
        ({"accelerators": {"kind": None, "devices": []}}, 0.0, "No accelerator"),
        ({"allocator": "tcmalloc"}, 0.0, "tcmalloc"),
    ],
)
def test_what_limits_a_measurement_is_said(changes, busy, said):
    here = {**copy.deepcopy(describe_machine()), **changes}
    assert any(said in line for line in limits(here, busy))


def test_a_good_machine_has_no_limits():
    good = {
        "cores": 64,
        "physical_cores": 64,
        "logical_cpus": 64,
        "fast_cores": 64,
        "cpu_quota": None,
        "processor": {"governor": "performance", "turbo": False, "virtual": False},
        "memory_bytes": 1 << 38,
        "memory_limit_bytes": None,
        "accelerators": {"kind": "cuda", "devices": [{"name": "X"}]},
        "allocator": "jemalloc",
        "system": "Linux",
    }
    assert limits(good) == []
