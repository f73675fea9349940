"""How a world ended: the first rank to fail is the one to name, and finished steps are not thrown away."""

from pathlib import Path
from typing import Any

import pytest

from paceline.ingest import RankLog
from paceline.outcome import Ended, decide_outcome, describe_stand
from paceline.record import TIMED, WARMUP, RankRecord

SCRIPT = Path("/home/ada/train.py")
PEER = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1234"


def rank(number: int, timed: int, *, written: float = 0.0, warmup: int = 5, **more: Any) -> RankLog:
    kinds = [float(WARMUP)] * warmup + [float(TIMED)] * timed
    record = RankRecord(rank=number, start={"local_rank": number}, series={"kind": kinds})
    return RankLog(record, last_written_s=written, **more)


def raised(kind: str, message: str, oom: bool = False) -> dict[str, Any]:
    return {"type": kind, "message": message, "traceback": "…", "line": f"{SCRIPT}:7", "oom": oom}


def failure(number: int, exit_code: int = 1, signal: str | None = None) -> dict[str, Any]:
    return {
        "rank": number,
        "local_rank": number,
        "exit_code": exit_code,
        "signal": signal,
        "unix_s": 0,
        "pid": 1,
    }


def ended(*logs: RankLog, **more: Any) -> Ended:
    known: dict[str, Any] = {
        "script": SCRIPT,
        "logs": {log.record.rank: log for log in logs},
        "failures": [],
        "exit_code": 0,
        "hung_after_s": None,
        "stacks": {},
        "output": {},
        "steps": 30,
        "warmup": 5,
        "to_end": False,
    }
    return Ended(**{**known, **more})


def test_all_in_order_is_ok():
    assert decide_outcome(ended(rank(0, 30, exit_code=0), rank(1, 30, exit_code=0))).status == "ok"


def test_a_script_that_ends_early_is_taken_as_it_is():
    assert decide_outcome(ended(rank(0, 12, exit_code=0))).status == "ok"


def test_a_lost_connection_is_not_the_cause_even_when_it_was_seen_first():
    outcome = decide_outcome(
        ended(
            rank(0, 3, written=1.0, exception=raised("RuntimeError", PEER)),
            rank(1, 3, written=2.0, exception=raised("ValueError", "bad batch\nlong story")),
            failures=[failure(0), failure(1)],
            exit_code=1,
        )
    )
    assert (outcome.status, outcome.failed_rank) == ("failed", 1)
    assert outcome.cause == "rank 1 raised after 8 steps, at train.py:7: ValueError: bad batch"


def test_of_two_errors_the_earlier_counts():
    logs = [rank(r, 3, written=9.0 - r, exception=raised("ValueError", f"by {r}")) for r in (0, 1)]
    assert decide_outcome(ended(*logs, failures=[failure(0), failure(1)], exit_code=1)).failed_rank == 1


@pytest.mark.parametrize("neighbour", [failure(0, -15, "SIGTERM"), failure(0, -6, "SIGABRT")])
def test_a_kill_comes_before_what_it_led_to(neighbour):
    outcome = decide_outcome(
        ended(
            rank(0, 3), rank(1, 3, written=5.0), failures=[neighbour, failure(1, -9, "SIGKILL")], exit_code=1
        )
    )
    assert outcome.cause == "rank 1 was killed by SIGKILL after 8 steps"


def test_a_kill_while_the_kernel_was_out_of_memory():
    outcome = decide_outcome(
        ended(rank(0, 3), failures=[failure(0, -9, "SIGKILL")], exit_code=1, oom_killed=True)
    )
    assert outcome.status == "oom"


