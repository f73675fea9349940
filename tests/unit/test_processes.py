"""Who descends from whom, by /proc and by ps, and that what is left of a gone process's group is ended."""

import os
import signal
import subprocess
import sys
import time

import pytest

from paceline import processes
from paceline.processes import find_descendants, kill_descendants, kill_groups, list_processes

# A leader that starts a child, names it, and waits.
LEADER = """
import subprocess, time
print(subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL).pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def others():
    """What other tests keep running all the while, such as tests/check's server of ranks."""
    return set(find_descendants(os.getpid()))


@pytest.fixture
def family(others):
    leader = subprocess.Popen([sys.executable, "-c", LEADER], stdout=subprocess.PIPE, start_new_session=True)
    child = int(leader.stdout.readline())
    yield leader, child
    leader.kill()
    leader.wait()
    leader.stdout.close()
    kill_groups([leader.pid])


@pytest.fixture(params=[True, False], ids=["linux", "elsewhere"])
def system(request, monkeypatch):
    monkeypatch.setattr(processes, "ON_LINUX", request.param)


def test_the_tree_is_known(system, others, family):
    leader, child = family
    assert find_descendants(leader.pid) == [child]
    # What looks is no part of the answer: whoever waits for the end of its descendants would wait for ps.
    assert set(find_descendants(os.getpid())) - others == {leader.pid, child}


def test_a_gone_leaders_group_is_ended_and_a_living_ones_is_not(system, family):
    leader, child = family
    kill_groups([leader.pid])
    assert child in list_processes()
    leader.kill()
    leader.wait()
    kill_groups([leader.pid])
    deadline = time.monotonic() + 5
    while child in list_processes():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killing_ends_as_soon_as_all_are_gone(system, family):
    leader, child = family
    began = time.monotonic()
    kill_descendants(leader.pid)
    assert child not in list_processes()
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("on_linux", [True, False])
def test_a_process_ends_with_its_parent(on_linux):
    parent = f"""
import subprocess, sys
child = '''
import signal, sys, time
from paceline import processes
processes.ON_LINUX = {on_linux}
processes.die_with_parent(signal.SIGKILL)
print("ready", flush=True)
time.sleep(60)
'''
subprocess.Popen([sys.executable, "-c", child]).wait()
"""
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    (child,) = find_descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.read()  # ends when the child, who has it open too, is gone
    process.stdout.close()
    assert child not in list_processes()
