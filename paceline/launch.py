"""Launch one world and tell the truth about how it went.

In: a configuration, options, an empty folder. Out: a `RunRecord`, whatever happens to the ranks: a failure,
a hang, a full disk are results. Nothing that was started is left running, after an exception either.
Exercise: `pytest tests/gloo/test_launch.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import paceline
from paceline.ingest import Follower, RankLog, read_ranks
from paceline.machine import count_oom_kills, describe_machine
from paceline.outcome import Ended, Outcome, decide_outcome
from paceline.placement import is_oversubscribed
from paceline.processes import find_descendants
from paceline.record import WARMUP, RunRecord
from paceline.run_key import hash_script
from paceline.spec import write_specs
from paceline.stacks import STACKS_SIGNAL
from paceline.study import Config, Options
from paceline.torchrun import Agent, borrow_agent

POLL_S = 0.25  # each look costs the ranks a little of their cores
STACKS_WITHIN_S = 3.0
TAIL_BYTES = 16384
# Free space below which writing is what failed.
FULL_BYTES = 65536
# What decides speed; nothing that could be a secret.
ENVIRONMENT = re.compile(
    r"(OMP|MKL|KMP|GOMP|OPENBLAS|MALLOC|LD_PRELOAD|NCCL|GLOO|TORCH|PYTORCH|TORCHINDUCTOR|CUDA|HIP|ROCR|UCC|DNNL|ONEDNN)"
    r"(_|$)(?!.*(KEY|TOKEN|SECRET|PASSWORD))"
)


@dataclass(frozen=True)
class Progress:
    """Where a run stands, by its first rank."""

    step: int  # steps done
    total_steps: int  # what was asked for; a script may end before, and with to_end after
    step_time_s: float | None
    kind: int  # WARMUP, TIMED or SAMPLED


class HungError(Exception):
    """No rank wrote anything for too long."""


def follow_world(
    agent: Agent, options: Options, run_dir: Path, on_progress: Callable[[Progress], None]
) -> dict[str, Any]:
    """Report progress until the world is over; how torchrun ended, or HungError."""
    follower = Follower(run_dir)
    total = options.warmup + options.steps + options.sampled
    on_progress(Progress(0, total, None, WARMUP))
    last_sign = time.monotonic()
    while True:
        ended = agent.wait(POLL_S)
        grew, step = follower.poll()
        if step:
            on_progress(Progress(int(step["step"]) + 1, total, step.get("step_time_s"), int(step["kind"])))
        if ended:
            return ended
        if grew:
            last_sign = time.monotonic()
        elif time.monotonic() - last_sign > options.timeout_s:
            raise HungError


def ask_stacks(agent: Agent, run_dir: Path) -> dict[int, str]:
    """Where every rank on this machine stands now, in faulthandler's words."""
    alive = set(find_descendants(agent.pid))
    pids = {rank: log.record.start.get("pid") for rank, log in read_ranks(run_dir).items()}
    asked = {rank: pid for rank, pid in pids.items() if pid in alive}
    for pid in asked.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, STACKS_SIGNAL)
    deadline = time.monotonic() + STACKS_WITHIN_S
    stacks: dict[int, str] = {}
    while time.monotonic() < deadline:
        before = stacks
        paths = {rank: run_dir / f"rank{rank}.stacks" for rank in asked}
        stacks = {rank: path.read_text() if path.exists() else "" for rank, path in paths.items()}
        if all(stacks.values()) and stacks == before:
            break
        time.sleep(0.2)
    return stacks


def read_tails(run_dir: Path, local_world: int) -> dict[int, str]:
    """The end of what each local rank printed, errors before output, and of torchrun's own log as -1."""

    def tail(paths: list[Path]) -> str:
        for path in paths:
            if path.exists() and (data := path.read_bytes()[-TAIL_BYTES:].strip()):
                return data.decode(errors="replace")
        return ""

    attempts = list((run_dir / "logs").glob("*/attempt_0"))
    tails = {-1: tail([run_dir / "agent.log"])}
    for rank in range(local_world):
        names = ("stderr.log", "stdout.log")
        tails[rank] = tail([attempt / str(rank) / name for name in names for attempt in attempts])
    return tails


