"""Tasks 1 to 3: which layers are where, what more of them cost, and the rule for any number of devices.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw3.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from paceline.analyse.devices import Move, Work, copies_of, moves_of, work_of
from paceline.analyse.fits import LineFit, Observed, fit_line
from paceline.labs.answers.asked import answer, cannot_answer, say_signed
from paceline.labs.answers.hw3.script import find_function, find_line, split_in_two, split_layers
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import is_above, is_below, ratio_of, say, say_share, scaled
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_bytes, format_duration
from paceline.record import Metric
from paceline.report.chart_parts import Point
from paceline.report.charts import Line, scatter
from paceline.report.document import Block, Code, Column, Figure, Question, SideBySide
from paceline.report.step_timeline import Span, device_timeline

FLOAT_BYTES = 4
ONE = Metric(1.0, 1.0, 1.0, 1, "ratio")
MOVE = "x = x.to(layer_device)"


# Task 1


def answer_two_devices(data: LabData) -> list[Block]:
    row = data.row("two-devices")
    script = data.lab.folder / row.experiment.program
    if not row.is_measured:
        return [cannot_answer(data, "1.1", [row], ""), cannot_answer(data, "1.2", [row], "")]
    return [_answer_layers(data, row, script), _answer_move(data, row, script)]


def _answer_layers(data: LabData, row: LabRow, script: Path) -> Question:
    depth, dim = int(row.argument("depth")), int(row.argument("dim"))
    devices = split_in_two(script, depth)
    source, first_line = find_function(script, "__init__")
    rule = next(line.strip() for line in source.splitlines() if line.strip().startswith("if "))
    numbers = [[layer for layer, at in enumerate(devices) if at == device] for device in (0, 1)]
    listed = " and ".join(
        f"**{len(layers)} on device {device}** (layers {_range(layers)})"
        for device, layers in enumerate(numbers)
    )
    # Weights and gradients of a layer, which both live at the peak.
    layer_bytes = 2 * FLOAT_BYTES * (dim * dim + dim)
    peaks = [row.metric(f"peak_bytes_of_device.{device}") for device in (0, 1)]
    held = ", ".join(
        f"device {device} held {format_bytes(peak.median)}, where weights and gradients of "
        f"{len(numbers[device])} layers are {format_bytes(len(numbers[device]) * layer_bytes)}"
        for device, peak in enumerate(peaks)
        if peak is not None
    )
    line_number = first_line + next(
        n for n, line in enumerate(source.splitlines()) if line.strip().startswith("if ")
    )
    text = f"{listed}, by `{rule}` in line {line_number} of `{script.name}` at DEPTH {depth}."
    return answer(data, "1.1", f"{text} At its peak {held}." if held else text)


def _answer_move(data: LabData, row: LabRow, script: Path) -> Question:
    depth = int(row.argument("depth"))
    devices = split_in_two(script, depth)
    at_layer = next((layer for layer in range(1, depth) if devices[layer] != devices[layer - 1]), None)
    number, code = find_line(script, MOVE)
    copies = copies_of(row.runs[-1], "forward_transfers")
    if not copies:
        return answer(
            data,
            "1.2",
            f"No copy between devices was seen in a forward pass, though line {number} has `{code}`.",
        )
    listed = ", ".join(
        f"{count} × from {_device(source)} to {_device(target)}, {format_bytes(size)} in all"
        for (source, target), (count, size) in copies.items()
    )
    where = f" before layer {at_layer}" if at_layer is not None else ""
    x_bytes = int(row.argument("batch")) * int(row.argument("dim")) * FLOAT_BYTES
    moved = sum(size for _, size in copies.values())
    count = sum(number for number, _ in copies.values())
    if count == 1 and moved == x_bytes:
        verdict = (
            f"**Once,{where}**, in line {number}, `{code}`: what moves is x, {row.argument('batch')} × "
            f"{row.argument('dim')} numbers."
        )
    else:
        verdict = (
            f"**{count} copies were counted, where x of {format_bytes(x_bytes)} should move once{where}.**"
        )
    traced = "".join(map(_describe_move, moves_of(row.runs[-1])))
    back = {pair: found for pair, found in copies_of(row.runs[-1]).items() if pair not in copies}
    returned = f" Backward sends {sum(n for n, _ in back.values())} back the other way." if back else ""
    handed = _describe_handover(work_of(row.runs[-1]))
    return answer(data, "1.2", f"{verdict} Traced in a forward pass: {listed}{traced}.{returned}{handed}")


def _describe_move(move: Move) -> str:
    at = f" in `{move.at}`" if move.at else ""
    return f"; it ran{at} after {move.after_products} matrix products, one for each layer"


def _describe_handover(work: Work | None) -> str:
    """When the first device stops and the second begins, in a sampled step."""
    if work is None or not {0, 1} <= set(work.busy):
        return ""
    second_s = work.busy[1][0][0]
    before = [end for _, end in work.busy[0] if end <= second_s]
    if not before:
        return ""
    return (
        f" In a sampled step device 0 stops after {format_duration(max(before))}, and device 1 begins "
        f"after {format_duration(second_s)}."
    )


def device_figure(name: str, row: LabRow, caption: str) -> Figure | None:
    """Who works when in a sampled step; None where the times of devices are not known."""
    work = work_of(row.runs[-1]) if row.runs else None
    if work is None:
        return None
    lanes = [
        (f"device {device}", [Span(start, end, "operators") for start, end in spans])
        for device, spans in work.busy.items()
    ]
    alt = f"{len(lanes)} devices over {format_duration(work.length_s)}."
    return Figure(name, caption, alt, device_timeline(lanes, work.length_s))


# Task 2


def answer_depth(data: LabData) -> list[Block]:
    rows = data.rows("depth")
    shallow = rows[0]
    table = build_table(
        "depth",
        "DEPTH against step time, on two devices. Against: the time over that of DEPTH "
        f"{shallow.argument('depth')}.",
        [Column("DEPTH", numeric=True)],
        [([row.argument("depth")], row) for row in rows],
        (
            Shown("step", "step_time_s"),
            Shown("against", lambda row: ONE if row is shallow else ratio_of(row, shallow)),
            Shown(
                "per layer",
                lambda row: scaled(row.metric("step_time_s"), 1 / int(row.argument("depth"))),
            ),
        ),
    )
    points = [(float(row.argument("depth")), row) for row in rows if row.metric("step_time_s")]
    fit = line_of(points)
    blocks: list[Block] = [table]
    if fit is not None:
        blocks = [SideBySide(table, line_figure("depth", points, fit, "DEPTH"))]
    return [*blocks, _answer_speed(data, rows, fit)]


def line_of(points: Sequence[tuple[float, LabRow]]) -> LineFit | None:
    """The step time over x."""
    return fit_line(
        [Observed(x, found, row.oversubscribed) for x, row in points if (found := row.metric("step_time_s"))]
    )


def line_figure(name: str, points: Sequence[tuple[float, LabRow]], fit: LineFit, x_title: str) -> Figure:
    shown = [
        Point(x, found, "", row.oversubscribed) for x, row in points if (found := row.metric("step_time_s"))
    ]
    line = Line(fit.intercept.median, fit.slope.median, fit.low, fit.high, "fitted line")
    return Figure(
        f"{name}-line",
        f"Step time over {x_title}.",
        f"{len(shown)} step times and the line {format_duration(fit.intercept.median)} + "
        f"{format_duration(fit.slope.median)} × {x_title}.",
        scatter(shown, x_title, "step time", line),
    )


def _answer_speed(data: LabData, rows: Sequence[LabRow], fit: LineFit | None) -> Question:
    measured = [row for row in rows if row.is_measured]
    if len(measured) < 2 or fit is None:
        return cannot_answer(data, "2.1", rows, "fewer than two depths were measured")
    first, last = measured[0], measured[-1]
    grown = ratio_of(last, first)
    depths = f"DEPTH {last.argument('depth')} takes {say(grown)} of DEPTH {first.argument('depth')}'s time"
    if is_above(grown):
        verdict = (
            "**No: more layers are more work, one after the other.** A second device adds no second worker."
        )
    elif is_below(grown):
        verdict = "**By these numbers, yes: the deeper model has the shorter step.**"
    else:
        verdict = "**No difference can be told from these intervals.**"
    return answer(
        data,
        "2.1",
        f"{verdict} {depths}; the fitted line gives **{say_signed(fit.slope)} per "
        f"layer**{_say_misfit(fit, measured)}.",
    )


def _say_misfit(fit: LineFit, rows: Sequence[LabRow]) -> str:
    misfit = misfit_of(fit, [(float(row.argument("depth")), row) for row in rows])
    return f", and the steps lie within {say_share(misfit)} of it"


def misfit_of(fit: LineFit, points: Sequence[tuple[float, LabRow]]) -> float:
    """The largest distance of a step time from the line, relative to it."""
    found = [(fit.at(x).median, metric.median) for x, row in points if (metric := row.metric("step_time_s"))]
    return max(abs(measured / fitted - 1) for fitted, measured in found if fitted)


# Task 3


def answer_index(data: LabData) -> list[Block]:
    script = data.lab.folder / data.row("two-and-five").experiment.program
    function, _ = find_function(script, "split_layers")
    without_comment = re.sub(r'\n *""".*?"""', "", function, flags=re.DOTALL)
    init, _ = find_function(script, "__init__")
    cases = ((7, 3), (20, 5), (3, 5))
    applied = "; ".join(
        f"{depth} on {devices}: {_counts(split_layers(script, depth, devices), devices)}"
        for depth, devices in cases
    )
    return [
        Code(f"{without_comment}\n\n{init}"),
        answer(
            data,
            "3.1",
            "`divmod` gives the layers that every device gets, and a remainder, of which the first devices "
            "take one each. So layer after layer has the index of its device: neighbours share one, and the "
            "data moves once between two devices, in order. With fewer layers than devices, the last ones "
            "stay empty. "
            f"The function itself gives, as layers per device: {applied}.",
        ),
    ]


def _counts(devices: Sequence[int], num_devices: int) -> str:
    return " + ".join(str(devices.count(device)) for device in range(num_devices))


def _range(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else ", ".join(map(str, numbers))


def _device(name: str) -> str:
    return f"device {name.rpartition(':')[2]}"
