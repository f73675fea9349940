"""Practical 7: what accumulation and mixed precision do, each answered by the variant that shows it.

In: a `LabData`. Out: one section per part. Parts 4 and 5 are in practical7_both.py.
Exercise: `paceline lab report practical7`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.labs.answers import practical7_both
from paceline.labs.answers.asked import answer, cannot_answer, value
from paceline.labs.answers.facts import (
    compare_traffic,
    explain_precision,
    precision_of,
    say_count,
)
from paceline.labs.answers.figures import beside, step_figure, strip_figure
from paceline.labs.answers.stability import loss_deviation, say_deviation
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import first_reason, is_above, is_below, ratio_of, say_change, say_share
from paceline.labs.data import LabData, LabRow
from paceline.record import Metric
from paceline.report.document import Block, Column, Section

# How near a ratio of gradients must be to ACCUM_STEPS: both are the same sum but for rounding.
NEAR = 0.01
ROUNDING = 1e-4


def build(data: LabData) -> list[Section]:
    blocks = (
        _accumulation(data),
        _division_and_no_sync(data),
        _mixed_precision(data),
        practical7_both.build_scaler(data),
        practical7_both.build_goals(data),
    )
    return [
        Section(f"Part {task.id}: {task.title}", part)
        for task, part in zip(data.lab.tasks, blocks, strict=True)
    ]


def _accumulation(data: LabData) -> list[Block]:
    row = data.row("accumulation")
    if not row.metric("micro_steps") or not row.metric("synchronising_micro_steps"):
        return [cannot_answer(data, id, [row], "no backward pass was counted") for id in ("1.1", "1.2")]
    micro, synchronising = value(row, "micro_steps"), value(row, "synchronising_micro_steps")
    calls = f"{say_count(row, 'collective_calls', 'collective')} in each optimizer step"
    if synchronising == 1 and micro > 1:
        synced = (
            f"**No: on 1 of {micro:g}.** One backward pass had all the communication, {calls}; in the others "
            "each rank kept its own gradients."
        )
    elif synchronising >= micro:
        synced = f"**Yes, on all {micro:g}**: `no_sync()` had no effect here. Counted: {calls}."
    else:
        synced = f"**On {synchronising:g} of {micro:g}.** Counted: {calls}."
    wanted = float(row.argument("accum-steps"))
    verdict = "as ACCUM_STEPS says" if micro == wanted else f"though ACCUM_STEPS is {wanted:g}"
    moved = (
        f"**Once every {micro:g} backward passes**, {verdict}. Between two moves the gradients only add up."
    )
    strips = {
        "Code 1": row,
        "without no_sync()": data.row("always-synchronised"),
    }
    known = {name: one for name, one in strips.items() if one.is_measured}
    caption = (
        "One optimizer step of Code 1. At the right: share of the step; compute and communication overlap."
    )
    figures = beside(step_figure("step", row, caption), strip_figure("steps", known))
    return [answer(data, "1.1", synced), answer(data, "1.2", moved), *figures]


def _division_and_no_sync(data: LabData) -> list[Block]:
    with_no_sync, without = data.row("accumulation"), data.row("always-synchronised")
    lines = [(["Code 1"], with_no_sync), (["without no_sync()"], without)]
    shown = (
        Shown("time per step", "step_time_s"),
        Shown("backward passes", "micro_steps"),
        Shown("synchronising", "synchronising_micro_steps"),
        Shown("collectives", "collective_calls"),
        Shown("their bytes", "collective_bytes"),
        Shown("waiting for them", "exposed_comm_s"),
    )
    table = build_table(
        "no-sync", "One optimizer step with and without no_sync().", [Column("variant")], lines, shown
    )
    answers: list[Block] = [_why_divide(data), table]
    missing = first_reason([with_no_sync, without])
    if missing:
        return [*answers, *(cannot_answer(data, id, [with_no_sync, without], "") for id in ("2.2", "2.3"))]
    slower = ratio_of(without, with_no_sync)
    if is_above(slower):
        why = "**It saves time: all but the last send what nobody needs yet.**"
    elif is_below(slower):
        why = "**It does not save time here, against expectation.**"
    else:
        why = "**It saves messages; that it saves time cannot be told from these launches.**"
    skipped = (
        f"{why} The sum of the gradients is needed once, when the optimizer moves. With `no_sync()` "
        f"{compare_traffic(without, with_no_sync)}; the step is {say_change(slower, 'without it')}."
    )
    deviation = loss_deviation(without, with_no_sync)
    same = (
        "The losses of both were not read, so whether they train alike is not shown."
        if math.isnan(deviation)
        else f"Both train alike: their losses differ by at most {say_deviation(deviation)}, mere rounding."
        if deviation <= ROUNDING
        else f"They do **not** train alike: their losses differ by up to {say_deviation(deviation)}."
    )
    waits = [row.metric("exposed_comm_share") for row in (without, with_no_sync)]
    shares = [say_share(wait.median) for wait in waits if wait]
    happens = (
        f"{say_count(without, 'synchronising_micro_steps')} of {say_count(without, 'micro_steps')} backward "
        f"passes synchronise. {shares[0]} of the step is spent waiting for communication, with `no_sync()` "
        f"{shares[1]}. {same}"
        if len(shares) == 2
        else f"How long it waits for communication was not counted. {same}"
    )
    return [*answers, answer(data, "2.2", skipped), answer(data, "2.3", happens)]


def _why_divide(data: LabData) -> Block:
    divided, undivided = data.row("divided"), data.row("undivided")
    norms = value(divided, "gradient_norm"), value(undivided, "gradient_norm")
    if not all(norms):
        return cannot_answer(data, "2.1", [divided, undivided], "no norms of gradients were read")
    ratio, steps = norms[1] / norms[0], float(divided.argument("accum-steps"))
    measured = (
        f"With the weights held still, the gradient without the division is **{ratio:.4g} times** as long "
        f"({norms[1]:.4g} against {norms[0]:.4g}) at ACCUM_STEPS {steps:g}."
    )
    if abs(ratio / steps - 1) <= NEAR:
        why = (
            "`backward()` adds up, so the sum of means must be divided to be the mean; the step of SGD "
            "would be "
            "as much too long."
        )
    else:
        why = f"A plain sum would make it {steps:g} times as long: **that is not what was measured.**"
    return answer(data, "2.1", f"{measured} {why}")


def _why(data: LabData, gains: Sequence[Metric | None], rows: Sequence[LabRow]) -> str:
    """One reason, or where the batches differ that of the smaller one and what the larger one changes."""
    said = f"Why: {explain_precision(data, gains[0], rows[0])}"
    if is_above(gains[1]) and not is_above(gains[0]):
        return f"{said} With the large batch, each converted weight serves more samples."
    return said


def _mixed_precision(data: LabData) -> list[Block]:
    named = [
        ("Code 2", data.row("amp")),
        ("its fp32 twin", data.row("amp-twin")),
        ("Code 2, large batch", data.row("amp-large-batch")),
        ("its fp32 twin", data.row("amp-large-batch-twin")),
    ]
    lines = [([name, row.argument("batch") or "–", row.argument("dim") or "–"], row) for name, row in named]
    table = build_table(
        "precision",
        "Code 2 and the same script in fp32; the batch is that of each rank.",
        [Column("variant"), Column("batch", numeric=True), Column("DIM", numeric=True)],
        lines,
        (
            Shown("time per step", "step_time_s"),
            Shown("peak memory", "peak_memory_bytes"),
            Shown("activations in it", "memory_bytes.activations"),
        ),
    )
    mixed, plain, large, large_plain = (row for _, row in named)
    rows = [mixed, plain, large, large_plain]
    missing = first_reason(rows)
    if missing:
        return [table, *(cannot_answer(data, id, rows, missing) for id in ("3.1", "3.2"))]
    gains = ratio_of(plain, mixed), ratio_of(large_plain, large)
    if is_above(gains[0]) and is_above(gains[1]):
        verdict = "Yes"
    elif is_below(gains[0]) and is_below(gains[1]):
        verdict = "No, it is slower"
    elif is_above(gains[0]) or is_above(gains[1]):
        verdict = "For one of the two batches"
    else:
        verdict = "Not shown" if not (is_below(gains[0]) or is_below(gains[1])) else "No"
    faster = (
        f"**{verdict}.** In {precision_of(mixed)} the step is {say_change(gains[0], 'fp32')}, with the "
        "large batch "
        f"{say_change(gains[1], 'fp32')}. {_why(data, gains, (mixed, large))}"
    )
    return [table, answer(data, "3.1", faster), answer(data, "3.2", practical7_both.say_memory(rows))]