@contextlib.contextmanager
def end_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what was started is stopped."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_agent(
    spec: Path, config: Config, options: Options, run_dir: Path, on_progress: Callable[[Progress], None]
) -> Ended:
    """Start the world, see it to its end, and gather what is known about that end."""
    torchrun: dict[str, Any] = {"exit_code": None, "failures": []}
    stacks, hung, complaints = dict[int, str](), False, ""
    oom_kills = count_oom_kills()
    with end_on_signals(), contextlib.suppress(HungError), borrow_agent() as agent:
        agent.start_world(spec)
        try:
            torchrun = follow_world(agent, options, run_dir, on_progress)
        except HungError:
            hung = True
            stacks = ask_stacks(agent, run_dir)
            raise
        if not agent.is_usable():
            complaints = agent.complaints()
    output = read_tails(run_dir, config.world)
    return Ended(
        script=Path(config.program),
        logs=read_ranks(run_dir),
        failures=torchrun["failures"],
        exit_code=torchrun["exit_code"],
        hung_after_s=options.timeout_s if hung else None,
        stacks=stacks,
        output={**output, -1: complaints or output[-1]},
        steps=options.steps,
        warmup=options.warmup,
        to_end=options.to_end,
        oom_killed=count_oom_kills() > oom_kills,
        disk_full=shutil.disk_usage(run_dir).free < FULL_BYTES,
    )


def read_commit(script: Path) -> str | None:
    """The commit of the script's folder, "+" behind it when tracked files have changed since."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    with contextlib.suppress(OSError):
        asked = subprocess.run(command, cwd=script.resolve().parent, capture_output=True, text=True)
        return asked.stdout.strip() or None
    return None


def fill_outcome(record: RunRecord, outcome: Outcome, logs: dict[int, RankLog]) -> None:
    record.status, record.cause = outcome.status, outcome.cause
    record.failed_rank, record.last_line = outcome.failed_rank, outcome.last_line
    record.traceback = outcome.traceback
    record.ranks = [log.record for log in logs.values()]
    if record.ranks:
        record.ranks[0].notes += outcome.notes
        start = record.ranks[0].start
        record.world = start.get("world", record.world)
        record.versions.update(start.get("versions", {}))


def run_world(
    config: Config,
    options: Options,
    *,
    study: str,
    round: int,
    key: str,
    cores_per_rank: int,
    run_dir: Path,
    on_progress: Callable[[Progress], None],
    probe: bool = True,
) -> RunRecord:
    """One launch of one configuration. Without `probe` the script runs under plain torchrun, unmeasured."""
    run_dir = run_dir.resolve()
    record = RunRecord(
        key=key,
        study=study,
        program=config.program,
        arguments=list(config.arguments),
        world=config.world * int(options.nnodes.partition(":")[0]),
        placement=config.placement,
        round=round,
        status="failed",
        started=time.time(),
        options={**asdict(options), "cores_per_rank": cores_per_rank},
        versions={"paceline": paceline.__version__, "torch": metadata.version("torch")},
        machine=describe_machine(),
    )
    began = time.monotonic()
    try:
        record.script_hash = hash_script(config.program)
    except ValueError as mistake:
        record.cause = str(mistake)
        return record
    try:
        record.git_commit = read_commit(Path(config.program))
        run_dir.mkdir(parents=True, exist_ok=True)
        agent = write_specs(config, options, cores_per_rank, run_dir, probe, round)
        record.command = [sys.executable, "-m", "torch.distributed.run", *agent["arguments"]]
        record.environment = {k: v for k, v in agent["environment"].items() if ENVIRONMENT.match(k)}
        ended = run_agent(run_dir / "agent.json", config, options, run_dir, on_progress)
        if not probe and ended.exit_code == 0:
            fill_outcome(record, Outcome("ok"), {})
        else:
            fill_outcome(record, decide_outcome(ended), ended.logs)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        record.cause = f"disk full: {error}"
    record.oversubscribed = is_oversubscribed(
        config.world,
        cores_per_rank if config.placement == "tuned" else 1,
        accelerated=bool(record.accelerators),
    )
    record.wall_s = time.monotonic() - began
    return record
