"""Task 3: a small and a large model, and when communication is the bottleneck.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw1.py -k task3`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from paceline.analyse.fits import Observed, find_crossing, fit_line, flat_line
from paceline.labs.answers.asked import answer, cannot_answer, comparable, too_few_cores, value
from paceline.labs.answers.facts import say_traffic
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import say, say_share
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_bytes, format_duration
from paceline.record import Metric
from paceline.report.cells import OVERSUBSCRIBED, OVERSUBSCRIBED_NOTE
from paceline.report.document import Block, Question, Table

MODELS = ("small", "large", "large-batch")
ALIKE = 0.05  # two ratios of computing to sending that differ by less


def answer_sizes(data: LabData) -> list[Block]:
    rows = [row for model in MODELS for row in data.rows(model)]
    table = _build_table(data, rows)
    known = _in_one_world(data)
    if len(known) < 2:
        reason = too_few_cores(rows)
        return [table, *(cannot_answer(data, question, rows, reason) for question in ("3.1", "3.2", "3.3"))]
    return [table, _answer_which(data, known), _answer_why(data, known), _answer_when(data, known)]


def _in_one_world(data: LabData) -> dict[str, LabRow]:
    """Each model in the largest world that most of them can be compared in."""
    several = {
        model: {row.world: row for row in comparable(data.rows(model)) if row.metric("efficiency")}
        for model in MODELS
    }
    worlds = {world for found in several.values() for world in found if world > 1}
    if not worlds:
        return {}
    chosen = max(worlds, key=lambda world: (sum(world in found for found in several.values()), world))
    return {model: found[chosen] for model, found in several.items() if chosen in found}


def _build_table(data: LabData, rows: list[LabRow]) -> Table:
    """One line per model: beside each other, its worlds are easier to compare than below each other."""
    worlds = sorted({row.world for row in rows})
    crowded = {row.world for row in rows if row.oversubscribed}

    def on(world: int, name: str) -> Callable[[LabRow], Metric | None]:
        return lambda row: data.row(row.experiment.id, world=world).metric(name)

    def heading(world: int) -> str:
        return f"{world} rank{'s' * (world != 1)}{OVERSUBSCRIBED * (world in crowded)}"

    several = [world for world in worlds if world > 1]
    shown = [
        *(Shown(heading(world), on(world, "step_time_s")) for world in worlds),
        *(Shown(f"E({world})", on(world, "efficiency"), share=True) for world in several),
        *(Shown(f"exposed({world})", on(world, "exposed_comm_share"), share=True) for world in several),
    ]
    first = [data.rows(model)[0] for model in MODELS if data.rows(model)]
    return build_table(
        "sizes",
        f"{_sizes(data, 'small')}, {_sizes(data, 'large')}. E(n): efficiency on n ranks; "
        "exposed(n): share of the step with communication alone.",
        ["model"],
        [([_name(row)], row) for row in first],
        shown,
        notes=[OVERSUBSCRIBED_NOTE] if crowded else [],
    )


def _name(row: LabRow) -> str:
    """`large, batch 512`."""
    return f"{row.experiment.title.split(',')[0]}, batch {row.argument('batch')}"


def _sizes(data: LabData, model: str) -> str:
    row = data.rows(model)[0]
    return f"{model.capitalize()}: {row.argument('depth')} layers of {row.argument('dim')}"


def _answer_which(data: LabData, known: dict[str, LabRow]) -> Question:
    ordered = _by_efficiency(known)
    listed = ", ".join(f"{_name(row)}: {say_share(value(row, 'efficiency'))}" for row in ordered)
    small, large, large_batch = (known.get(model) for model in MODELS)
    if not (small and large):
        verdict = (
            f"For the {_name(ordered[0])}" if _is_more_efficient(*ordered[:2]) else "That cannot be told"
        )
    elif _is_more_efficient(small, large):
        verdict = f"For the {_name(small)}: size alone does not make DDP efficient"
    elif _is_more_efficient(large, small):
        verdict = f"For the {_name(large)}"
    elif large_batch and _is_more_efficient(large_batch, small):
        verdict = f"For the {_name(large_batch)}; at the same batch the two cannot be told apart"
    else:
        verdict = "That cannot be told: the intervals overlap"
    text = f"**{verdict}.** Efficiency on {ordered[0].world} ranks: {listed}."
    if large and large_batch and _is_more_efficient(large_batch, large):
        text += " More samples per step help the large one."
    return answer(data, "3.1", text)


def _by_efficiency(known: dict[str, LabRow]) -> list[LabRow]:
    return sorted(known.values(), key=lambda row: -value(row, "efficiency"))


def _is_more_efficient(one: LabRow, other: LabRow) -> bool:
    high, low = one.metric("efficiency"), other.metric("efficiency")
    return high is not None and low is not None and high.low > low.high


def _answer_why(data: LabData, known: dict[str, LabRow]) -> Question:
    ordered = _by_efficiency(known)
    first, last = ordered[0], ordered[-1]
    intensities = {id(row): _intensity(row) for row in ordered}
    if not all(intensities.values()):
        return cannot_answer(data, "3.2", ordered, "operations or bytes were not counted")
    listed = "; ".join(
        f"{_name(row)}: {intensities[id(row)]:.0f}, {say_share(value(row, 'exposed_comm_share'))}"
        for row in ordered
    )
    ratio = intensities[id(first)] / intensities[id(last)]
    if ratio > 1 + ALIKE:
        verdict = (
            f"**{_name(first).capitalize()}, computes more for each byte that it sends.** Gradients are as "
            "large for one sample as for a thousand, so this grows with the batch per rank, not with width "
            "or depth."
        )
    elif ratio < 1 - ALIKE:
        verdict = (
            "**Not because of the ratio of computing to sending**, which speaks against it; what is measured "
            "is the exposed communication."
        )
    else:
        verdict = (
            "**All compute as much for each byte that they send**, so the difference is not in that ratio."
        )
    doubt = "" if _is_more_efficient(first, last) else "By the medians alone: "
    return answer(data, "3.2", f"{doubt}{verdict} Operations per byte, exposed share: {listed}.")


def _intensity(row: LabRow) -> float:
    """Operations of one rank per byte of its gradients."""
    flops, size = value(row, "matmul_flops.float32"), value(row, "collective_bytes")
    return flops / row.world / size if size else 0.0


def _answer_when(data: LabData, known: dict[str, LabRow]) -> Question:
    """Where the time of computing, a line over the samples per rank, meets that of the gradients."""
    large = known.get("large")
    computing = fit_line(
        [
            Observed(float(row.argument("batch")), found)
            for model in ("large", "large-batch")
            for row in data.rows(model)
            if row.world == 1 and (found := row.metric("step_time_s"))
        ],
        non_negative=True,
    )
    busy = large.metric("comm_busy_s") if large else None
    if large is None or computing is None or busy is None:
        missing = list(data.rows("large"))
        return cannot_answer(data, "3.3", missing, "the large model's communication or batches are missing")
    share = float(large.argument("batch")) / large.world
    computed_s = computing.at(share).median
    text = (
        "When its bytes over the bus bandwidth last longer than computing. The large model's "
        f"{say_traffic(large)} takes {say(busy)}; a "
        f"rank computes its {share:g} samples in {format_duration(computed_s)} (fitted on one rank: "
        f"{format_duration(computing.intercept.median)} + {format_duration(computing.slope.median)} per "
        "sample). "
    )
    crossing = find_crossing(computing, flat_line(busy))
    if crossing is None:
        above = computing.intercept.low > busy.median
        text += "**Computing lasts longer at any batch.**" if above else "**Where they meet cannot be told.**"
    else:
        text += f"**They are equal at {_say_samples(crossing)} per rank**; below that, sending lasts longer."
    return answer(data, "3.3", f"{text}{_describe_latency(known)}")


def _say_samples(crossing: Metric) -> str:
    if not crossing.low < crossing.high:
        return f"{crossing.median:.0f} samples"
    if math.isinf(crossing.high):
        return f"{crossing.median:.0f} samples ({crossing.low:.0f} or more)"
    return f"{crossing.median:.0f} samples ({crossing.low:.0f}–{crossing.high:.0f})"


def _describe_latency(known: dict[str, LabRow]) -> str:
    """α and the size below which it is most of a message's time, from the two models' gradients."""
    points = [
        Observed(value(row, "collective_bytes"), busy)
        for model, row in known.items()
        if model != "large-batch" and (busy := row.metric("comm_busy_s"))
    ]
    line = fit_line(points, non_negative=True)
    if line is None or line.slope.median <= 0:
        return ""
    twice = Metric(2 * line.intercept.median, line.intercept.low * 2, line.intercept.high * 2, 1, "s")
    size = find_crossing(line, flat_line(twice)) if line.intercept.median > 0 else None
    if size is None:
        return " Latency does not show in the two models' times."
    return (
        f" Of it {format_duration(line.intercept.median)} is latency, by both models' gradients: most of the "
        f"time of messages below {format_bytes(size.median)}."
    )
