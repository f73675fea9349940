"""Ranks' rows and JSON lines become series and facts, however the file ends."""

import json
import math
import os
from pathlib import Path

from paceline.ingest import Follower, read_ranks
from paceline.record import TIMED, WARMUP
from paceline.step_file import COLUMNS, NUM_TIMES, StepFile

LINES = [
    {"event": "start", "rank": 0, "pid": 7, "world": 2},
    {"event": "sample", "fact": "memory", "data": {"peak_bytes": 5}},
    {"event": "note", "code": "no_samples", "text": "…"},
]


def write_lines(folder: Path, rank: int, lines: list[dict[str, object]], rest: str = "") -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines) + rest
    (folder / f"rank{rank}.jsonl").write_text(text)


def append_step(file: StepFile, step: int, **values: float) -> None:
    file.append([float(step), *(float(values.get(name, math.nan)) for name in COLUMNS[1:NUM_TIMES])])


def write_steps(folder: Path, rank: int) -> StepFile:
    file = StepFile(folder / f"rank{rank}.steps")
    append_step(file, 0, kind=WARMUP, end_s=1.0, wall_s=101.0)
    append_step(file, 1, kind=TIMED, end_s=2.0, wall_s=102.0, step_time_s=1.0)
    file.fill(1, "loss", 0.5)  # as a loss that is read only later
    return file


def test_steps_become_one_series_per_metric(tmp_path):
    write_steps(tmp_path, 0)
    write_lines(tmp_path, 0, [*LINES, {"event": "end", "reason": "script ended", "exit_code": 0}])
    log = read_ranks(tmp_path)[0]
    assert log.record.series["end_s"] == [1.0, 2.0]
    assert math.isnan(log.record.series["step_time_s"][0])
    assert log.record.series["loss"][1] == 0.5
    assert log.record.facts == {"memory": {"peak_bytes": 5}}
    assert (log.record.start["pid"], log.record.end, log.exit_code) == (7, "script ended", 0)
    assert (log.num_steps, log.num_timed, len(log.record.notes)) == (2, 1, 1)


def test_what_is_known_later_replaces_what_was_supposed_at_the_start(tmp_path):
    write_lines(tmp_path, 0, [{**LINES[0], "device": "cuda"}, {"event": "start", "device": "cpu"}])
    start = read_ranks(tmp_path)[0].record.start
    assert (start["device"], start["pid"]) == ("cpu", 7)


def test_a_torn_last_line_costs_that_line_alone(tmp_path):
    write_steps(tmp_path, 0)
    write_lines(tmp_path, 0, LINES, rest='{"event": "end", "reas')
    log = read_ranks(tmp_path)[0]
    assert (log.num_steps, log.record.end, log.exit_code) == (2, None, None)
    assert len(log.record.notes) == 1


def test_the_last_sign_of_a_rank_is_its_last_line_or_step(tmp_path):
    write_lines(tmp_path, 0, LINES)
    os.utime(tmp_path / "rank0.jsonl", (50.0, 50.0))
    assert read_ranks(tmp_path)[0].last_written_s == 50.0
    write_steps(tmp_path, 0)
    assert read_ranks(tmp_path)[0].last_written_s == 102.0


def test_ranks_come_in_the_order_of_their_numbers(tmp_path):
    for rank in (10, 2, 0):
        write_lines(tmp_path, rank, LINES)
    assert list(read_ranks(tmp_path)) == [0, 2, 10]


def test_the_follower_sees_growth_of_every_rank_and_steps_of_the_first(tmp_path):
    follower = Follower(tmp_path)
    assert follower.poll() == (False, None)
    write_lines(tmp_path, 1, LINES)
    assert follower.poll() == (True, None)
    file = write_steps(tmp_path, 0)
    grew, step = follower.poll()
    assert grew
    assert step["step"] == 1
    assert follower.poll() == (False, None)
    append_step(file, 2, kind=TIMED)
    assert follower.poll()[1]["step"] == 2
    append_step(write_steps(tmp_path, 1), 2, kind=TIMED)
    assert follower.poll() == (True, None)
