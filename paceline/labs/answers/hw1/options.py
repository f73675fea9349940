"""Task 5: a delay that ranks do not share, the batch, and one slow rank.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw1.py -k task5`.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.analyse.fits import AmdahlFit, Observed, find_knee, fit_amdahl
from paceline.labs.answers.asked import (
    answer,
    cannot_answer,
    comparable,
    difference,
    find_largest,
    judge_speedup,
    say_change,
    say_signed,
    too_few_cores,
    value,
)
from paceline.labs.answers.figures import beside
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import is_above, is_below, say, say_share
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_duration
from paceline.record import Metric
from paceline.report.document import Block, Column, Question, Table

QUESTIONS = {"5A": "delay", "5B": "batch", "5C": "imbalance"}
CLOSE = 0.15  # relative: a prediction that is met
SURE = 0.9  # of the redrawn measurements have the same knee


def answer_options(data: LabData) -> list[Block]:
    """The wide table, the narrow ones beside each other, then what they answer."""
    tables: dict[str, Table] = {}
    questions: list[Block] = []
    for question, build in (("5A", _answer_delay), ("5B", _answer_batch), ("5C", _answer_imbalance)):
        rows = data.rows(QUESTIONS[question])
        if rows:
            table, said = build(data, rows)
            questions.append(said)
            if table is not None:
                tables[question] = table
        elif data.option is None:
            questions.append(answer(data, question, f"Not measured: {data.reason(QUESTIONS[question])}."))
    wide = [tables["5A"]] if "5A" in tables else []
    return [*wide, *beside(tables.get("5B"), tables.get("5C")), *questions]


def _plain(data: LabData, row: LabRow) -> LabRow:
    """The same world without the option."""
    return data.row("strong", world=row.world)


# A: a delay


def _answer_delay(data: LabData, rows: list[LabRow]) -> tuple[Table | None, Question]:
    delay_s = float(rows[0].argument("delay"))
    with_delay, without = _fit(rows), _fit(data.rows("strong"))

    def predict(row: LabRow) -> Metric | None:
        plain = _plain(data, row).metric("step_time_s")
        if plain is None:
            return None
        return Metric(plain.median + delay_s, plain.low + delay_s, plain.high + delay_s, plain.n, "s")

    table = build_table(
        "delay",
        f"Option A: every rank sleeps {format_duration(delay_s)} before backward. "
        "Predicted: without, plus the delay.",
        [Column("ranks", numeric=True)],
        [([str(row.world)], row) for row in rows],
        (
            Shown("without", lambda row: _plain(data, row).metric("step_time_s")),
            Shown("with", "step_time_s"),
            Shown("predicted", predict),
            Shown("speedup", "speedup"),
            Shown("Amdahl", lambda row: with_delay.speedup_at(row.world) if with_delay else None),
        ),
    )
    largest = find_largest(rows)
    if with_delay is None or largest is None or (speedup := largest.metric("speedup")) is None:
        return table, cannot_answer(data, "5A", rows, too_few_cores(rows))
    text = f"**{judge_speedup(speedup, largest.world).capitalize()}.** S({largest.world}) is {say(speedup)}."
    text += f" {_describe_fit(with_delay)}"
    plain = _plain(data, largest).metric("speedup")
    if without is not None and plain is not None:
        before, after = without.unbounded_share, with_delay.unbounded_share
        share = "more than all" if before > 1 else say_share(max(before, 0))
        text += f" Without it, S({largest.world}) is {say(plain)}, the serial share {share}."
        if after <= before and before > 1:
            text += " A delay of fixed length lessens what communication weighs."
    return table, answer(data, "5A", f"{text} {_check_prediction(rows, predict)}")


def _fit(rows: list[LabRow]) -> AmdahlFit | None:
    return fit_amdahl(
        [
            Observed(row.world, found, apart=row.oversubscribed)
            for row in rows
            if (found := row.metric("speedup"))
        ]
    )


def _describe_fit(fit: AmdahlFit) -> str:
    share = fit.serial_share
    if fit.unbounded_share > 1:
        return (
            f"Amdahl's law cannot hold: {say_share(fit.unbounded_share)} of the step would have to be "
            "serial, for it knows no communication that more ranks make dearer."
        )
    interval = f" ({share.low * 100:.0f}–{share.high * 100:.0f})" if share.low < share.high else ""
    limit = f", so at most {1 / share.median:.2g} times as fast" if share.median > 0 else ""
    text = f"By Amdahl's law {say_share(share.median)}{interval} of the step is serial{limit}."
    if len(fit.worlds) < 3:
        text += " (One comparable world sets the law and cannot test it.)"
    return text


def _check_prediction(rows: list[LabRow], predict: Callable[[LabRow], Metric | None]) -> str:
    """Measured steps with the delay, against those without it and the delay."""
    pairs = [
        (row.world, found, predicted)
        for row in comparable(rows)
        if (found := row.metric("step_time_s")) and (predicted := predict(row))
    ]
    if not pairs:
        return ""
    listed = ", ".join(f"{say_change(found.median / p.median - 1)} on {world}" for world, found, p in pairs)
    agree = all(found.low <= p.high and p.low <= found.high for _, found, p in pairs)
    if not agree:
        verdict = "the delay does not simply add"
    elif all(abs(found.median / p.median - 1) <= CLOSE for _, found, p in pairs):
        verdict = "the delay simply adds"
    else:
        verdict = "whether the delay simply adds cannot be told"
    return f"Measured against predicted: {listed}; {verdict}."


# B: the batch


def _answer_batch(data: LabData, rows: list[LabRow]) -> tuple[Table | None, Question]:
    worlds = sorted({row.world for row in rows if row.world > 1})
    largest = [row for row in rows if row.world == worlds[-1]] if worlds else []
    if not largest:
        return None, cannot_answer(data, "5B", rows, "only one rank was measured")
    world = worlds[-1]
    table = build_table(
        "batch",
        f"Option B, on {world} ranks. Exposed: only communication runs.",
        [Column("batch", numeric=True)],
        [([row.argument("batch")], row) for row in largest],
        (
            Shown("step", "step_time_s"),
            Shown("speedup", "speedup"),
            Shown("exposed", "exposed_comm_share", share=True),
        ),
    )
    known = [row for row in comparable(largest) if row.metric("speedup")]
    known.sort(key=lambda row: float(row.argument("batch")))
    if len(known) < 2:
        return table, cannot_answer(data, "5B", largest, too_few_cores(largest))
    first, last = known[0].metric("speedup"), known[-1].metric("speedup")
    assert first is not None
    assert last is not None
    path = ", ".join(f"{value(row, 'speedup'):.2f} at {row.argument('batch')}" for row in known)
    if last.low > first.high:
        verdict = "**Yes.**"
    elif last.high < first.low:
        verdict = "**No, it makes it worse.**"
    else:
        verdict = "**That cannot be told, nor where it saturates: the intervals overlap.**"
    grows = last.low > first.high
    return table, answer(
        data, "5B", f"{verdict} S({world}) is {path}. {_describe_knee(known) if grows else ''}"
    )


def _describe_knee(rows: list[LabRow]) -> str:
    """Where a speedup that grows with the batch stops growing."""
    points = [
        Observed(float(row.argument("batch")), found) for row in rows if (found := row.metric("speedup"))
    ]
    knee = find_knee(points)
    if knee is None:
        return ""
    agree = f"{say_share(knee.certainty)} of redrawn measurements agree"
    if knee.certainty < SURE:
        at = "not at all" if knee.x is None else f"at {knee.x:g}"
        return f"Where it saturates cannot be told: by the medians {at}, but only {agree}."
    if knee.x is None:
        return (
            f"Up to {points[-1].x:g} it does not saturate: the last doubling gains more than 10 % ({agree})."
        )
    return f"It saturates at **{knee.x:g}**: from there doubling the batch gains less than 10 % ({agree})."


# C: one slow rank


def _answer_imbalance(data: LabData, rows: list[LabRow]) -> tuple[Table | None, Question]:
    slower_s = float(rows[0].argument("imbalance"))

    def added(row: LabRow) -> Metric | None:
        return difference(row.metric("step_time_s"), _plain(data, row).metric("step_time_s"))

    table = build_table(
        "imbalance",
        f"Option C: rank 0 sleeps {format_duration(slower_s)} in every step.",
        [Column("ranks", numeric=True)],
        [([str(row.world)], row) for row in rows],
        (
            Shown("before", lambda row: _plain(data, row).metric("step_time_s")),
            Shown("with", "step_time_s"),
            Shown("added", added),
        ),
    )
    known = [(row, found) for row in rows if row.is_measured and (found := added(row)) is not None]
    # Sleeping needs no core, so that even here worlds with too few cores come last.
    known.sort(key=lambda pair: (pair[0].oversubscribed, pair[0].world))
    if not known:
        return table, cannot_answer(data, "5C", rows, "no world was measured with and without")
    row, found = known[0]
    return table, answer(data, "5C", _judge_imbalance(row, found, slower_s))


def _judge_imbalance(row: LabRow, added: Metric, slower_s: float) -> str:
    mean_s = slower_s / row.world
    facts = (
        f"On {row.world} ranks a step takes {say_signed(added)} longer; by the maximum of ranks it would be "
        f"{format_duration(slower_s)}, by their mean {format_duration(mean_s)}."
    )
    middle_s = (slower_s + mean_s) / 2
    if is_above(added, middle_s):
        verdict = (
            "**The step is as long as its slowest rank's: the maximum counts, not the mean.** All wait for "
            "the last one."
        )
    elif is_below(added, mean_s / 2):
        verdict = "**Hardly anything: the others do not wait for the slow rank here.**"
    elif is_below(added, middle_s):
        verdict = (
            "**Less than the slow rank's delay is added: it is nearer to the mean than to the maximum.**"
        )
    else:
        verdict = "**The interval holds both the maximum and the mean; more rounds would tell.**"
    straggler = next((f for f in row.row.findings if f.code == "straggler"), None) if row.row else None
    if straggler is None:
        return f"{verdict} {facts}"
    rank, late_s = straggler.numbers["rank"], straggler.numbers["late_s"]
    return (
        f"{verdict} {facts} Found from the times alone: rank {rank:g} is late by {format_duration(late_s)}."
    )
