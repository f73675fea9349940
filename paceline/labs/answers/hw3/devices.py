"""Task 4: twenty layers on two and on five devices.

In: a `LabData`. Out: blocks. Exercise: `pytest tests/unit/test_lab_answers_hw3.py -k task4`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.labs.answers.asked import answer, cannot_answer, value
from paceline.labs.answers.hw3.layers import device_figure
from paceline.labs.answers.tables import Shown, build_table
from paceline.labs.answers.words import is_above, is_below, ratio_of, say, say_share
from paceline.labs.data import LabData, LabRow
from paceline.quantity import format_bytes
from paceline.record import Metric
from paceline.report.document import Block, Column, Question
from paceline.report.terminal import NOT_KNOWN, show_number
from paceline.report.units import Unit

MEBIBYTES = Unit(2.0**20, "MiB")
TOGETHER = 0.05  # of the step, in which two devices work: below it they take turns


def answer_devices(data: LabData) -> list[Block]:
    rows = data.rows("two-and-five")
    table = build_table(
        "devices",
        "20 layers. Work: a device's share of a sampled step, the most and the least of any; together: of "
        "two or more devices at once. Memory: peaks, of device 0 first.",
        [Column("devices", numeric=True)],
        [([row.argument("devices")], row) for row in rows],
        (
            Shown("step", "step_time_s"),
            Shown("memory of all", _all_memory),
            Shown("work, most", lambda row: max(_shares(row), key=_median, default=None), share=True),
            Shown("work, least", lambda row: min(_shares(row), key=_median, default=None), share=True),
            Shown("together", "devices_together_share", share=True),
        ),
        last=[f"memory of each, {MEBIBYTES.name}"],
        remarks=[[_list_memory(row)] for row in rows],
    )
    figures = [
        figure
        for row in rows[-1:]
        if (figure := device_figure("turns", row, f"One sampled step on {row.argument('devices')} devices."))
    ]
    return [table, *figures, _answer_utilised(data, rows), _answer_faster(data, rows)]


def _num_devices(row: LabRow) -> int:
    return int(row.argument("devices"))


def _peaks(row: LabRow) -> list[Metric]:
    found = (row.metric(f"peak_bytes_of_device.{device}") for device in range(_num_devices(row)))
    return [peak for peak in found if peak is not None]


def _shares(row: LabRow) -> list[Metric]:
    found = [row.metric(f"busy_share_of_device.{device}") for device in range(_num_devices(row))]
    return [share for share in found if share is not None]


def _median(metric: Metric) -> float:
    return metric.median


def _list_memory(row: LabRow) -> str:
    """`20.3, 25.0`, device 0 first."""
    return ", ".join(show_number(peak.median, MEBIBYTES) for peak in _peaks(row)) or NOT_KNOWN


def _all_memory(row: LabRow) -> Metric | None:
    total = sum(peak.median for peak in _peaks(row))
    return Metric(total, total, total, 1, "bytes") if total else None


def _answer_utilised(data: LabData, rows: Sequence[LabRow]) -> Question:
    known = [row for row in rows if row.metric("devices_together_share")]
    if not known:
        return cannot_answer(data, "4.1", rows, "when each device works is not known on these devices")
    row = known[-1]
    together = value(row, "devices_together_share")
    work = sum(share.median for share in _shares(row))
    idle = [device for device in range(_num_devices(row)) if not value(row, f"busy_share_of_device.{device}")]
    shares = ", ".join(f"{say_share(share.median / work)}" for share in _shares(row) if work)
    if idle:
        verdict = f"**No: {len(idle)} of {_num_devices(row)} devices did nothing.**"
    elif together < TOGETHER:
        verdict = "**All work, but one at a time: each waits while another computes.**"
    else:
        verdict = f"**Yes, and at once: in {say_share(together)} of the step at least two are at work.**"
    return answer(
        data,
        "4.1",
        f"{verdict} In a sampled step on {_num_devices(row)} devices two or more were at work for "
        f"{say_share(together)} of the time; of all work the devices did {shares}.",
    )


def _answer_faster(data: LabData, rows: Sequence[LabRow]) -> Question:
    measured = [row for row in rows if row.is_measured]
    if len(measured) < 2:
        return cannot_answer(data, "4.2", rows, "only one number of devices was measured")
    few, many = measured[0], measured[-1]
    ratio = ratio_of(many, few)
    # Where two were at work at once, or nobody counted, the answer must not speak of turns.
    turns = value(many, "devices_together_share", default=1.0) < TOGETHER
    facts = f"The step on {_num_devices(many)} devices takes {say(ratio)} of that on {_num_devices(few)}."
    if is_above(ratio):
        after_another = ", one device after the other" if turns else ""
        verdict = f"**No, it is slower:** the same work{after_another}, with more copies between."
    elif is_below(ratio) and turns:
        verdict = (
            "**Here it is faster**, though one device works at a time: likely smaller parts suit caches."
        )
    elif is_below(ratio):
        verdict = "**Here it is faster.**"
    else:
        after_another = ", one device after the other" if turns else " on either"
        verdict = f"**No difference can be told.** The same work is done{after_another}."
    before, after = (max(_peaks(row), key=_median, default=None) for row in (few, many))
    if before is None or after is None:
        return answer(data, "4.2", f"{verdict} {facts}")
    changes = "What it gains is memory" if after.median < before.median else "It gains no memory either"
    held = (
        f"{changes}: the fullest device holds {format_bytes(after.median)} instead of "
        f"{format_bytes(before.median)}."
    )
    return answer(data, "4.2", f"{verdict} {facts} {held}")
