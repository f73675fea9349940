"""How a world ended, and why: one status, one sentence, and the rank that it began with.

In: what the ranks wrote, what torchrun saw of their ends, the stacks of a hang. Out: an `Outcome`. When
one rank falls, its neighbours fall after it with errors about a closed connection: the first one counts.
Exercise: `pytest tests/unit/test_outcome.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline.ingest import RankLog
from paceline.record import Status

DISK_FULL_EXIT_CODE = 74  # a rank that could not write its samples (probe/sink.py)
# What gloo, NCCL and the store say in ranks that did nothing wrong themselves.
CONSEQUENCE = re.compile(
    r"connection|connect full mesh|broken pipe|pair closure|remote process exited|communicator was aborted",
    re.IGNORECASE,
)
OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory|OutOfMemoryError", re.IGNORECASE)
# What a script hears that asks for a device which this machine does not have.
NO_SUCH_DEVICE = re.compile(
    r"invalid device ordinal|duplicate GPU detected|no CUDA GPUs are available|no NVIDIA driver"
    r"|not compiled with CUDA enabled|no CUDA-capable device|_cuda_setDevice",
    re.IGNORECASE,
)
STACK_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """All that is known once everything of a world is gone."""

    script: Path
    logs: dict[int, RankLog]
    failures: list[dict[str, Any]]  # of agent.list_failures
    exit_code: int | None  # the agent's, None when it was stopped or died
    hung_after_s: float | None  # the patience that ran out, None when it did not
    stacks: dict[int, str]  # by rank, of a hang
    output: dict[int, str]  # the tail of a rank's stderr, by local rank; -1 is torchrun itself
    steps: int
    warmup: int
    to_end: bool
    oom_killed: bool = False  # the kernel killed for memory meanwhile
    disk_full: bool = False


@dataclass(frozen=True)
class Outcome:
    status: Status
    cause: str | None = None
    failed_rank: int | None = None
    last_line: str | None = None
    traceback: str | None = None
    notes: list[dict[str, Any]] = field(default_factory=list)


def last_line_of(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def _shorten(where: str, script: Path) -> str:
    """`train.py:12` for the script and its neighbours, the whole path for anything else."""
    return where.removeprefix(f"{script.resolve().parent}/").removeprefix(f"{script.absolute().parent}/")


def find_main_stack(dump: str, script: Path) -> list[tuple[str, int, str]]:
    """The frames, innermost first, of the thread that runs the script: faulthandler lists the oldest last."""
    threads = [
        [(file, int(line), function) for file, line, function in STACK_FRAME.findall(block)]
        for block in re.split(r"^(?=(?:Thread|Current thread) 0x)", dump, flags=re.MULTILINE)
    ]
    names = {str(script), str(script.absolute()), str(script.resolve())}
    running = [frames for frames in threads if any(file in names for file, _, _ in frames)]
    return (running or [frames for frames in threads if frames] or [[]])[-1]


def describe_stand(dump: str, script: Path) -> tuple[str, bool]:
    """Where a rank stands, for a person, and whether it waits for other ranks there."""
    frames = find_main_stack(dump, script)
    if not frames:
        return "gave no answer", False
    folders = {str(script.absolute().parent), str(script.resolve().parent)}
    place = next((i for i, (file, _, _) in enumerate(frames) if str(Path(file).parent) in folders), 0)
    where = _shorten(f"{frames[place][0]}:{frames[place][1]}", script)
    # What the script called there; wrappers say nothing, and the probe is no part of the script.
    called = [
        function
        for file, _, function in frames[:place]
        if not file.startswith(str(Path(__file__).parent)) and not file.endswith("c10d_logger.py")
    ]
    waits = any("/torch/distributed/" in f or name == "_engine_run_backward" for f, _, name in frames)
    return f"stands at {where}" + (f" in {called[-1]}" if called else ""), waits


def explain_hang(ended: Ended) -> Outcome:
    stands = {rank: describe_stand(dump, ended.script) for rank, dump in sorted(ended.stacks.items())}
    ranks = "; ".join(f"rank {rank} {text}" for rank, (text, _) in stands.items())
    free = [rank for rank, (_, waits) in stands.items() if not waits]
    patience = f"{ended.hung_after_s:g} s"
    if not ended.logs:
        cause = f"no rank started within {patience}"
    else:
        cause = f"no step for {patience}; {ranks or 'no rank is left to ask'}"
    dumps = "\n".join(f"rank {rank}\n{dump}" for rank, dump in sorted(ended.stacks.items()))
    culprit = find_culprit(ended)
    if culprit is not None:  # what hangs is its teardown, and whoever waits for it
        seen = explain_failure(ended, culprit)
        traceback = "\n".join(filter(None, (seen.traceback, dumps)))
        return replace(seen, cause=f"{seen.cause}; then {cause}", traceback=traceback or None)
    return Outcome(
        "hung",
        cause,
        failed_rank=free[0] if len(free) == 1 else None,
        last_line=last_line_of(ended.output.get(free[0], "")) if len(free) == 1 else None,
        traceback=dumps or None,
    )


def find_culprit(ended: Ended) -> int | None:
    """The rank whose script ended by an error of its own."""
    for rank in order_failures(ended):
        log = ended.logs.get(rank)
        if log and log.exception and not CONSEQUENCE.search(log.exception["message"]):
            return rank
    return None


def order_failures(ended: Ended) -> list[int]:
    """Failed ranks, the one that it began with first."""
    failures = {failure["rank"]: failure for failure in ended.failures}
    excepted = {rank for rank, log in ended.logs.items() if log.exception}

    def weigh(rank: int) -> tuple[int, float]:
        log, failure = ended.logs.get(rank), failures.get(rank, {})
        when = log.last_written_s if log else failure.get("unix_s", 0.0)
        if log and log.exit_code:
            return 0, when
        if log and log.exception:
            return (2 if CONSEQUENCE.search(log.exception["message"]) else 0), when
        # SIGTERM is torchrun's own, to the ranks that are left; SIGABRT is how a lost peer ends some.
        return {"SIGABRT": 1, "SIGTERM": 3}.get(failure.get("signal") or "", 0), when

    declared = {rank for rank, log in ended.logs.items() if log.exit_code}
    return sorted(excepted | declared | failures.keys(), key=weigh)


def all_finished(ended: Ended) -> bool:
    """Did every script come to its end? When one aborts in its teardown, torchrun cuts the others' short."""
    ends = [log.num_steps for log in ended.logs.values() if log.exit_code == 0]
    cut = {f["rank"] for f in ended.failures if f["signal"] in ("SIGTERM", "SIGABRT")}
    return bool(ends) and all(
        log.exit_code == 0
        or (log.exit_code is None and not log.exception and rank in cut and log.num_steps >= max(ends))
        for rank, log in ended.logs.items()
    )


