"""Task 4: one process that drives all devices, against a process per device.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw1.py -k task4`.
"""

from __future__ import annotations

from paceline.analyse.devices import copies_of, device_facts
from paceline.labs.answers.asked import answer, cannot_answer, value
from paceline.labs.answers.figures import beside
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import is_above, is_below, ratio_of, say, say_share
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_bytes
from paceline.record import Metric
from paceline.report.cells import metric_cell
from paceline.report.document import Block, Cell, Column, Question, Table
from paceline.report.terminal import unit_of

FULLER = 1.1  # device 0 holds this many times as much as the fullest of the others
MOST = 0.9  # of the bytes copied between devices

NOT_SEEN = "a not counted on these devices."
THREADS = "DP's forward threads are not seen: its devices worked longer."


def answer_dataparallel(data: LabData) -> list[Block]:
    dp, ddp = data.rows("dp"), data.rows("ddp-on-devices")
    rows = [*dp, *ddp]
    table = build_table(
        "dataparallel",
        "DataParallel (DP) and DDP: step, its spread, and what it sends to other devices (DDP: one rank).",
        ["mode", Column("devices", numeric=True)],
        [([_mode(row), str(_num_devices(row))], row) for row in rows],
        (
            Shown("step", "step_time_s"),
            Shown("spread", "step_time_spread", share=True),
            Shown("sent", _sent),
        ),
    )
    widest = _widest(dp)
    same = next((row for row in ddp if widest and _num_devices(row) == _num_devices(widest)), None)
    devices = _devices_table(widest, same) if widest else None
    return [
        *beside(table, devices),
        _answer_bottleneck(data, dp, widest),
        _answer_scaling(data, dp, ddp),
        _answer_acceptable(data, dp, ddp),
    ]


def _mode(row: LabRow) -> str:
    return "DDP" if row.experiment.kind == "ranks" else "DP"


def _num_devices(row: LabRow) -> int:
    return row.world if row.experiment.kind == "ranks" else int(row.argument("devices"))


def _widest(rows: list[LabRow]) -> LabRow | None:
    """The measured row with most devices."""
    measured = [row for row in rows if row.is_measured and row.metric("peak_bytes_of_device.0")]
    return max(measured, key=_num_devices, default=None)


def _sent(row: LabRow) -> Metric | None:
    return row.metric("collective_bytes" if row.experiment.kind == "ranks" else "device_copy_bytes_per_step")


def _peaks(row: LabRow) -> list[Metric]:
    found = [row.metric(f"peak_bytes_of_device.{device}") for device in range(_num_devices(row))]
    return [peak for peak in found if peak is not None]


def _fullest_other(row: LabRow) -> Metric | None:
    return max(_peaks(row)[1:], key=lambda peak: peak.median, default=None)


def _short(pair: tuple[str, str]) -> tuple[str, str]:
    """`virtual:0` → `device 0`."""
    source, target = (f"device {name.rpartition(':')[2]}" for name in pair)
    return source, target


def _devices_table(dp: LabRow, ddp: LabRow | None) -> Table:
    """Memory and work of every device under both."""
    columns, cells = [Column("device", numeric=True)], [[str(n)] for n in range(_num_devices(dp))]
    lines: list[list[Cell | str]] = [list(line) for line in cells]
    seen = [row.row for row in (dp, ddp) if row is not None and row.row is not None]
    for name, heading in (("peak_bytes_of_device", "memory"), ("busy_share_of_device", "at work")):
        names = [f"{name}.{device}" for device in range(len(lines))]
        unit = unit_of(
            ["busy_share"] if heading == "at work" else [n for n in names if n in seen[0].metrics], seen
        )
        for mode, row in (("DP", dp), ("DDP", ddp)):
            columns.append(Column(f"{mode}, {unit.name}", numeric=True))
            for line, one in zip(lines, names, strict=True):
                metric = row.metric(one) if row else None
                shown = (
                    Metric(metric.median, metric.median, metric.median, 1, metric.unit) if metric else None
                )
                line.append(metric_cell(shown, unit, mark="" if shown else NOT_SEEN[0]))
    notes = [] if _is_unseen(dp) else [THREADS]
    if any(isinstance(cell, Cell) and cell.mark for line in lines for cell in line):
        notes.insert(0, NOT_SEEN)
    return Table(
        "devices",
        f"Each of {len(lines)} devices: peak memory, share of work.",
        columns,
        lines,
        notes,
    )


def _is_unseen(row: LabRow) -> bool:
    """Whether no device's work is known at all."""
    return row.metric("busy_share_of_device.0") is None


