"""Task 1: what warm-up does to a mean, and what a seed does to two runs.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw1.py -k task1`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline.analyse.intervals import Array
from paceline.analyse.steps import aligned
from paceline.labs.answers.asked import answer, cannot_answer, lower
from paceline.labs.answers.words import say_share
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_duration
from paceline.record import SAMPLED, WARMUP, RunRecord
from paceline.report.charts import step_strip
from paceline.report.document import Block, Cell, Column, Figure, Question, SideBySide, Table

# What the scripts time: from the beginning of forward to the end of the optimizer's step.
TIMED_PHASES = ("forward_s", "backward_s", "optimizer_s", "other_s")
LOW_PX = 150  # beside a table of four rows
MATTERS = 0.05  # warm-up changes a mean noticeably


def answer_reproducible(data: LabData) -> list[Block]:
    seeded, unseeded = data.row("seeded"), data.row("unseeded")
    shown: list[Block] = []
    losses = _losses_table(seeded, unseeded)
    if seeded.is_measured and _first_steps(seeded.runs[0])[1]:
        times, warmup = _first_steps(seeded.runs[0])
        figure = Figure(
            "warmup",
            "Steps of one launch; hollow: warm-up.",
            f"Times of {len(times)} steps, of which the first {warmup} are warm-up.",
            lower(step_strip({f"{seeded.world} ranks": times.tolist()}, warmup), LOW_PX),
        )
        shown.append(SideBySide(losses, figure) if losses else figure)
    elif losses:
        shown.append(losses)
    return [*shown, _answer_warmup(data, seeded), _answer_randomness(data, seeded, unseeded)]


def _answer_warmup(data: LabData, row: LabRow) -> Question:
    launches = [_first_steps(run) for run in row.runs]
    if not launches or not all(warmup and len(times) > warmup for times, warmup in launches):
        return cannot_answer(data, "1.1", [row], "no warm-up steps were recorded")
    change = float(np.median([times.mean() / times[warmup:].mean() - 1 for times, warmup in launches]))
    first, warmup = launches[0]
    steady_s = float(np.median(first[warmup:]))
    shown = ", ".join(format_duration(seconds) for seconds in first[:warmup])
    facts = (
        f"In one launch they took {shown}; the median of the steps after them is "
        f"{format_duration(steady_s)}. The first is {first[0] / steady_s:.1f} times as long. With them the "
        f"mean of a run would be {abs(change) * 100:.0f} % {'higher' if change >= 0 else 'lower'} (median of "
        f"{len(launches)} launches)."
    )
    if change > MATTERS:
        verdict = (
            "**They would spoil the mean.** In them threads, memory and connections are made, and DDP orders "
            "its buckets anew."
        )
    else:
        verdict = (
            "**In this run they hardly matter.** Leaving them out costs nothing, and guards against runs in "
            "which start-up is dearer."
        )
    return answer(data, "1.1", f"{verdict} {facts}")


def _answer_randomness(data: LabData, seeded: LabRow, unseeded: LabRow) -> Question:
    texts = []
    for row, name in ((seeded, "With fixed seeds"), (unseeded, "Without seeds")):
        if len(row.runs) < 2:
            texts.append(f"{name}: {row.reason or 'a second run is missing, so nothing can be compared'}.")
            continue
        first, apart = _compare_losses(row.runs)
        if first is None:
            texts.append(f"{name}, the losses of {len(row.runs)} runs are equal in every bit.")
        else:
            texts.append(
                f"{name}, the losses differ from step {first + 1} on, by up to {say_share(apart)}."
                if apart >= 1e-3
                else f"{name}, the losses differ from step {first + 1} on, by up to {apart:.1g} of their "
                "value."
            )
    if len(seeded.runs) < 2 or len(unseeded.runs) < 2:
        return answer(data, "1.2", " ".join(texts))
    repeats, varies = (_compare_losses(row.runs)[0] is None for row in (seeded, unseeded))
    if repeats and not varies:
        verdict = "**So that runs differ in what was changed on purpose, and in nothing else.**"
    elif repeats:
        verdict = "**Here nothing random was left: even without seeds the runs were equal.**"
    else:
        verdict = (
            "**Seeds were not enough here:** something else than the random numbers changes from run to run, "
            "such as the order in which sums are formed."
        )
    return answer(data, "1.2", " ".join([verdict, *texts]))


def _losses_table(seeded: LabRow, unseeded: LabRow) -> Table | None:
    """The first, a middle and the last loss of two runs each, with all their digits."""
    launches = [
        (f"{name}, run {place}", _losses(run)[0])
        for row, name in ((seeded, "seeds"), (unseeded, "no seeds"))
        for place, run in enumerate(row.runs[:2], start=1)
        if _losses(run).size
    ]
    if not launches:
        return None
    num_steps = min(len(losses) for _, losses in launches)
    chosen = sorted({0, num_steps // 2, num_steps - 1})
    return Table(
        "losses",
        "Losses of rank 0.",
        [Column("run"), *(Column(f"step {step + 1}", numeric=True) for step in chosen)],
        [[name, *(Cell(f"{losses[step]:#.9g}") for step in chosen)] for name, losses in launches],
    )


def _first_steps(run: RunRecord) -> tuple[Array, int]:
    """Seconds of the slowest rank in every step but the sampled ones, and how many of them are warm-up."""
    phases = np.nan_to_num(np.array([aligned(run, name) for name in TIMED_PHASES]))
    kinds = aligned(run, "kind")
    if not kinds.size:
        return np.empty(0), 0
    times = phases.sum(axis=0).max(axis=0)[kinds[0] != SAMPLED]
    return times, int((kinds[0] == WARMUP).sum())


def _losses(run: RunRecord) -> Array:
    """Ranks × steps, as far as all are known."""
    losses = aligned(run, "loss")
    return losses if losses.size and np.isfinite(losses).all() else np.empty((0, 0))


def _compare_losses(runs: Sequence[RunRecord]) -> tuple[int | None, float]:
    """The first step at which two runs differ in any rank's loss, None if they never do; by how much."""
    first, *others = [_losses(run) for run in runs]
    earliest, most = math.inf, 0.0
    for other in others:
        num_steps = min(first.shape[1], other.shape[1])
        differs = (first[:, :num_steps] != other[:, :num_steps]).any(axis=0)
        if differs.any():
            earliest = min(earliest, int(np.argmax(differs)))
            apart = np.abs(first[:, :num_steps] / other[:, :num_steps] - 1)
            most = max(most, float(np.nanmax(apart)))
    return (None if math.isinf(earliest) else int(earliest)), most
