"""Homework 2, task 3: the time, the memory and the batch explained from what was measured.

In: a `LabData`. Out: the blocks of the section. Exercise: `paceline lab report hw2`.
"""

from __future__ import annotations

import math

import numpy as np

from paceline.analyse.intervals import one_per_round
from paceline.analyse.steps import world_step_times
from paceline.labs.answers.facts import (
    compare_parts,
    compare_peaks,
    compare_traffic,
    explain_precision,
)
from paceline.labs.answers.figures import beside, memory_figure, step_figure
from paceline.labs.answers.stability import loss_deviation, say_deviation
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import (
    first_reason,
    is_above,
    is_below,
    ratio_of,
    say_change,
    say_share,
)
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_bytes
from paceline.record import Metric, RunRecord
from paceline.report.document import Block, Column, Figure, Formula, Paragraph, Question, Table

# Rounding in fp32 moves a loss by some 1e-7 per step; anything that is no rounding moves it by per cents.
ROUNDING = 1e-4
SQUARE_STEPS = 8
# Where all samples of a step also fit one batch of the scripts' data.
BATCH_STEPS = 16


def build(data: LabData) -> list[Block]:
    time, memory, batch = (question.text for question in data.lab.task("3").questions)
    return [
        *beside(_corner_table(data)),
        Question(time, _explain_time(data)),
        *beside(_memory(data), _step(data)),
        Question(memory, _explain_memory(data)),
        Question(batch, _explain_batch(data)),
    ]


def corners(data: LabData) -> dict[str, LabRow]:
    """The square: with and without no_sync() × fp32 and 16 bits, all with the same samples per step."""
    return {
        "fp32, always synchronised": data.row("code1-always-synchronised"),
        "fp32, no_sync()": data.row("code1-sweep", accum_steps=SQUARE_STEPS),
        "16 bits, always synchronised": data.row("code3-always-synchronised"),
        "16 bits, no_sync()": data.row("code3-sweep", accum_steps=SQUARE_STEPS),
    }


def _corner_table(data: LabData) -> Table:
    shown = (
        Shown("time per step", "step_time_s"),
        Shown("collectives", "collective_calls"),
        Shown("their bytes", "collective_bytes"),
        Shown("waiting for them", "exposed_comm_s"),
    )
    lines = [([name], row) for name, row in corners(data).items()]
    caption = f"Synchronisation × precision at ACCUM_STEPS {SQUARE_STEPS}: the same samples in every row."
    return build_table("square", caption, [Column("variant")], lines, shown)


def _explain_time(data: LabData) -> list[Block]:
    slow32, fast32, slow16, fast16 = rows = tuple(corners(data).values())
    missing = first_reason(rows)
    if missing:
        return [Paragraph(f"This needs all four corners of the square. One is missing: {missing}.")]
    both, synchronisation, precision = (
        ratio_of(slow32, fast16),
        ratio_of(slow32, fast32),
        ratio_of(slow32, slow16),
    )
    then = ratio_of(fast32, fast16)
    share = split_gain(rows)
    text = (
        f"With `no_sync()` {compare_traffic(slow32, fast32)}; the fp32 step is "
        f"{say_change(synchronisation)}. "
        f"Sixteen bits make it {say_change(precision)} with every micro-step synchronised and "
        f"{say_change(then)} with `no_sync()`. Both together: {say_change(both)}. "
    )
    if share is not None and is_above(both):
        text += (
            f"In logarithms, averaged over both orders, **{share.median * 100:.0f} % of the gain is "
            f"synchronisation and {100 - share.median * 100:.0f} % is precision**"
            + (
                f" (the first {say_share(share.low)} to {say_share(share.high)})"
                if share.low < share.high
                else ""
            )
            + "."
        )
        if not 0 <= share.median <= 1:
            text += " A share outside 0 to 100 % says that one of the two costs time here."
    elif is_below(both):
        text += "So there is no gain to divide: **both together are slower** here."
    else:
        text += "The interval of the whole holds 1: **there is no gain that could be divided**."
    return [
        Paragraph(text),
        Paragraph(f"Why 16 bits: {explain_precision(data, then, fast16)}"),
    ]


def split_gain(rows: tuple[LabRow, ...]) -> Metric | None:
    """The share of synchronisation in the logarithm of the whole gain, the mean of both orders, per round."""
    slow32, fast32, slow16, fast16 = ({run.round: _median_s(run) for run in row.runs} for row in rows)
    shares = []
    for round in sorted(set(slow32) & set(fast32) & set(slow16) & set(fast16)):
        whole = math.log(slow32[round] / fast16[round])
        first = math.log(slow32[round] / fast32[round])
        second = math.log(slow16[round] / fast16[round])
        if whole:
            shares.append((first + second) / 2 / whole)
    return one_per_round(shares, "ratio")


