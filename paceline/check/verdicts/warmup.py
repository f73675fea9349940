"""Is warm-up left out of what the script reports?

Exercise: `pytest tests/check/test_verdicts_timing.py`.
"""

from __future__ import annotations

from paceline.check.observations import Event, Rank, Seen
from paceline.check.verdicts.clocks import list_clocks, read_timed_steps
from paceline.check.verdicts.printed import (
    MOST_DROPPED,
    WARMUP_STEPS,
    Printed,
    find_dropped,
    find_report,
    list_dropped,
    read_printed,
    states,
)
from paceline.check.verdicts.verdict import Verdict, count, fails, passes, unknown


def judge_warmup(seen: Seen) -> Verdict:
    """Are the first 5 steps left out of what is reported?"""
    rank = seen.main
    if not rank.steps:
        return unknown("no optimizer step was seen")
    functions = list_clocks(rank)
    if not functions:
        return unknown("the script reads no clock")
    timing = [function for function in functions if times_steps(rank, function)]
    verdicts = [judge_by_clock(rank, function) for function in timing or functions]
    # Each clock serves a purpose of its own: the whole script's time is taken by another one, perhaps.
    return min(verdicts, key=lambda verdict: ("pass", "unknown", "fail").index(verdict.answer))


def times_steps(rank: Rank, function: str) -> bool:
    """A clock that is read at the end alone dates a file, perhaps."""
    return len({moves for moves, _ in place_readings(rank, function)}) > 1


def judge_by_clock(rank: Rank, function: str) -> Verdict:
    readings = place_readings(rank, function)
    if readings[0][0] >= WARMUP_STEPS:
        return passes(f"{readings[0][0]} steps run before the clock is first read")
    printed = read_printed(rank)
    if not printed:
        return unknown("no number is printed after the last step")
    durations = [step.duration_s for step in read_timed_steps(rank, function)]
    known = [duration for duration in durations if duration is not None]
    if len(known) < len(durations) or len(known) <= MOST_DROPPED:
        if begins_late(durations, printed) or spans_late(readings, printed):
            return passes("what is reported was timed after the first steps")
        return judge_total(rank, readings, printed)
    dropped = find_dropped(printed, known)
    if dropped is None:
        return unknown("no printed number is the mean or median of the timed steps alone")
    if dropped >= WARMUP_STEPS:
        return passes(f"what is reported leaves out the first {dropped} steps")
    return fails(
        f"what is reported leaves out {count(dropped, 'step')} of warm-up",
        f"leave the first {WARMUP_STEPS} steps out of the mean",
        find_report(rank),
    )


def place_readings(rank: Rank, function: str) -> list[tuple[int, Event]]:
    """Each reading, after how many of the optimizer's moves."""
    moves = 0
    readings = []
    for event in rank.events:
        moves += event["what"] == "move"
        if event["what"] == "clock" and event["function"] == function:
            readings.append((moves, event))
    return readings


def begins_late(durations: list[float | None], printed: list[Printed]) -> bool:
    """Steps are timed one by one, the first ones not, and the printed numbers are of these."""
    first = next((place for place, duration in enumerate(durations) if duration is not None), 0)
    timed = [duration for duration in durations[first:] if duration is not None]
    return first >= WARMUP_STEPS and any(list_dropped(number, timed) for number in printed)


def spans_late(readings: list[tuple[int, Event]], printed: list[Printed]) -> bool:
    """One interval is timed that begins after the first steps and ends after the last."""
    late = [moves for moves, _ in readings if moves >= WARMUP_STEPS]
    starts = [reading for reading in readings if late and reading[0] == late[0]]
    ends = [reading for reading in readings if late and reading[0] == late[-1] > late[0]]
    precise = [number for number in printed if number.digits >= 100]
    return any(
        states(precise, [(end["value_s"] - start["value_s"]) / (last - first)] * (last - first))
        for first, start in starts
        for last, end in ends
    )


def judge_total(rank: Rank, readings: list[tuple[int, Event]], printed: list[Printed]) -> Verdict:
    """One clock around the whole loop, started before the warm-up was over."""
    total = readings[-1][1]["value_s"] - readings[0][1]["value_s"]
    mean = total / len(rank.steps)
    # The whole time itself may be told beside what was timed in between.
    is_all = len(readings) == 2 and states(printed, [mean] * len(rank.steps))
    if total and (is_all or states(printed, [mean])):
        return fails(
            "the clock runs from the first step on, warm-up included",
            f"start it after {WARMUP_STEPS} steps",
            readings[0][1],
        )
    return unknown("which steps the reported time covers could not be seen")
