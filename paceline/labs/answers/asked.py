"""Questions in the words of the lab.toml, with what stands below them; and what several answers conclude.

In: a `LabData`, texts, metrics. Out: a `Question`, or a phrase.
Exercise: `pytest tests/unit/test_lab_answers_hw1.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.labs.answers.words import first_reason, is_above, is_below
from paceline.labs.data import LabData, LabRow
from paceline.record import Metric
from paceline.report.document import Block, Paragraph, Question
from paceline.report.drawing import Chart
from paceline.report.units import choose_unit


def answer(data: LabData, question_id: str, *said: str | Block) -> Question:
    """Texts are paragraphs; empty ones are left out."""
    text = next(
        question.text for task in data.lab.tasks for question in task.questions if question.id == question_id
    )
    blocks = [Paragraph(one) if isinstance(one, str) else one for one in said if one]
    return Question(text, blocks)


def cannot_answer(data: LabData, question_id: str, rows: Sequence[LabRow], otherwise: str) -> Question:
    """Why there is no answer: the reason of a row that is missing, or `otherwise`."""
    return answer(data, question_id, f"Cannot be answered: {first_reason(rows) or otherwise}.")


def comparable(rows: Sequence[LabRow]) -> list[LabRow]:
    """Those that were measured with a core or an accelerator for each rank, smallest world first."""
    chosen = [row for row in rows if row.is_measured and not row.oversubscribed]
    return sorted(chosen, key=lambda row: row.world)


def find_largest(rows: Sequence[LabRow]) -> LabRow | None:
    """The largest comparable world of several ranks."""
    several = [row for row in comparable(rows) if row.world > 1]
    return several[-1] if several else None


def too_few_cores(rows: Sequence[LabRow]) -> str:
    """Why no world of several ranks is comparable."""
    return (
        "no world of several ranks had a core for each of them, and ranks that take turns show no scaling"
        if any(row.oversubscribed for row in rows)
        else "no world of several ranks was measured"
    )


def judge_speedup(speedup: Metric, world: int) -> str:
    """What a speedup and its interval allow to be said, as the end of a sentence."""
    if is_above(speedup, world):
        return f"more than linear: {world} ranks are more than {world} times as fast"
    if is_below(speedup, 1.0):
        return f"no speedup at all: {world} ranks are slower than one"
    if is_below(speedup, world):
        if is_above(speedup, 1.0):
            return f"less than linear: {world} ranks gain, but not {world} times"
        return f"less than linear; whether {world} ranks gain anything cannot be told"
    if is_above(speedup, 1.0):
        return "linear, as far as the interval tells"
    return "unknown: the interval holds both no gain and a linear one"


def lower(chart: Chart, height_px: int) -> Chart:
    """A chart that stands beside a short table leaves no gap below it."""
    return replace(chart, spec={**chart.spec, "height": height_px})


def difference(top: Metric | None, bottom: Metric | None) -> Metric | None:
    """top − bottom, with the widest interval that both allow."""
    if top is None or bottom is None:
        return None
    median = top.median - bottom.median
    return Metric(median, top.low - bottom.high, top.high - bottom.low, min(top.n, bottom.n), top.unit)


def say_signed(metric: Metric) -> str:
    """`−281 µs (−653 to 100)`: a dash between numbers that may be negative would read as a minus."""
    # An interval that reaches far beyond its median is read in its own unit.
    unit = choose_unit([metric.median, metric.low / 5, metric.high / 5], metric.unit)

    def show(number: float) -> str:
        return ("−" if number < 0 else "") + replace(unit, name="").show(abs(number))

    interval = f" ({show(metric.low)} to {show(metric.high)})" if metric.low < metric.high else ""
    return f"{show(metric.median)} {unit.name}{interval}"


def say_change(relative: float) -> str:
    """`+13 %`, `−2 %`, `0 %`."""
    percent = round(relative * 100)
    return f"{'+' if percent > 0 else '−' if percent < 0 else ''}{abs(percent)} %"


def value(row: LabRow | None, name: str, default: float = 0.0) -> float:
    """The median alone, for arithmetic in a sentence."""
    metric = row.metric(name) if row else None
    return default if metric is None else metric.median
