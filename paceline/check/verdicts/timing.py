"""The script's own measurement: its clock, what it waits for, its warm-up, what it prints.

Exercise: `pytest tests/check/test_verdicts_timing.py`.
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass, field

from paceline.check.observations import Event, Rank, Seen
from paceline.check.verdicts.verdict import Verdict, count, fails, passes, unknown

LEAST_STEPS = 30
WARMUP_STEPS = 5
MOST_DROPPED = 12
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?:e[-+]?\d+)?")
UNITS = (1.0, 1e3, 1e6)  # printed as seconds, milliseconds or microseconds


@dataclass
class TimedStep:
    """Readings of the script's clock around one optimizer step."""

    before: list[Event]  # since the step before
    within: list[Event]  # from its first forward until the optimizer has moved
    after: list[Event] = field(default_factory=list)  # until the next forward
    waits_after: bool = False  # was the device waited for between the move and the first reading after it?
    move: Event | None = None

    @property
    def duration_s(self) -> float | None:
        if not self.before or not self.after:
            return None
        return float(self.after[0]["value_s"] - self.before[-1]["value_s"])


def read_timed_steps(rank: Rank) -> list[TimedStep]:
    steps: list[TimedStep] = []
    gap: list[Event] = []
    within: list[Event] = []
    training, waited = False, False
    for event in rank.events:
        what = event["what"]
        if what == "forward" and event["grad"] and not training:
            if steps:
                steps[-1].after = gap
            steps.append(TimedStep(before=gap, within=(within := [])))
            gap, training = [], True
        elif what == "move" and training:
            steps[-1].move = event
            training, waited = False, False
        elif what == "wait":
            waited = True
        elif what == "clock":
            if training:
                within.append(event)
            else:
                if steps and not gap:
                    steps[-1].waits_after = waited
                gap.append(event)
    if steps and not training:
        steps[-1].after = gap
    return [step for step in steps if step.move is not None]


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
    clocks = seen.main.all("clock")
    if not clocks:
        return unknown(
            "the script reads no clock (device events are not followed); `paceline run` measures it"
        )
    steps = read_timed_steps(seen.main)[1:-1]
    if not steps:
        return unknown("too few optimizer steps were seen")
    around = [step for step in steps if step.before and step.after]
    if len(around) > len(steps) / 2:
        if all(len(step.before) == len(step.after) == len(step.within) == 1 for step in around):
            return judge_interval(seen.main, around)
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


def judge_interval(rank: Rank, steps: list[TimedStep]) -> Verdict:
    """One reading between steps and one within: the printed numbers tell which interval is meant."""
    printed = [number for event in rank.all("print") for number in read_numbers(event)]
    intervals = {
        "whole": [(step.before[-1], step.after[0]) for step in steps],
        "stops": [(step.before[-1], step.within[-1]) for step in steps],
        "starts": [(step.within[0], step.after[0]) for step in steps],
    }
    stated = {
        name: sum(states(printed, [end["value_s"] - start["value_s"]]) for start, end in ends)
        for name, ends in intervals.items()
    }
    meant = max(stated, key=lambda name: stated[name], default="")
    if not meant or stated[meant] <= len(steps) / 2:
        return unknown("the clock is read within the step too: which interval counts is not known")
    change = "read the clock before forward and again after the optimizer's step"
    if meant == "stops":
        reason = "the clock stops before the optimizer has moved: the step is timed in part"
        return fails(reason, change, steps[0].within[-1])
    if meant == "starts":
        reason = "the clock starts when forward has run: the step is timed in part"
        return fails(reason, change, steps[0].within[0])
    return passes("the clock is read before forward and after the optimizer's step")


def judge_waiting(seen: Seen) -> Verdict:
    """Has the device finished when the clock is read?"""
    model = seen.main.first("model")
    if model is None or not seen.main.all("clock"):
        return unknown("no timed training was seen")
    devices = {device.partition(":")[0] for _, device, _ in model["layers"]}
    if devices == {"cpu"}:
        return passes("a CPU has finished when a call returns: there is nothing to wait for")
    steps = [step for step in read_timed_steps(seen.main)[1:-1] if step.after]
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


