"""Homework 2: time, memory and stability of Codes 1 to 3, and how much of the gain is which.

In: a `LabData`. Out: one section per task. Task 3 is in hw2_explained.py.
Exercise: `paceline lab report hw2`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from paceline.analyse.fits import Observed, fit_line
from paceline.labs.answers import hw2_explained
from paceline.labs.answers.facts import precision_of, say_count, sixteen_bit_share, time_per_sample
from paceline.labs.answers.figures import beside, strip_figure
from paceline.labs.answers.stability import judge
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import ratio_of, say, say_factor, say_share
from paceline.labs.data import LabData, LabRow
from paceline.report.chart_parts import Point
from paceline.report.charts import against
from paceline.report.document import Block, Code, Column, Figure, Paragraph, Section
from paceline.report.units import Unit

# The columns that the task asks for.
ASKED = (
    Shown("Time (s)", "step_time_s", unit=Unit(1.0, "s")),
    Shown("Memory (GB)", "peak_memory_bytes", unit=Unit(1e9, "GB")),
)
MEANING = "Time: of an optimizer step. Memory: the peak of all tensors of a rank; 1 GB is 10⁹ bytes."


def build(data: LabData) -> list[Section]:
    first, second, third = data.lab.tasks
    return [
        Section(f"Task {first.id}: {first.title}", _code3(data)),
        Section(f"Task {second.id}: {second.title}", [*_three_codes(data), *_sweep(data)]),
        Section(f"Task {third.id}: {third.title}", hw2_explained.build(data)),
    ]


def _code3(data: LabData) -> list[Block]:
    row = data.row("code3")
    if not row.is_measured:
        return [Paragraph(f"Code 3: {row.reason}.")]
    sixteen = sixteen_bit_share(row)
    scale, skips = row.metric("loss_scale"), row.metric("skipped_steps")
    scaler = (
        f"GradScaler's scale was {scale.median:.0f} and {skips.median:.0f} steps were skipped"
        if scale and skips
        else "no GradScaler was seen"
    )
    return [
        Paragraph(
            "`practical5_single.py` is Code 1 with these lines of AMP; the structure of the training is "
            "the same."
        ),
        Code(amp_lines(data)),
        Paragraph(
            "Seen in each optimizer step: "
            f"{say_count(row, 'micro_steps')} backward passes, "
            f"{say_count(row, 'synchronising_micro_steps')} of them synchronising; "
            f"{say_share(sixteen)} of the operations of matrix products in {precision_of(row)}; {scaler}."
        ),
    ]


def amp_lines(data: LabData) -> str:
    """What Code 3 has and Code 1 has not, of autocast and scaler, without the comments."""
    folder = data.lab.folder
    code1, code3 = (
        (folder / script).read_text(encoding="utf-8").splitlines()
        for script in ("../practical7/practical7_accumulation.py", "practical5_single.py")
    )
    added = [line[2:].partition("  #")[0] for line in difflib.ndiff(code1, code3) if line.startswith("+ ")]
    shown = [line.strip() for line in added if re.search("autocast|scaler", line)]
    return "\n".join(line for line in shown if not line.startswith("norm"))  # what --show-gradients prints


def _three_codes(data: LabData) -> list[Block]:
    code1, code2, code3 = data.row("code1-sweep", accum_steps=4), data.row("code2"), data.row("code3")
    twins = {"Code 1": None, "Code 2": data.row("code2-twin"), "Code 3": code1}
    lines = [([name], row) for name, row in (("Code 1", code1), ("Code 2", code2), ("Code 3", code3))]
    stability = []
    for (name,), row in lines:
        found = judge(row, twins[name])
        stability.append([found.describe().replace("**", "") if found else "–"])
    table = build_table(
        "codes",
        "The three codes; Codes 1 and 3 with ACCUM_STEPS 4, Code 2 with one micro-step. In small: 95 % "
        "intervals.",
        [Column("Code")],
        lines,
        ASKED,
        last=["Stability"],
        remarks=stability,
        notes=[
            f"{MEANING}{_say_per_sample(lines)}",
            "Stable: losses and gradients finite, at most a tenth of the steps skipped by GradScaler, no "
            "loss "
            "more than 5 % from an fp32 twin with the same seeds and data (Code 3's is Code 1, itself in "
            "fp32).",
        ],
    )
    return [table]


def _say_per_sample(lines: Sequence[tuple[Sequence[str], LabRow]]) -> str:
    """Code 2 has fewer samples in a step than the others: only this compares them."""
    known = [(name, time) for (name,), row in lines if (time := time_per_sample(row))]
    listed = ", ".join(f"{name} {say(time)}" for name, time in known)
    return f" Time per sample: {listed}." if len(known) > 1 else ""


def _sweep(data: LabData) -> list[Block]:
    rows = [*data.rows("code1-sweep"), *data.rows("code3-sweep")]
    if not rows:
        return [Paragraph(f"The sweep of ACCUM_STEPS: {data.reason('code1-sweep')}.")]
    lines = [([row.experiment.title, row.argument("accum-steps")], row) for row in rows]
    remarks = [[_observe(data, row)] for row in rows]
    table = build_table(
        "accum-steps",
        "Codes 1 and 3 with more micro-steps per optimizer step.",
        [Column("Code"), Column("ACCUM_STEPS", numeric=True)],
        lines,
        ASKED,
        last=["Observations"],
        remarks=remarks,
        notes=["Speeds are compared per sample. Where the interval holds 1, no difference is shown."],
    )
    strips = {
        "Code 1": data.row("code1-sweep", accum_steps=4),
        "Code 2": data.row("code2"),
        "Code 3": data.row("code3"),
    }
    return [table, *beside(accumulation_figure(data), strip_figure("steps", strips))]


def _observe(data: LabData, row: LabRow) -> str:
    """What this row shows beside the one before it, or beside Code 1."""
    if not row.is_measured:
        return "–"
    steps = int(row.argument("accum-steps"))
    if row.experiment.id == "code3-sweep":
        return f"speed of Code 1 {say_factor(ratio_of(data.row('code1-sweep', accum_steps=steps), row))}"
    if steps > 4:
        faster = ratio_of(data.row("code1-sweep", accum_steps=4), row, work=steps / 4)
        return f"speed of 4 steps {say_factor(faster)}"
    share = row.metric("exposed_comm_share")
    return f"{say_share(share.median)} of the step waits for gradients" if share else "the shortest step"


def accumulation_figure(data: LabData) -> Figure | None:
    """Time against ACCUM_STEPS, with no_sync() as lines and without as single marks."""
    points = []
    for id, name in (
        ("code1-sweep", "Code 1"),
        ("code3-sweep", "Code 3"),
        ("code1-always-synchronised", "Code 1, sync all"),
        ("code3-always-synchronised", "Code 3, sync all"),
    ):
        for row in data.rows(id):
            time = row.metric("step_time_s")
            if time:
                points.append(Point(float(row.argument("accum-steps")), time, name, row.oversubscribed))
    if not points:
        return None
    line = fit_line(
        [Observed(p.x, p.metric) for p in points if p.series == "Code 1" and isinstance(p.x, float)]
    )
    fitted = (
        f" Code 1 follows {say(line.slope, interval=False)} per micro-step + "
        f"{say(line.intercept, interval=False)} per optimizer step."
        if line
        else ""
    )
    return Figure(
        "accumulation",
        f"Time of an optimizer step. Sync all: without no_sync().{fitted}",
        f"Step time over ACCUM_STEPS for {', '.join(dict.fromkeys(p.series for p in points))}.",
        against(points, "ACCUM_STEPS", "step time"),
    )