def _explain_memory(data: LabData) -> list[Block]:
    accumulated, one = data.row("code1-sweep", accum_steps=BATCH_STEPS), data.row("one-large-batch")
    plain, mixed = data.row("code2-twin"), data.row("code2")
    blocks: list[Block] = []
    missing = first_reason([accumulated, one])
    if missing:
        blocks.append(Paragraph(f"Accumulation: {missing}."))
    else:
        blocks.append(Paragraph(_explain_accumulation(one, accumulated)))
    missing = first_reason([plain, mixed])
    if missing:
        blocks.append(Paragraph(f"Mixed precision: {missing}."))
    else:
        peak_before, peak_after = plain.metric("peak_memory_bytes"), mixed.metric("peak_memory_bytes")
        if not peak_before or not peak_after:
            why = ""
        elif peak_after.median > peak_before.median:
            why = (
                "The 16-bit copies of the weights that autocast keeps weigh more than the smaller "
                "activations save: at this batch the weights dominate."
            )
        else:
            why = "The activations shrink by more than autocast's 16-bit copies of the weights cost."
        blocks.append(
            Paragraph(
                "**Mixed precision** changes the bytes per number, not how many live: weights, gradients and "
                "optimizer stay in fp32. The peak of Code 2 against its fp32 twin is "
                f"{compare_peaks(plain, mixed)}. "
                f"{compare_parts(plain, mixed)} {why}"
            )
        )
    return blocks


def _explain_accumulation(one: LabRow, accumulated: LabRow) -> str:
    peaks = one.metric("peak_memory_bytes"), accumulated.metric("peak_memory_bytes")
    held = one.metric("memory_bytes.activations")
    if not peaks[0] or not peaks[1]:
        return "Accumulation: no peak of memory was seen."
    if peaks[1].median < peaks[0].median:
        verdict = "It saves what grows with the batch; parameters and gradients stay as large."
    else:
        at_peak = f"only {format_bytes(held.median)}" if held else "an unknown part"
        verdict = (
            f"**So it saves nothing here**: of the one batch's peak {at_peak} is activations; weights, "
            "gradients "
            "and DDP's buckets are the rest, and they stay."
        )
    return (
        "**Accumulation** keeps the activations of one micro-batch instead of those of the whole batch. "
        f"For the same {int(one.argument('batch')) * one.world} samples its peak is "
        f"{compare_peaks(one, accumulated)}. "
        f"{compare_parts(one, accumulated)} {verdict}"
    )


def _explain_batch(data: LabData) -> list[Block]:
    accumulated, one = data.row("code1-sweep", accum_steps=BATCH_STEPS), data.row("one-large-batch")
    missing = first_reason([accumulated, one])
    if missing:
        return [Paragraph(f"The comparison with one large batch: {missing}.")]
    micro, ranks = int(accumulated.argument("batch")), accumulated.world
    samples = micro * BATCH_STEPS * ranks
    deviation = loss_deviation(accumulated, one)
    norms = accumulated.metric("gradient_norm"), one.metric("gradient_norm")
    if math.isnan(deviation):
        verdict = "The losses of the two were not both read, so equality is not shown."
    elif deviation <= ROUNDING:
        verdict = (
            f"Measured: over all steps its losses differ from those of one batch of {samples} "
            "by at "
            f"most {say_deviation(deviation)} of the loss. **They are equal to rounding.**"
        )
    else:
        verdict = (
            f"Measured: its losses differ from those of one batch of {samples} by up to "
            f"{say_deviation(deviation)}. **That is more than rounding: the two do not train alike.**"
        )
    if norms[0] and norms[1]:
        verdict += f" Gradient norms: {norms[0].median:.6g} and {norms[1].median:.6g}."
    return [
        Formula(
            f'"effective batch" = "batch" times "ACCUM_STEPS" times "ranks" = '
            f"{micro} times {BATCH_STEPS} times {ranks} = {samples}",
            f"effective batch = batch × ACCUM_STEPS × ranks = {micro} × {BATCH_STEPS} × {ranks} = {samples}",
        ),
        Paragraph(
            f"{verdict} `backward()` adds gradients up: undivided, their sum would be {BATCH_STEPS} times "
            "the mean "
            "over the effective batch, and so would the step of SGD. Dividing each loss by ACCUM_STEPS "
            "makes the "
            f"sum the mean. Accumulating is {say_change(ratio_of(one, accumulated), 'the one batch')}."
        ),
    ]


def _memory(data: LabData) -> Figure | None:
    named = [
        ("Code 1", data.row("code1-sweep", accum_steps=BATCH_STEPS)),
        ("Code 3", data.row("code3-sweep", accum_steps=BATCH_STEPS)),
        ("one batch", data.row("one-large-batch")),
        ("Code 2", data.row("code2")),
        ("Code 2, fp32", data.row("code2-twin")),
    ]
    return memory_figure("memory", named, "Memory of tensors at its peak, by category.")


def _step(data: LabData) -> Figure | None:
    row = data.row("code3")
    return step_figure("step", row, "One optimizer step of Code 3. At the right: share of the step.")


def _median_s(run: RunRecord) -> float:
    return float(np.median(world_step_times(run)))
