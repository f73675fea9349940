"""The script's own measurement: its clock, what it waits for, who prints.

Exercise: `pytest tests/check/test_verdicts_timing.py`.
"""

from __future__ import annotations

from collections import Counter

from paceline.check.observations import Event, Rank, Seen
from paceline.check.verdicts.clocks import (
    CPU_CLOCKS,
    TimedStep,
    list_clocks,
    read_clock,
    read_timed_steps,
)
from paceline.check.verdicts.printed import list_dropped, read_numbers, read_printed, states
from paceline.check.verdicts.verdict import Verdict, count, fails, passes, unknown

LEAST_STEPS = 30


def judge_num_steps(seen: Seen) -> Verdict:
    """Are there at least 30 steps?"""
    steps = len(seen.main.steps)
    if steps >= LEAST_STEPS:
        return passes(count(steps, "step"))
    if seen.failure:
        return unknown("the script did not come to its end")
    last = seen.main.steps[-1].move if steps else None
    return fails(f"{count(steps, 'step')}, at least {LEAST_STEPS} are needed", "time 30 steps and more", last)


def judge_timing(seen: Seen) -> Verdict:
    """Does the timed interval reach from before forward to after the optimizer's step?"""
    functions = list_clocks(seen.main)
    if not functions:
        return unknown(
            "the script reads no clock (device events are not followed); `paceline run` measures it"
        )
    function = functions[0]
    clocks = read_clock(seen.main, function)
    steps = read_timed_steps(seen.main, function)[1:-1]
    if not steps:
        return unknown("too few optimizer steps were seen")
    if function in CPU_CLOCKS:
        return judge_cpu_clock(seen.main, functions, clocks)
    around = [step for step in steps if step.before and step.after]
    if len(around) > len(steps) / 2:
        if all(len(step.before) == len(step.after) == len(step.within) == 1 for step in around):
            return judge_interval(seen.main, function, around)
        return passes("the clock is read before forward and after the optimizer's step")
    early = [step for step in steps if step.within]
    if len(early) > len(steps) / 2:
        return fails(
            "the clock stops before the optimizer has moved: the step is timed in part",
            "read the clock before forward and again after the optimizer's step",
            early[0].within[-1],
        )
    if len(clocks) >= 2:
        return passes("the clock is read before and after many steps together")
    return fails(
        "the clock is read once: that is no duration", "read it before and after each step", clocks[0]
    )


def judge_cpu_clock(rank: Rank, functions: list[str], clocks: list[Event]) -> Verdict:
    reason = f"{functions[0]}() leaves out the time in which a rank waits, and adds up its threads"
    others = [read_clock(rank, other) for other in functions if other not in CPU_CLOCKS]
    if any(len(readings) >= 2 for readings in others):
        return unknown(f"{reason}; another clock is read too: which one counts is not known")
    return fails(reason, "read time.perf_counter()", clocks[0])


def judge_interval(rank: Rank, function: str, steps: list[TimedStep]) -> Verdict:
    """One reading between steps and one within: the printed numbers tell which interval is meant."""
    meant = find_meant(rank, steps) or find_meant_by_mean(rank, function)
    if meant is None:
        return unknown("the clock is read within the step too: which interval counts is not known")
    change = "read the clock before forward and again after the optimizer's step"
    if meant == "stops":
        reason = "the clock stops before the optimizer has moved: the step is timed in part"
        return fails(reason, change, steps[0].within[-1])
    if meant == "starts":
        reason = "the clock starts when forward has run: the step is timed in part"
        return fails(reason, change, steps[0].within[0])
    return passes("the clock is read before forward and after the optimizer's step")


def find_meant(rank: Rank, steps: list[TimedStep]) -> str | None:
    """The interval whose length is printed for most of the steps."""
    printed = [number for event in rank.all("print") for number in read_numbers(event)]
    stated = Counter(
        name for step in steps for name, duration in step.intervals.items() if states(printed, [duration])
    )
    return next((name for name, times in stated.most_common(1) if times > len(steps) / 2), None)


def find_meant_by_mean(rank: Rank, function: str) -> str | None:
    """The only interval of which a mean is printed after training."""
    intervals = [step.intervals for step in read_timed_steps(rank, function)]
    printed = read_printed(rank)
    fitting = []
    for name in ("whole", "stops", "starts"):
        durations = [lengths[name] for lengths in intervals if name in lengths]
        if any(list_dropped(number, durations) for number in printed):
            fitting.append(name)
    return fitting[0] if len(fitting) == 1 else None


def judge_waiting(seen: Seen) -> Verdict:
    """Has the device finished when the clock is read?"""
    model = seen.main.first("model")
    functions = list_clocks(seen.main)
    if model is None or not functions:
        return unknown("no timed training was seen")
    devices = {device.partition(":")[0] for _, device, _ in model["layers"]}
    if devices == {"cpu"}:
        return passes("a CPU has finished when a call returns: there is nothing to wait for")
    steps = [step for step in read_timed_steps(seen.main, functions[0])[1:-1] if step.after]
    if not steps:
        return unknown("the clock is not read after each step")
    hasty = [step for step in steps if not step.waits_after]
    if hasty:
        return fails(
            "the clock is read while the device may still be working",
            "call torch.accelerator.synchronize() before reading the clock",
            hasty[0].after[0],
        )
    return passes("the device is waited for before the clock is read")


def judge_prints(seen: Seen) -> Verdict:
    """Does rank 0 alone print during training?"""
    if len(seen.ranks) < 2:
        return unknown("one rank alone was seen")
    for rank in seen.ranks[1:]:
        trained = False
        for event in rank.events:
            trained = trained or event["what"] == "move"
            if trained and event["what"] == "print" and event["text"].strip():
                return fails(
                    f"rank {rank.rank} prints as well: {event['text'].strip()[:60]!r}",
                    "print under `if rank == 0:`",
                    event,
                )
    if not any(event["text"].strip() for event in seen.main.all("print")):
        return unknown("nothing is printed")
    return passes("rank 0 alone prints during training")