def explain_failure(ended: Ended, rank: int) -> Outcome:
    log = ended.logs.get(rank)
    failure: dict[str, Any] = next((f for f in ended.failures if f["rank"] == rank), {})
    local_rank = failure.get("local_rank", log.record.start.get("local_rank", rank) if log else rank)
    output = ended.output.get(local_rank, "")
    num_steps = log.num_steps if log else 0
    after = f"after {num_steps} steps" if num_steps else "before its first step"
    if ended.disk_full or failure.get("exit_code") == DISK_FULL_EXIT_CODE:
        cause = f"disk full: rank {rank} could not write {after} (no space left on device)"
        return Outcome("failed", cause, rank, last_line_of(output), output or None)
    if log and log.exception:
        kind, message = log.exception["type"], log.exception["message"].strip()
        first = message.splitlines()[0] if message else ""
        out_of_memory = log.exception.get("oom") or OUT_OF_MEMORY.search(f"{kind} {message}")
        no_device = num_steps == 0 and NO_SUCH_DEVICE.search(message)
        status: Status = "oom" if out_of_memory else "refused" if no_device else "failed"
        what = {"oom": "ran out of memory", "refused": "found no device for itself"}.get(status, "raised")
        line = log.exception.get("line")
        where = f", at {_shorten(line, ended.script)}" if line else ""
        return Outcome(
            status,
            f"rank {rank} {what} {after}{where}: {kind}: {first}",
            rank,
            f"{kind}: {first}",
            log.exception.get("traceback"),
        )
    if failure.get("signal") == "SIGKILL" and ended.oom_killed:
        cause = f"rank {rank} was killed {after} because the machine ran out of memory"
        return Outcome("oom", cause, rank, last_line_of(output), output or None)
    chosen = log.exit_code if log else None  # what the script said counts, however its teardown went
    if failure.get("signal") and not chosen:
        how = f"was killed by {failure['signal']}"
    else:
        how = f"ended with exit code {chosen or failure.get('exit_code')}"
    status = "oom" if OUT_OF_MEMORY.search(output) else "failed"
    said = last_line_of(output)
    return Outcome(
        status, f"rank {rank} {how} {after}" + (f": {said}" if said else ""), rank, said, output or None
    )


