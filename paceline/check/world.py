"""Runs one student's script in a world of its own, so that it can harm no other.

In: a script, how many ranks and virtual devices, a time limit. Out: a `Seen`. The script works in a copy of
its folder; its time, memory and output are limited; whatever it leaves running is killed.
Exercise: `pytest tests/check/test_world.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.check.observations import Seen, read_folder
from paceline.ingest import read_ranks
from paceline.launch import ask_stacks, end_on_signals, read_tails
from paceline.machine import count_oom_kills, usable_cores
from paceline.outcome import Ended, decide_outcome
from paceline.spec import write_specs
from paceline.study import Config, Options
from paceline.torchrun import Agent, borrow_agent

OBSERVER = "paceline.check.observer"
PROBE = Path(__file__).parents[1] / "probe"
POLL_S = 0.1
BUSY_SHARE = 0.75  # of its time, after which a script that still trains is slow rather than stuck
MOST_COPIED_BYTES = 50 << 20
MOST_COPIED_FILES = 2000
SHADOWING = sys.stdlib_module_names | {"torch", "numpy"}
LEFT_OUT = {".git", ".venv", "venv", "__pycache__", "submission", "node_modules"}


def run_observed(
    script: Path, *, num_ranks: int, devices: int = 0, as_cuda: bool = False, timeout_s: float
) -> Seen:
    """Start the script on `num_ranks` ranks, perhaps with virtual devices, and see it to its end, or to the
    end of its time."""
    with tempfile.TemporaryDirectory(prefix="paceline-check-", ignore_cleanup_errors=True) as folder:
        work, run_dir = Path(folder).resolve() / "work", Path(folder).resolve() / "run"
        run_dir.mkdir()
        copied = copy_folder(script.resolve(), work)
        spec = write_world(copied, num_ranks, run_dir, devices, as_cuda)
        began_s = time.time()
        ended = follow_script(spec, copied, num_ranks, run_dir, timeout_s)
        failure = explain_failure(ended, timeout_s)
        return Seen(
            ranks=read_folder(run_dir),
            num_ranks=num_ranks,
            failure=failure,
            failure_line=find_line(failure, script.name),
            out_of_time=ended.hung_after_s is not None,
            still_busy=last_sign_s(run_dir) > began_s + BUSY_SHARE * timeout_s,
            own_fault=is_own_fault(ended),
        )


def last_sign_s(run_dir: Path) -> float:
    """When a rank last did anything that is observed, by the system's clock."""
    return max((path.stat().st_mtime for path in run_dir.glob("rank*.jsonl")), default=0.0)


def copy_folder(script: Path, work: Path) -> Path:
    """The script with what lies beside it: modules and data, unless that is too much to copy."""
    work.mkdir()
    found: list[Path] = []
    size = 0
    for path in walk(script.parent):
        if path != script and path.parent == script.parent and path.stem in SHADOWING:
            continue  # another submission, which everything here would import instead of Python's own module
        found.append(path)
        size += path.stat().st_size
        if size > MOST_COPIED_BYTES or len(found) > MOST_COPIED_FILES:
            found = sorted(script.parent.glob("*.py"))
            break
    for path in found:
        copy = work / path.relative_to(script.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    if not (work / script.name).exists():
        shutil.copy(script, work / script.name)
    return work / script.name


def walk(folder: Path) -> Iterator[Path]:
    """Regular files below a folder, links and what no script needs left out."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith(".")]
        for name in files:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                yield path


def write_world(script: Path, num_ranks: int, run_dir: Path, devices: int, as_cuda: bool) -> Path:
    """The launcher's own files, with the observer named and the script's copy as working directory."""
    # The script runs to its own end: the steps only say when the probe stops looking, at once.
    options = Options(
        warmup=1, steps=3, sampled=0, to_end=True, virtual_devices=devices, virtual_as_cuda=as_cuda
    )
    config = Config(str(script), (), num_ranks, "tuned")
    cores_per_rank = max(1, len(usable_cores()) // num_ranks)
    agent = write_specs(config, options, cores_per_rank, run_dir, probe=True)
    spec = json.loads((run_dir / "spec.json").read_text())
    (run_dir / "spec.json").write_text(json.dumps({**spec, "observer": OBSERVER}))
    path = run_dir / "agent.json"
    path.write_text(json.dumps({**agent, "directory": str(script.parent)}))
    return path


class OutOfTimeError(Exception):
    """Unwinds the agent, which then stops everything below it."""


def follow_script(spec: Path, script: Path, num_ranks: int, run_dir: Path, timeout_s: float) -> Ended:
    """See the world to its end; after `timeout_s` ask where the ranks stand, and stop them."""
    torchrun: dict[str, Any] | None = None
    stacks: dict[int, str] = {}
    complaints = ""
    oom_kills = count_oom_kills()
    with end_on_signals(), contextlib.suppress(OutOfTimeError), borrow_agent() as agent:
        agent.start_world(spec)
        torchrun = wait_for_end(agent, timeout_s)
        if torchrun is None:
            stacks = ask_stacks(agent, run_dir)
            raise OutOfTimeError
        if torchrun["exit_code"] is None:
            complaints = agent.complaints()
    tails = read_tails(run_dir, num_ranks)
    return Ended(
        script=script,
        logs=read_ranks(run_dir),
        failures=torchrun["failures"] if torchrun else [],
        exit_code=torchrun["exit_code"] if torchrun else None,
        hung_after_s=None if torchrun else timeout_s,
        stacks=stacks,
        output={**tails, -1: complaints or tails[-1]},
        steps=0,
        warmup=0,
        to_end=True,
        oom_killed=count_oom_kills() > oom_kills,
    )


def wait_for_end(agent: Agent, timeout_s: float) -> dict[str, Any] | None:
    """How the world ended, None when it did not within the time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ended = agent.wait(POLL_S)
        if ended is not None:
            return ended
    return None


def explain_failure(ended: Ended, timeout_s: float) -> str | None:
    """One sentence, None when the script came to its end on all ranks."""
    if ended.hung_after_s is not None:
        outcome = decide_outcome(ended)
        where = (outcome.cause or "").partition("; ")[2]
        return f"did not end within {timeout_s:g} s" + (f": {where}" if where else "")
    logs = ended.logs.values()
    if logs and all(log.exit_code == 0 and log.exception is None for log in logs):
        return None  # gloo may still have aborted while Python ended
    outcome = decide_outcome(ended)
    return outcome.cause or "a rank ended without a word"


def is_own_fault(ended: Ended) -> bool:
    """Did the probe raise the exception, rather than the script or what it called? The observer never raises
    itself, but C functions that it wraps leave its frame as the innermost one."""
    for log in ended.logs.values():
        frames = re.findall(r'File "(.+?)", line', (log.exception or {}).get("traceback", ""))
        if frames and Path(frames[-1]).is_relative_to(PROBE):
            return True
    return False


def find_line(failure: str | None, name: str) -> int | None:
    """The script's line in such a sentence."""
    found = re.search(re.escape(name) + r"(?::|, line )(\d+)", failure or "")  # the latter of a SyntaxError
    return int(found.group(1)) if found else None
