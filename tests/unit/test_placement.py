"""Cores by rank: physical cores first, neighbours together, near the accelerator, wrapping around."""

import os
import subprocess
import sys

from paceline import placement
from paceline.machine import Cpu
from paceline.placement import ALLOCATOR, emit_env, place_here, place_ranks, tuned_environment

# Two packages of two cores with two threads each, as machine.list_cpus orders them.
SMT = [
    Cpu(cpu=thread * 4 + package * 2 + core, core=(package, core), node=package, thread=thread)
    for thread in range(2)
    for package in range(2)
    for core in range(2)
]


def test_ranks_get_physical_cores_of_their_own():
    assert place_ranks(SMT, 4, 1) == [[0], [1], [2], [3]]
    assert place_ranks(SMT, 2, 2) == [[0, 1], [2, 3]]


def test_a_smaller_world_gets_no_more_cores_per_rank():
    assert place_ranks(SMT, 1, 2) == [[0, 1]]


def test_more_ranks_take_siblings_and_then_wrap_around():
    assert place_ranks(SMT, 6, 1)[4:] == [[4], [5]]
    assert place_ranks(SMT[:2], 3, 1) == [[0], [1], [0]]
    assert place_ranks(SMT[:2], 1, 8) == [[0, 1]]


def test_ranks_sit_near_their_accelerators():
    assert place_ranks(SMT, 2, 1, near=[1, 0]) == [[2], [0]]
    assert place_ranks(SMT, 4, 1, near=[1, 1, 0, 0]) == [[2], [3], [0], [1]]
    assert place_ranks(SMT, 2, 1, near=[None, 7]) == [[0], [1]]


def test_a_system_that_pins_nothing_is_not_asked_to(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    assert place_here(2, 1) == []


def test_macos_gets_threads_for_its_own_library_and_no_settings_of_another_allocator(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert tuned_environment(3) == {"OMP_NUM_THREADS": "3", "VECLIB_MAXIMUM_THREADS": "3"}


def test_what_a_script_must_do_itself_can_be_pasted_into_it():
    pinning = next(line for line in emit_env(1).splitlines() if "sched_setaffinity" in line).removeprefix("#")
    command = [sys.executable, "-c", f"{pinning.strip()}; print(*os.sched_getaffinity(0))"]
    ran = subprocess.run(command, capture_output=True, text=True, env={"LOCAL_RANK": "0"}, check=True)
    assert [int(ran.stdout)] == place_here(1, 1)[0]


def test_the_emitted_lines_do_in_a_shell_what_the_launcher_does():
    script = emit_env(3) + "env"
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env={}, check=True)
    assert set(shell.stdout.split()) >= {f"{k}={v}" for k, v in tuned_environment(3).items()}
    assert tuned_environment(3) == {"OMP_NUM_THREADS": "3", **ALLOCATOR}


def test_hidden_accelerators_share_no_ranks(monkeypatch):
    one = {"devices": [{"name": "X", "numa_node": None}]}
    monkeypatch.setattr(placement, "describe_accelerators", lambda: one)
    monkeypatch.setattr(placement, "usable_cores", lambda: [0, 1])
    assert placement.is_oversubscribed(2, 1)
    assert not placement.is_oversubscribed(2, 1, accelerated=False)
    assert placement.is_oversubscribed(4, 1, accelerated=False)