def judge_warmup(seen: Seen) -> Verdict:
    """Are the first 5 steps left out of what is reported?"""
    rank = seen.main
    if not rank.steps:
        return unknown("no optimizer step was seen")
    moves_before_clock = 0
    for event in rank.events:
        if event["what"] == "clock":
            break
        moves_before_clock += event["what"] == "move"
    if not rank.all("clock"):
        return unknown("the script reads no clock")
    if moves_before_clock >= WARMUP_STEPS:
        return passes(f"{moves_before_clock} steps run before the clock is first read")
    durations = [step.duration_s for step in read_timed_steps(rank)]
    known = [duration for duration in durations if duration is not None]
    printed = read_printed(rank)
    if not printed:
        return unknown("no number is printed after the last step")
    if len(known) < len(durations) or len(known) <= MOST_DROPPED:
        return judge_total(rank, printed)
    dropped = find_dropped(printed, known)
    if dropped is None:
        return unknown("no printed number is the mean or median of the timed steps")
    if dropped >= WARMUP_STEPS:
        return passes(f"what is reported leaves out the first {dropped} steps")
    return fails(
        f"what is reported leaves out {count(dropped, 'step')} of warm-up",
        f"leave the first {WARMUP_STEPS} steps out of the mean",
        find_report(rank),
    )


def find_dropped(printed: list[tuple[float, int]], durations: list[float]) -> int | None:
    """How many of the first steps must be left out for what was printed to be the mean or median."""
    # A number of few digits agrees with many means by chance, so the likely ones are tried first.
    likely = (WARMUP_STEPS, 0)
    others = [dropped for dropped in range(MOST_DROPPED + 1) if dropped not in likely]
    for least_value, choices in ((100, likely), (1000, others)):
        precise = [(number, decimals) for number, decimals in printed if number * 10**decimals >= least_value]
        matches = [dropped for dropped in choices if states(precise, durations[dropped:])]
        if matches:
            return matches[0] if len(matches) == 1 or choices == likely else None
    return None


def judge_total(rank: Rank, printed: list[tuple[float, int]]) -> Verdict:
    """One clock around the whole loop, started before the warm-up was over."""
    values = [event["value_s"] for event in rank.all("clock")]
    total = values[-1] - values[0] if len(values) >= 2 else 0.0
    if total and states(printed, [total / max(1, len(rank.steps))] * len(rank.steps)):
        return fails(
            "the clock runs from the first step on, warm-up included",
            f"start it after {WARMUP_STEPS} steps",
            rank.first("clock"),
        )
    return unknown("which steps the reported time covers could not be seen")


def read_printed(rank: Rank) -> list[tuple[float, int]]:
    """Numbers with decimals printed after the last step, each with how many decimals it has."""
    return [number for line in lines_after_training(rank) for number in read_numbers(line)]


def read_numbers(line: Event) -> list[tuple[float, int]]:
    return [
        (float(number), len(number.partition("e")[0].partition(".")[2]))
        for number in NUMBER.findall(line["text"])
    ]


def lines_after_training(rank: Rank) -> list[Event]:
    last_move = max((place for place, e in enumerate(rank.events) if e["what"] == "move"), default=0)
    return [event for event in rank.events[last_move:] if event["what"] == "print"]


def find_report(rank: Rank) -> Event | None:
    lines = [line for line in lines_after_training(rank) if NUMBER.search(line["text"])]
    return lines[-1] if lines else None


def states(printed: list[tuple[float, int]], durations: list[float]) -> bool:
    """Is one of the printed numbers the mean, the median or the sum of these, or steps per second?"""
    wanted = [statistics.mean(durations), statistics.median(durations), sum(durations)]
    values = [value * unit for value in wanted for unit in UNITS]
    if wanted[0] > 0:
        values.append(1 / wanted[0])
    return any(
        math.isclose(number, value, rel_tol=0, abs_tol=0.51 * 10**-decimals)
        for number, decimals in printed
        for value in values
    )


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
