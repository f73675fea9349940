"""Task 2: strong scaling at a global batch of 64.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw1.py -k task2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from paceline.labs.answers.asked import (
    answer,
    cannot_answer,
    comparable,
    find_largest,
    judge_speedup,
    lower,
    too_few_cores,
    value,
)
from paceline.labs.answers.facts import say_traffic
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import say, say_share
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_duration
from paceline.report.chart_parts import Point
from paceline.report.charts import speedup
from paceline.report.document import Block, Column, Figure, Question, SideBySide

TIMES = (
    Shown("step", "step_time_s"),
    Shown("speedup", "speedup"),
    Shown("efficiency", "efficiency", share=True),
)
LOW_PX = 200  # beside a table of three rows
DROPS = 0.05  # of efficiency, below which two worlds are called alike


def answer_strong(data: LabData) -> list[Block]:
    rows = data.rows("strong")
    table = build_table(
        "strong",
        "Global batch 64. Efficiency: S(n) / n.",
        [Column("ranks", numeric=True)],
        [([str(row.world)], row) for row in rows],
        TIMES,
    )
    points = [
        Point(row.world, found, "", row.oversubscribed) for row in rows if (found := row.metric("speedup"))
    ]
    shown: list[Block] = [table]
    if len(points) > 1:
        figure = Figure(
            "speedup",
            "Speedup S(n) = t(1) / t(n).",
            f"Speedup on {', '.join(f'{point.x:g}' for point in points)} ranks, with the ideal line.",
            lower(speedup(points), LOW_PX),
        )
        shown = [SideBySide(table, figure)]
    return [*shown, _answer_linear(data, rows), _answer_drop(data, rows), _explain(data, rows)]


def _answer_linear(data: LabData, rows: Sequence[LabRow]) -> Question:
    largest = find_largest(rows)
    found = largest.metric("speedup") if largest else None
    if largest is None or found is None:
        return cannot_answer(data, "2.1", rows, too_few_cores(rows))
    text = f"**{judge_speedup(found, largest.world).capitalize()}.** S({largest.world}) is {say(found)}."
    apart = [row for row in rows if row.oversubscribed and row.metric("speedup")]
    if apart:
        named = ", ".join(f"S({row.world}) = {value(row, 'speedup'):.2f}" for row in apart)
        text += f" ({named} had more ranks than cores.)"
    return answer(data, "2.1", text)


def _answer_drop(data: LabData, rows: Sequence[LabRow]) -> Question:
    known = [row for row in comparable(rows) if row.metric("efficiency")]
    if len(known) < 2:
        return cannot_answer(data, "2.2", rows, too_few_cores(rows))
    falls = [(value(a, "efficiency") - value(b, "efficiency"), a, b) for a, b in pairwise(known)]
    fall, before, after = max(falls, key=lambda found: found[0])
    path = ", ".join(f"{say_share(value(row, 'efficiency'))} on {row.world}" for row in known)
    if fall < DROPS:
        return answer(data, "2.2", f"**Nowhere** among the worlds that had a core for each rank: {path}.")
    lowest, highest = after.metric("efficiency"), before.metric("efficiency")
    certain = lowest is not None and highest is not None and lowest.high < highest.low
    doubt = "" if certain else " The intervals overlap, so the drop itself is not certain."
    return answer(
        data, "2.2", f"**Most from {before.world} to {after.world} ranks**: efficiency is {path}.{doubt}"
    )


def _explain(data: LabData, rows: Sequence[LabRow]) -> Question:
    """The step against its ideal length, and which parts make the difference."""
    largest = find_largest(rows)
    one = next((row for row in comparable(rows) if row.world == 1), None)
    if largest is None or one is None:
        return cannot_answer(data, "2.3", rows, too_few_cores(rows))
    world = largest.world
    step_s, ideal_s = value(largest, "step_time_s"), value(one, "step_time_s") / world
    lost_s = step_s - ideal_s
    begin = (
        f"An ideal step on {world} ranks lasts t(1) / {world} = {format_duration(ideal_s)}, the measured one "
        f"{format_duration(step_s)}."
    )
    if lost_s <= 0:
        return answer(data, "2.3", f"{begin} **Nothing is lost.**")
    parts = [("communication that no computing hides", value(largest, "exposed_comm_s"))]
    # An accelerator works on while the host is elsewhere: there the host's phases say nothing.
    for name in () if data.accelerated else ("forward", "optimizer"):
        grown_s = value(largest, f"{name}_s") - value(one, f"{name}_s") / world
        parts.append((f"{name}, not {world} times shorter", grown_s))
    known = sorted(((name, s) for name, s in parts if s > 0.03 * lost_s), key=lambda part: -part[1])
    named = "; ".join(f"{name} {format_duration(s)} ({say_share(s / lost_s)})" for name, s in known)
    rest = 1 - sum(s for _, s in known) / lost_s
    if known:
        text = f"{begin} Of the **{format_duration(lost_s)}** lost: {named}."
        if rest > 0.1:
            text += f" {say_share(rest)} stays unattributed."
        elif rest < -0.1:
            text += " The parts are from profiled steps, which are slower, and overlap: they sum to more."
    else:
        text = f"{begin} Nothing that was measured explains the **{format_duration(lost_s)}** lost."
    return answer(data, "2.3", f"{text} {_describe_message(largest)}")


def _describe_message(row: LabRow) -> str:
    """What each rank sends, whatever its share of the batch."""
    size, busy = row.metric("collective_bytes"), row.metric("comm_busy_s")
    if size is None or not size.median:
        return ""
    batch = int(row.argument("batch"))
    text = (
        f"Each rank computes {batch // row.world} of the {batch} samples, and passes on its gradients "
        "whatever its share"
    )
    if busy is None:
        return f"{text}, {say_traffic(row)}."
    return f"{text}: {say_traffic(row)} takes {format_duration(busy.median)}."