def _answer_bottleneck(data: LabData, rows: list[LabRow], widest: LabRow | None) -> Question:
    if widest is None:
        return cannot_answer(data, "4.1", rows, "what each device held and sent was not counted")
    copies = copies_of(widest.runs[-1])
    total = sum(size for _, size in copies.values())
    at_0 = sum(size for pair, (_, size) in copies.items() if "device 0" in _short(pair))
    peaks = _peaks(widest)
    other = _fullest_other(widest)
    if not total or other is None:
        return cannot_answer(data, "4.1", [widest], "no copies between devices were counted")
    share = at_0 / total
    fuller = peaks[0].median / other.median if other.median else float("inf")
    facts = (
        f"On {_num_devices(widest)} devices {say_share(share)} of the {format_bytes(total)} that a step "
        f"copies between devices leave or reach device 0, and it holds {format_bytes(peaks[0].median)} at "
        f"its peak, the fullest of the others {format_bytes(other.median)}."
    )
    if share >= MOST and fuller >= FULLER:
        verdict = (
            "**Everything passes through it**: weights and samples out, outputs and gradients back; loss and "
            "optimizer run there alone."
        )
    elif share >= MOST:
        verdict = "**All copies pass through it, but it holds no more than the others.**"
    elif fuller >= FULLER:
        verdict = "**It holds most, but the copies are spread over the devices.**"
    else:
        verdict = "**Here it is none:** device 0 neither passes on most of the bytes nor holds more."
    return answer(data, "4.1", f"{verdict} {facts}")


def _answer_scaling(data: LabData, dp: list[LabRow], ddp: list[LabRow]) -> Question:
    pairs = _pairs(dp, ddp)
    if not pairs:
        return cannot_answer(data, "4.2", [*dp, *ddp], "no number of devices has both modes")
    judged = [pair for pair in pairs if not pair[1].oversubscribed] or pairs
    single, several = judged[-1]
    devices, gain = _num_devices(single), ratio_of(single, several)
    if several.oversubscribed:
        verdict = f"**Times cannot tell here:** {devices} ranks had fewer cores than that."
    elif is_above(gain):
        verdict = f"**It does: on {devices} devices DataParallel's step takes {say(gain)} of DDP's.**"
    elif is_below(gain):
        verdict = (
            f"**Here it does not: on {devices} devices DataParallel's step takes {say(gain)} of DDP's.**"
        )
    else:
        verdict = f"**Neither can be called faster on {devices} devices**: {say(gain)} of DDP's step."
    return answer(data, "4.2", f"{verdict} {_describe_traffic(pairs)}")


def _describe_traffic(pairs: list[tuple[LabRow, LabRow]]) -> str:
    """What a step of either mode sends, as counted."""
    sent = [(value(row, "device_copy_bytes_per_step"), _num_devices(row)) for row, _ in pairs]
    gradients = {value(row, "collective_bytes") for _, row in pairs}
    if not all(size for size, _ in sent) or not all(gradients):
        return ""
    copied = " and ".join(f"{format_bytes(size)} on {devices}" for size, devices in sent)
    reduced = " or ".join(format_bytes(size) for size in sorted(gradients))
    # Between GPUs the weights travel by NCCL, which only the devices' own count would see.
    counted = all(fact["counted_by"] == "device" for row, _ in pairs for fact in device_facts(row.runs[-1]))
    again = ", the weights each time again" if counted else ", besides the weights, which were not counted"
    whatever = ", whatever their number," if len(gradients) == 1 < len(pairs) else ""
    return (
        f"DataParallel copies {copied} devices in a step{again}; a DDP rank{whatever} "
        f"passes on {reduced} of gradients, while backward still runs."
    )


def _pairs(dp: list[LabRow], ddp: list[LabRow]) -> list[tuple[LabRow, LabRow]]:
    """DataParallel and DDP on as many devices, both measured."""
    by_devices = {_num_devices(row): row for row in ddp if row.is_measured}
    return [
        (row, by_devices[_num_devices(row)])
        for row in dp
        if row.is_measured and _num_devices(row) in by_devices
    ]


def _answer_acceptable(data: LabData, dp: list[LabRow], ddp: list[LabRow]) -> Question:
    pairs = [pair for pair in _pairs(dp, ddp) if not pair[1].oversubscribed]
    reference = (
        "few devices, a large batch for each set of weights sent, and one changed line that counts for more."
    )
    if not pairs:
        return answer(data, "4.3", f"Not shown by a time here. Reference: {reference}")
    single, several = min(pairs, key=lambda pair: _num_devices(pair[0]))
    cost = ratio_of(single, several)
    if cost is None:
        return answer(data, "4.3", f"Not shown by a time here. Reference: {reference}")
    devices = _num_devices(single)
    if is_below(cost):
        verdict = f"**On {devices} devices it was the faster one here**: its step takes {say(cost)} of DDP's."
    elif is_above(cost):
        verdict = (
            f"**Where its price does not matter:** on {devices} devices a step takes {say(cost)} of DDP's."
        )
    else:
        verdict = (
            f"**On {devices} devices no difference can be told here**: its step is {say(cost)} of DDP's."
        )
    return answer(data, "4.3", f"{verdict} Reference: {reference}")
