"""Task 5: copies between devices, counted, and what each of them costs.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw3.py -k task5`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.analyse.devices import copies_of, device_facts
from paceline.analyse.fits import LineFit, Observed, fit_line
from paceline.labs.answers.asked import answer, cannot_answer, say_signed, value
from paceline.labs.answers.hw3.layers import line_figure, line_of, misfit_of
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import is_above, is_below, say_share
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_bytes, format_duration, parse_link
from paceline.record import Metric
from paceline.report.document import Block, Column, Figure, Question, SideBySide
from paceline.report.transfers import Transfers

LINK = "transfers-over-link"
STRAIGHT = 0.15  # relative distance from a line


def answer_transfers(data: LabData) -> list[Block]:
    rows, linked = data.rows("transfers"), data.rows(LINK)
    over_link = {row.argument("devices"): row for row in linked}
    shown = [
        Shown("copies, forward", "device_copies_per_forward"),
        Shown("copies, step", "device_copies_per_step"),
        Shown("bytes, step", "device_copy_bytes_per_step"),
        Shown("step", "step_time_s"),
    ]
    notes = []
    if any(row.is_measured for row in linked):
        shown.append(
            Shown("over the link", lambda row: _over_link(over_link, row), why="not measured over the link")
        )
        notes.append(f"Over the link: the same, copies delayed as by {_say_link(linked[0])}.")
    table = build_table(
        "transfers",
        "20 layers on 1 to 8 devices: copies between devices.",
        [Column("devices", numeric=True)],
        [([row.argument("devices")], row) for row in rows],
        shown,
        notes=notes,
    )
    points = [(float(row.argument("devices")), row) for row in rows if row.metric("step_time_s")]
    line_points = [(float(row.argument("devices")), row) for row in linked if row.metric("step_time_s")]
    fit, link_fit = line_of(points), line_of(line_points)
    drawn = line_points if link_fit else points
    best = link_fit or fit
    blocks: list[Block] = [table]
    figures = [_matrix(rows)]
    if best is not None:
        figures.insert(0, line_figure("transfers", drawn, best, "devices"))
    there = [figure for figure in figures if figure is not None]
    blocks += [SideBySide(there[0], there[1])] if len(there) > 1 else there
    return [*blocks, _answer_count(data, rows), _answer_relation(data, rows, fit, link_fit)]


def _over_link(over_link: dict[str, LabRow], row: LabRow) -> Metric | None:
    found = over_link.get(row.argument("devices"))
    return found.metric("step_time_s") if found else None


def _say_link(row: LabRow) -> str:
    bandwidth, delay_s = parse_link(row.experiment.link or "")
    return f"a link of {bandwidth / 1e9:g} GB/s and {format_duration(delay_s)}"


def _matrix(rows: Sequence[LabRow]) -> Figure | None:
    """The copies of one step on five devices, or as many as there were."""
    known = [row for row in rows if row.runs and copies_of(row.runs[-1])]
    row = next((row for row in known if row.argument("devices") == "5"), known[-1] if known else None)
    if row is None:
        return None
    copies = {
        (_short(source), _short(target)): found for (source, target), found in copies_of(row.runs[-1]).items()
    }
    devices = tuple(f"device {n}" for n in range(int(row.argument("devices"))))
    total = sum(count for count, _ in copies.values())
    return Figure(
        "copies",
        f"Copies of one step on {len(devices)} devices: forward above the diagonal, backward below.",
        f"{total} copies between neighbouring devices.",
        Transfers(devices, copies),
    )


def _short(name: str) -> str:
    return f"device {name.rpartition(':')[2]}"


def _answer_count(data: LabData, rows: Sequence[LabRow]) -> Question:
    wanted = [data.row("transfers", devices=devices) for devices in (2, 5)]
    known = [row for row in wanted if row.metric("device_copies_per_forward")]
    if not known:
        return cannot_answer(data, "5.1", wanted, "no copies were counted")
    counted = " and ".join(
        f"**{value(row, 'device_copies_per_forward'):g} with {row.argument('devices')} devices**"
        for row in known
    )
    by = {fact.get("counted_by") for row in known for fact in device_facts(row.runs[-1])}
    how = "Counted by the devices themselves" if by == {"device"} else "Counted from the operators"
    forward = [value(row, "device_copies_per_forward") for row in known]
    cuts = [float(row.argument("devices")) - 1 for row in known]
    each = value(known[-1], "device_copy_bytes_per_forward") / max(forward[-1], 1)
    rule = (
        "one for each cut of the model" if forward == cuts else "which is not one for each cut of the model"
    )
    back = value(known[-1], "device_copies_per_step") - forward[-1]
    return answer(
        data,
        "5.1",
        f"{counted}: {rule}. {how}; each is {format_bytes(each)}. Backward adds {back:g} on "
        f"{known[-1].argument('devices')} devices.",
    )


def _answer_relation(
    data: LabData, rows: Sequence[LabRow], fit: LineFit | None, link_fit: LineFit | None
) -> Question:
    counts = fit_line(
        [
            Observed(float(row.argument("devices")), found)
            for row in rows
            if (found := row.metric("device_copies_per_step"))
        ]
    )
    if fit is None or counts is None:
        return cannot_answer(data, "5.2", rows, "fewer than two numbers of devices were counted")
    texts = [
        f"Every device more adds {counts.slope.median:.3g} copies to a step, "
        f"{format_bytes(_bytes_per_copy(rows))} each. In memory the fitted line is {say_signed(fit.slope)} "
        f"per device, {_judge_slope(fit)}."
    ]
    judged, points = fit, rows
    if link_fit is not None:
        judged, points = link_fit, data.rows(LINK)
        bandwidth, delay_s = parse_link(points[0].experiment.link or "")
        expected_s = counts.slope.median * (delay_s + _bytes_per_copy(rows) / bandwidth)
        texts.append(
            f"Over the emulated link it is **{say_signed(link_fit.slope)} per device**; the delay and "
            f"bandwidth of its copies alone are {format_duration(expected_s)}."
        )
    elif reason := data.reason(LINK):
        texts.append(f"Over a link: {reason}.")
    where = "Over the emulated link" if judged is link_fit else "Here"
    misfit = misfit_of(judged, [(float(row.argument("devices")), row) for row in points])
    if is_above(judged.slope, 0) and misfit <= STRAIGHT:
        verdict = f"**{where} copies and step grow in a straight line**, to {say_share(misfit)} of it."
    elif is_above(judged.slope, 0):
        verdict = (
            f"**{where} copies and step grow**, the step not in a straight line: {say_share(misfit)} off it."
        )
    elif is_below(judged.slope, 0):
        verdict = f"**{where} the copies grow, the time of a step falls.**"
    else:
        verdict = f"**{where} the copies grow; that the step grows too cannot be told.**"
    return answer(data, "5.2", " ".join([verdict, *texts]))


def _bytes_per_copy(rows: Sequence[LabRow]) -> float:
    """Of a step's copies, on the most devices."""
    row = max(rows, key=lambda row: value(row, "device_copies_per_step"))
    return value(row, "device_copy_bytes_per_step") / max(value(row, "device_copies_per_step"), 1.0)


def _judge_slope(fit: LineFit) -> str:
    if is_above(fit.slope, 0):
        return "so each costs time"
    return "so more of them are faster" if is_below(fit.slope, 0) else "not told apart from none"