@pytest.mark.parametrize(
    "exception",
    [
        raised("MemoryError", "", oom=True),
        raised("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB"),
        raised("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
    ],
)
def test_out_of_memory_has_its_own_status(exception):
    outcome = decide_outcome(ended(rank(0, 3, exception=exception), failures=[failure(0)], exit_code=1))
    assert outcome.status == "oom"
    assert "ran out of memory after 8 steps" in outcome.cause


@pytest.mark.parametrize(
    ("timed", "warmup", "status"),
    [(0, 0, "refused"), (3, 5, "failed")],
)
def test_a_device_that_is_not_there_is_refused_before_the_first_step(timed, warmup, status):
    lost = raised("AcceleratorError", "CUDA error: invalid device ordinal\nCompile with ...")
    log = rank(1, timed, warmup=warmup, exception=lost)
    outcome = decide_outcome(ended(rank(0, timed, warmup=warmup), log, failures=[failure(1)], exit_code=1))
    assert (outcome.status, outcome.failed_rank) == (status, 1)
    assert outcome.last_line == "AcceleratorError: CUDA error: invalid device ordinal"
    if status == "refused":
        assert outcome.cause.startswith(
            "rank 1 found no device for itself before its first step, at train.py:7"
        )


def test_a_rank_that_left_without_a_word_is_named_before_its_victims():
    outcome = decide_outcome(
        ended(
            rank(0, 3, exception=raised("RuntimeError", PEER)),
            rank(1, 3, exit_code=0),
            failures=[failure(0)],
            exit_code=1,
        )
    )
    assert (outcome.status, outcome.failed_rank) == ("failed", 1)
    assert "rank 1 left after 8 steps" in outcome.cause


def test_an_exit_code_that_the_script_chose_counts_more_than_the_abort_after_it():
    outcome = decide_outcome(
        ended(rank(0, 3, exit_code=3), failures=[failure(0, -6, "SIGABRT")], exit_code=1)
    )
    assert outcome.cause.startswith("rank 0 ended with exit code 3 after 8 steps")


def test_an_abort_in_teardown_leaves_a_note():
    outcome = decide_outcome(
        ended(
            rank(0, 12, exit_code=0),
            rank(1, 12),  # torchrun's SIGTERM met it in its own teardown
            failures=[failure(0, -6, "SIGABRT"), failure(1, -15, "SIGTERM")],
            exit_code=1,
        )
    )
    assert outcome.status == "ok"
    assert "SIGABRT" in outcome.notes[0]["text"]


def test_an_abort_after_the_timed_steps_keeps_them_unless_the_end_was_asked_for():
    crash = {"failures": [failure(0, -11, "SIGSEGV")], "exit_code": 1}
    assert decide_outcome(ended(rank(0, 30), **crash)).status == "ok"
    assert decide_outcome(ended(rank(0, 30), to_end=True, **crash)).status == "failed"
    assert decide_outcome(ended(rank(0, 29), **crash)).status == "failed"


def test_too_few_steps():
    assert "no optimizer step" in decide_outcome(ended(rank(0, 0, warmup=0, exit_code=0))).cause
    outcome = decide_outcome(ended(rank(0, 0, warmup=4, exit_code=0)))
    assert "ended after 4 steps, the warm-up alone takes 5" in outcome.cause


def test_a_full_disk_is_told_with_and_without_a_rank():
    assert decide_outcome(ended(exit_code=1, disk_full=True)).cause == "disk full"
    outcome = decide_outcome(ended(rank(0, 3), failures=[failure(0, 74)], exit_code=1))
    assert outcome.cause.startswith("disk full: rank 0")


def test_torchrun_that_failed_says_why():
    outcome = decide_outcome(ended(exit_code=1, output={-1: "Traceback\nRendezvousTimeoutError: late\n"}))
    assert outcome.cause == "torchrun itself failed: RendezvousTimeoutError: late"


WAITING = f"""Thread 0x01 (most recent call first):
  File "/usr/lib/python3/threading.py", line 300 in wait

Current thread 0x02 (most recent call first):
  File "/venv/torch/distributed/distributed_c10d.py", line 3110 in barrier
  File "/venv/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "{SCRIPT.parent}/loop.py", line 4 in run
  File "{SCRIPT}", line 12 in <module>
"""
BUSY = f"""Current thread 0x02 (most recent call first):
  File "{SCRIPT}", line 9 in <module>
"""


def test_a_hang_names_the_rank_that_waits_for_nobody():
    assert describe_stand(WAITING, SCRIPT) == ("stands at loop.py:4 in barrier", True)
    outcome = decide_outcome(
        ended(rank(0, 3), rank(1, 3), hung_after_s=20.0, exit_code=None, stacks={0: WAITING, 1: BUSY})
    )
    assert (outcome.status, outcome.failed_rank) == ("hung", 1)
    assert outcome.cause == (
        "no step for 20 s; rank 0 stands at loop.py:4 in barrier; rank 1 stands at train.py:9"
    )


def test_an_error_before_a_hang_is_what_it_began_with():
    outcome = decide_outcome(
        ended(
            rank(0, 3, exception=raised("RuntimeError", PEER)),
            rank(1, 3, exception=raised("ValueError", "bad batch")),
            hung_after_s=20.0,
            exit_code=None,
            stacks={0: WAITING, 1: BUSY},
        )
    )
    assert (outcome.status, outcome.failed_rank) == ("failed", 1)
    assert outcome.cause == (
        "rank 1 raised after 8 steps, at train.py:7: ValueError: bad batch; then no step for 20 s; "
        "rank 0 stands at loop.py:4 in barrier; rank 1 stands at train.py:9"
    )
    assert outcome.traceback.startswith("…\nrank 0\nThread 0x01")


def test_a_hang_before_any_rank_and_after_all_of_them():
    stuck = {"hung_after_s": 20.0, "exit_code": None}
    assert decide_outcome(ended(**stuck)).cause == "no rank started within 20 s"
    assert decide_outcome(ended(rank(0, 3), **stuck)).cause == ("no step for 20 s; no rank is left to ask")
