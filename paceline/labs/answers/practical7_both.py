"""Practical 7, parts 4 and 5: what the scaler protects from, and both techniques beside each other.

In: a `LabData`. Out: the blocks of the sections. Exercise: `paceline lab report practical7`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.labs.answers.asked import answer, cannot_answer, value
from paceline.labs.answers.facts import compare_parts, compare_peaks, precision_of
from paceline.labs.answers.figures import beside, memory_figure
from paceline.labs.answers.stability import judge, loss_deviation, say_deviation
from paceline.labs.answers.words import (
    first_reason,
    is_above,
    is_below,
    ratio_of,
    say,
    say_change,
    say_share,
)
from paceline.labs.data import LabData, LabRow
from paceline.record import Metric
from paceline.report.chart_parts import Point
from paceline.report.charts import against
from paceline.report.document import Block, Column, Figure, Question, Table
from paceline.report.terminal import NOT_KNOWN

# GradScaler begins with this scale.
FIRST_SCALE = 2.0**16
# Below this share no gradient is lost, or none overflows, that anybody would miss.
NEGLIGIBLE = 0.001
NO_PEAK = "Cannot be answered: no peak of memory was seen."
ALIKE = 0.03  # two peaks of memory that differ by less


def say_memory(rows: Sequence[LabRow]) -> str:
    """Part 3: what 16 bits do to the memory, at a small and at a large batch."""
    mixed, plain, large, large_plain = rows
    if not all(row.metric("peak_memory_bytes") for row in rows):
        return NO_PEAK
    changes = [
        value(after, "peak_memory_bytes") / value(before, "peak_memory_bytes") - 1
        for before, after in ((plain, mixed), (large_plain, large))
    ]
    if min(changes) < -ALIKE and max(changes) > ALIKE:
        verdict = "It depends on the batch"
    elif max(map(abs, changes)) <= ALIKE:
        verdict = "It changes nothing"
    elif min(map(abs, changes)) <= ALIKE:
        verdict = f"It {'lowers' if min(changes) < -ALIKE else 'raises'} the peak, for one of the two batches"
    else:
        verdict = "It lowers the peak" if changes[0] < 0 else "It raises the peak"
    return (
        f"**{verdict}.** Batch {mixed.argument('batch')}: {compare_peaks(plain, mixed)}. "
        f"Batch {large.argument('batch')}: {compare_peaks(large_plain, large)}. "
        f"{compare_parts(large_plain, large)} "
        "Activations are kept in 16 bits, and autocast keeps a 16-bit copy of each weight: the larger of the "
        "two decides. Weights and gradients stay in fp32."
    )


def build_scaler(data: LabData) -> list[Block]:
    table = data.table_rows("underflow")
    mixed, bare = data.row("amp"), data.row("amp-no-scaler")
    if not table:
        lost = cannot_answer(data, "4.1", [], data.reason("underflow") or "not measured")
    else:
        lost = answer(data, "4.1", _say_underflow(table, _network(data)))
    return [
        lost,
        _without_scaler(data, table, mixed, bare),
        *beside(underflow_figure(table, _network(data)), _square_memory(data)),
    ]


def _network(data: LabData) -> str:
    """The network whose gradients were counted, which is not that of Code 2."""
    row = data.row("underflow")
    return f"a network of {row.argument('depth')} layers of {row.argument('dim')}"


def _say_underflow(table: Sequence[dict[str, float]], network: str) -> str:
    unscaled = min(table, key=lambda row: row["scale"])
    best = [row for row in table if row["underflow_share"] <= NEGLIGIBLE >= row["overflow_share"]]
    first = next((row for row in table if row["scale"] == FIRST_SCALE), None)
    share = unscaled["underflow_share"]
    said = (
        f"fp16 has no numbers below 6 × 10⁻⁸. In {network}, at a loss scale of {unscaled['scale']:g}, "
        f"**{say_share(share)} of the gradients that are not zero in fp32 become zero** in fp16."
    )
    if share <= NEGLIGIBLE:
        said += " **So in this model no scaler would be needed.**"
    if first is not None:
        said += f" At 65536, where GradScaler begins, it is {say_share(first['underflow_share'])}"
        over = first["overflow_share"]
        said += f", and {say_share(over)} overflow." if over else ", and none overflows."
    if best:
        low, high = (_power(row["scale"]) for row in (best[0], best[-1]))
        said += f" Scales from {low} to {high} lose and overflow next to nothing." if low != high else ""
    overflowing = next((row for row in table if row["overflow_share"] > NEGLIGIBLE), None)
    if overflowing:
        said += (
            f" At {_power(overflowing['scale'])} gradients overflow, so the scaler seeks its scale itself."
        )
    return said


def _power(scale: float) -> str:
    """65536 → `2¹⁶`."""
    return "2" + f"{math.log2(scale):.0f}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _without_scaler(
    data: LabData, table: Sequence[dict[str, float]], mixed: LabRow, bare: LabRow
) -> Question:
    missing = first_reason([mixed, bare])
    if missing:
        return cannot_answer(data, "4.2", [mixed, bare], missing)
    precision = precision_of(bare)
    deviation = loss_deviation(bare, mixed)
    stability = judge(bare, data.row("amp-twin"))
    assert stability is not None
    if math.isnan(deviation):
        apart = ""
    elif deviation == 0:
        apart = " Its losses are those of Code 2, bit for bit."
    else:
        apart = f" Its losses differ from those of Code 2 by at most {say_deviation(deviation)}."
    said = f"Code 2 without it, in {precision}, is {stability.describe()}.{apart} "
    if precision == "bf16":
        said += "bf16 has the range of fp32, so here the scaler protects from nothing. "
        if table:
            share = min(table, key=lambda row: row["scale"])["underflow_share"]
            if share > NEGLIGIBLE:
                said += f"In fp16 it can: 4.1 counted {say_share(share)} lost, in another network than this."
    elif stability.verdict == "unstable":
        said += f"**Without the scaler the training in {precision} does not hold.**"
    elif precision == "fp16":
        said += "In so few steps what is lost to zero does not show in the loss."
    return answer(data, "4.2", said)


def underflow_figure(table: Sequence[dict[str, float]], network: str) -> Figure | None:
    if not table:
        return None
    points = []
    for name, key in (("lost to zero", "underflow_share"), ("overflown", "overflow_share")):
        for row in table:
            exact = Metric(row[key] * 100, row[key] * 100, row[key] * 100, 1, "%")
            points.append(Point(f"{math.log2(row['scale']):.0f}", exact, name))
    return Figure(
        "underflow",
        f"Gradients lost in fp16 in {network}, against the loss scale as a power of two. GradScaler begins "
        "at 16.",
        "Lost: "
        + ", ".join(f"2^{p.x}: {p.metric.median:.1f} %" for p in points if p.series == "lost to zero"),
        against(points, "log₂ of the loss scale", "gradients"),
    )


@dataclass(frozen=True)
class _Effect:
    """What one technique did to the same samples in one fp32 batch."""

    name: str
    goal: str
    row: LabRow


def _effects(data: LabData) -> tuple[LabRow, list[_Effect]]:
    return data.row("amp-large-batch-twin"), [
        _Effect("Accumulation", "large batch in little memory", data.row("accumulation-large-batch")),
        _Effect("Mixed precision", "fewer bytes, faster products", data.row("amp-large-batch")),
        _Effect("Both", "both", data.row("both-large-batch")),
    ]


def build_goals(data: LabData) -> list[Block]:
    base, effects = _effects(data)
    rows: list[list[str]] = []
    notes = []
    for effect in effects:
        missing = first_reason([base, effect.row])
        if missing:
            rows.append([effect.name, effect.goal, *[NOT_KNOWN] * 3])
            notes.append(f"{effect.name}: {missing}.")
            continue
        rows.append([effect.name, effect.goal, *_say_effect(base, effect.row)])
    table = Table(
        "goals",
        f"Against one fp32 batch of {base.argument('batch') or 'the same'} samples per rank at DIM "
        f"{base.argument('dim') or '–'}; the same samples per optimizer step in every row.",
        [Column(h) for h in ("", "Goal", "Effect on memory", "on speed", "on communication")],
        rows,
        notes,
    )
    accumulated, mixed, both = (effect.row for effect in effects)
    missing = first_reason([base, accumulated, mixed, both])
    if missing:
        everything = [base, accumulated, mixed, both]
        return [table, *(cannot_answer(data, id, everything, missing) for id in ("5.1", "5.2", "5.3"))]
    return [
        table,
        answer(data, "5.1", _which_saves_memory(base, accumulated, mixed)),
        answer(data, "5.2", _which_is_faster(base, accumulated, mixed)),
        answer(data, "5.3", _can_both(base, accumulated, mixed, both)),
    ]


def _say_effect(base: LabRow, row: LabRow) -> list[str]:
    memory = compare_peaks(base, row)
    speed = say_change(ratio_of(base, row)).replace("**", "")
    before, after = base.metric("collective_bytes"), row.metric("collective_bytes")
    if not before or not after:
        return [memory, speed, "not counted"]
    micro, synchronising = value(row, "micro_steps"), value(row, "synchronising_micro_steps")
    sent = (
        f"none: {say(after, interval=False)} per step as before"
        if after.median == before.median
        else f"{say(after, interval=False)} per step instead of {say(before, interval=False)}"
    )
    spared = f"; {synchronising:g} of {micro:g} micro-steps synchronises" if micro > 1 else ""
    return [memory, speed, sent + spared]


def _which_saves_memory(base: LabRow, accumulated: LabRow, mixed: LabRow) -> str:
    peaks = [value(row, "peak_memory_bytes") for row in (base, accumulated, mixed)]
    if not all(peaks):
        return NO_PEAK
    saved = {"Accumulation": 1 - peaks[1] / peaks[0], "Mixed precision": 1 - peaks[2] / peaks[0]}
    more = max(saved, key=lambda name: saved[name])
    if saved[more] <= 0:
        return "**Neither saves memory here.** " + _say_saved(saved)
    limits = {
        "Accumulation": "More micro-steps keep fewer activations still; the gradients stay.",
        "Mixed precision": "It can halve activations at most; accumulation has no such limit.",
    }
    better = accumulated if more == "Accumulation" else mixed
    return f"**{more}.** {_say_saved(saved)} {compare_parts(base, better)} {limits[more]}"


def _say_saved(saved: dict[str, float]) -> str:
    return (
        ", ".join(
            f"{name.lower()} {'saves' if share >= 0 else 'costs'} {say_share(abs(share))} of the peak"
            for name, share in saved.items()
        ).capitalize()
        + "."
    )


def _which_is_faster(base: LabRow, accumulated: LabRow, mixed: LabRow) -> str:
    by_parts, by_bits = ratio_of(base, accumulated), ratio_of(base, mixed)
    between = ratio_of(accumulated, mixed)
    said = f"Accumulation: {say_change(by_parts)}; mixed precision: {say_change(by_bits)}."
    if is_above(between):
        verdict = (
            "**Mixed precision.**" if is_above(by_bits) else "**Neither gains; mixed precision costs less.**"
        )
    elif is_below(between):
        verdict = "**Accumulation.**" if is_above(by_parts) else "**Neither gains; accumulation costs less.**"
    else:
        verdict = "**Cannot be told from these launches.**"
    return f"{verdict} {said} What accumulation saves against synchronising every micro-batch is in part 2."


def _can_both(base: LabRow, accumulated: LabRow, mixed: LabRow, both: LabRow) -> str:
    gain = ratio_of(base, both)
    if not all(row.metric("peak_memory_bytes") for row in (base, accumulated, mixed, both)):
        return f"They work together. {NO_PEAK} Code 3 is {say_change(gain)}."
    lowest = min(value(row, "peak_memory_bytes") for row in (accumulated, mixed))
    change = value(both, "peak_memory_bytes") / lowest - 1 if lowest else 0.0
    if abs(change) <= ALIKE:
        better = "as much as the better of the two alone"
    else:
        better = "less than either alone" if change < 0 else "more than the better of the two alone"
    saves = value(both, "peak_memory_bytes") < value(base, "peak_memory_bytes")
    if is_above(gain):
        verdict = "Yes: together they save memory and time" if saves else "Yes, but it saves time alone"
    elif is_below(gain):
        verdict = "They can, but together they are slower here"
    else:
        verdict = "Yes, they work together; a gain in speed is not shown"
    return (
        f"**{verdict}.** Code 3 needs {compare_peaks(base, both)}, {better}, and is {say_change(gain)}; "
        f"beside mixed precision alone it is {say_change(ratio_of(mixed, both))}. "
        "What matters is the order: scale every micro-step's loss, step and update the scaler once per "
        "optimizer step."
    )


def _square_memory(data: LabData) -> Figure | None:
    base, effects = _effects(data)
    named = [("one fp32 batch", base), *((effect.name.lower(), effect.row) for effect in effects)]
    return memory_figure("memory", named, "Peak memory of the same samples, one step, by category.")
