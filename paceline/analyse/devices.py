"""What each device of the counted step held and did, and what was copied between devices.

In: the fact "devices" of every rank. Out: peak bytes and share of work per device, copies per step and per
forward pass, and the matrix behind them. Copies to or from the host are not between devices.
Try it: `pytest tests/unit/test_analyse_devices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from paceline.analyse.intervals import counted
from paceline.record import Metric, RunRecord

HOST = "cpu"
Span = tuple[float, float]
Copies = tuple[int, int]  # their number and their bytes
Which = Literal["transfers", "forward_transfers"]


class Move(NamedTuple):
    """Where a forward pass hands data to another device, as seen when it happened."""

    source: str
    target: str
    after_products: int  # matrix products that ran before it
    at: str | None  # `train.py:47`


class Work(NamedTuple):
    """When each device was at work in a sampled step, in seconds from its beginning."""

    busy: dict[int, list[Span]]
    length_s: float


def device_metrics(runs: Sequence[RunRecord]) -> dict[str, Metric | None]:
    """Counts are exact; shares are too coarse for more than their range.

    Nothing where every process has one device: the other facts say all of it.
    """
    peaks = [_peaks(run) for run in runs]
    works = [work_of(run) for run in runs]
    metrics: dict[str, Metric | None] = {}
    for device in sorted({device for peak in peaks for device in peak}):
        name = f"peak_bytes_of_device.{device}"
        metrics[name] = counted([peak.get(device, math.nan) for peak in peaks], "bytes")
    for device in sorted({device for work in works if work for device in work.busy}):
        shares = [_length(work.busy.get(device, [])) / work.length_s for work in works if work]
        metrics[f"busy_share_of_device.{device}"] = counted(shares, "ratio")
    metrics["devices_together_share"] = counted([_together(work) for work in works if work], "ratio")
    whiches: tuple[tuple[str, Which], ...] = (("step", "transfers"), ("forward", "forward_transfers"))
    for part, which in whiches:
        sums = [_sum(copies_of(run, which).values()) for run in runs if device_facts(run)]
        metrics[f"device_copies_per_{part}"] = counted([number for number, _ in sums], "count")
        metrics[f"device_copy_bytes_per_{part}"] = counted([num_bytes for _, num_bytes in sums], "bytes")
    return metrics


def device_facts(run: RunRecord) -> list[dict[str, Any]]:
    """The fact "devices" of the ranks that have one."""
    return [rank.facts["devices"] for rank in run.ranks if rank.facts.get("devices")]


def copies_of(run: RunRecord, which: Which = "transfers") -> dict[tuple[str, str], Copies]:
    """(from, to) → copies between devices in the counted step, of all ranks together."""
    found: dict[tuple[str, str], Copies] = {}
    for fact in device_facts(run):
        for row in fact.get(which, ()):
            pair = (str(row["from"]), str(row["to"]))
            if HOST not in pair:
                found[pair] = _sum((found.get(pair, (0, 0)), (row["count"], row["bytes"])))
    return found


def moves_of(run: RunRecord) -> list[Move]:
    """In the order in which they happened; none where a thread of PyTorch's own moves the data."""
    return [
        Move(move["from"], move["to"], move["after_products"], move["at"])
        for fact in device_facts(run)
        for move in fact.get("forward_moves", ())
    ]


def work_of(run: RunRecord) -> Work | None:
    """Of the counted step where the host waits for its devices, else of the last profiled one. None where
    neither tells, or each process has one device."""
    spans: dict[int, list[Span]] = {}
    for rank in run.ranks:
        devices = rank.facts.get("devices") or {}
        profiled = rank.facts.get("timeline", {}) if devices else {}
        for device, busy in (devices.get("busy") or profiled.get("busy") or {}).items():
            spans.setdefault(int(device), []).extend((float(start), float(end)) for start, end in busy)
    spans = {device: _union(busy) for device, busy in sorted(spans.items()) if busy}
    if not spans:
        return None
    begin_s = min(busy[0][0] for busy in spans.values())
    end_s = max(busy[-1][1] for busy in spans.values())
    if end_s <= begin_s:
        return None
    busy = {device: [(start - begin_s, end - begin_s) for start, end in at] for device, at in spans.items()}
    return Work(busy, end_s - begin_s)


def _peaks(run: RunRecord) -> dict[int, float]:
    """Of the process that holds most on a device: where each rank has its own, the others hold nothing."""
    peaks: dict[int, float] = {}
    for fact in device_facts(run):
        for device, num_bytes in enumerate(fact.get("peak_bytes", ())):
            peaks[device] = max(peaks.get(device, 0.0), float(num_bytes))
    return peaks


def _together(work: Work) -> float:
    """The share of the step in which at least two devices are at work."""
    everything = [span for busy in work.busy.values() for span in busy]
    changes = sorted([(start, 1) for start, _ in everything] + [(end, -1) for _, end in everything])
    shared_s, at_work, before_s = 0.0, 0, 0.0
    for at_s, change in changes:
        shared_s += at_s - before_s if at_work > 1 else 0.0
        at_work, before_s = at_work + change, at_s
    return shared_s / work.length_s


def _union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def _sum(copies: Iterable[Copies]) -> Copies:
    pairs = list(copies)
    return sum(number for number, _ in pairs), sum(num_bytes for _, num_bytes in pairs)