def explain_desertion(ended: Ended, victim: int) -> Outcome | None:
    """Where all that is left are lost connections: the rank that went without a word."""
    failed = {failure["rank"] for failure in ended.failures}
    gone = [rank for rank, log in ended.logs.items() if rank not in failed and not log.exception]
    if not gone:
        return None
    rank = min(gone, key=lambda r: ended.logs[r].last_written_s)
    seen = explain_failure(ended, victim)
    steps = ended.logs[rank].num_steps
    cause = f"rank {rank} left after {steps} steps, while others went on; then {seen.cause}"
    return Outcome("failed", cause, rank, seen.last_line, seen.traceback)


def explain_shortage(ended: Ended) -> Outcome | None:
    """A world that ended in order, but with too few steps to say anything."""
    if not ended.logs:
        return Outcome("failed", "no rank wrote anything: the probe did not start")
    rank, log = min(ended.logs.items(), key=lambda item: item[1].num_timed)
    if log.num_steps == 0:
        cause = (
            f"no optimizer step was seen on rank {rank}: call optimizer.step() in the script, "
            "or mark steps with paceline.mark_step()"
        )
        return Outcome("failed", cause, rank, last_line_of(ended.output.get(rank, "")))
    if log.num_timed == 0:
        cause = (
            f"rank {rank} ended after {log.num_steps} steps, the warm-up alone takes {ended.warmup}: "
            f"let it train longer, or try --warmup {max(1, log.num_steps // 4)}"
        )
        return Outcome("failed", cause, rank, last_line_of(ended.output.get(rank, "")))
    return None


def decide_outcome(ended: Ended) -> Outcome:
    complete = bool(ended.logs) and all(log.num_timed >= ended.steps for log in ended.logs.values())
    order = order_failures(ended)
    outcome: Outcome | None = None
    if ended.hung_after_s is not None:
        outcome = explain_hang(ended)
    elif order:
        first = ended.logs.get(order[0])
        lost = first and first.exception and CONSEQUENCE.search(first.exception["message"])
        outcome = (explain_desertion(ended, order[0]) if lost else None) or explain_failure(ended, order[0])
    elif ended.exit_code != 0:
        said = ended.output.get(-1, "")
        why = (
            "disk full"
            if ended.disk_full
            else f"torchrun itself failed: {last_line_of(said) or 'its process was killed'}"
        )
        outcome = Outcome("failed", why, None, last_line_of(said), said or None)
    if outcome and (all_finished(ended) or (complete and not ended.to_end)):
        # The steps were finished before; gloo aborts in teardown often enough to matter.
        text = f"after the steps were measured: {outcome.cause}"
        return explain_shortage(ended) or Outcome(
            "ok", notes=[{"event": "note", "code": "ended_badly", "text": text}]
        )
    return outcome or explain_shortage(ended) or Outcome("ok")
