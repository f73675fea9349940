"""Who works when: lanes of time, for the ranks of a step or the devices of one process.

In: lanes with their spans, or a run with the fact "timeline". Out: a figure that is drawn when its width is
known; no package is needed. Exercise: `pytest tests/unit/test_report_timeline.py`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from paceline.quantity import format_duration
from paceline.record import RunRecord
from paceline.report.drawing import open_svg, svg_text
from paceline.report.palette import (
    FAINT,
    GRID,
    HATCHED_ORANGE,
    INK,
    SHADE,
    SOLID_BLUE,
    SOLID_GREY,
    SOLID_PALE,
)
from paceline.report.units import choose_unit

FILLS = {"compute": SOLID_BLUE, "communication": HATCHED_ORANGE, "idle": SOLID_PALE, "phase": SOLID_GREY}

LANE_PX, GAP_PX, GROUP_GAP_PX, TOP_PX, AXIS_PX = 18.0, 3.0, 10.0, 6.0, 22.0
SHARE_PX = 44.0
TICK_PX = 58.0
LETTER_PX = 6.0
# Three lanes each fill a page.
MOST_RANKS = 8
# Nearer spans are drawn as one: the eye cannot tell, and thousands of operators would fill the file.
MERGE_PX = 0.7


@dataclass(frozen=True)
class Span:
    start_s: float
    end_s: float
    name: str = ""


@dataclass(frozen=True)
class Lane:
    """One row: `group` is whose it is (a rank, a device), `kind` one of FILLS."""

    group: str
    kind: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Timeline:
    """Lanes from 0 to `length_s`, each with the share of the time that it is busy."""

    lanes: tuple[Lane, ...]
    length_s: float

    def draw(self, width_px: int, height_scale: float = 1.0) -> str:
        lane_px = LANE_PX * height_scale
        # What all lanes are goes without saying.
        says_kind = len({lane.kind for lane in self.lanes}) > 1
        names = [f"{lane.group} {lane.kind if says_kind else ''}" for lane in self.lanes]
        left_px = min(max(map(len, names)) * LETTER_PX + 10, width_px * 0.38)
        scale = (width_px - left_px - SHARE_PX) / self.length_s
        parts, y = [], TOP_PX
        for group, lanes in groupby(self.lanes, key=attrgetter("group")):
            for place, lane in enumerate(lanes):
                baseline = y + lane_px / 2 + 4
                if place == 0:
                    parts.append(svg_text(2, baseline, group, INK, bold=True))
                if says_kind:
                    parts.append(svg_text(left_px - 7, baseline, lane.kind, FAINT, anchor="end"))
                parts.append(_rect(left_px, y, self.length_s * scale, lane_px, SHADE, ""))
                parts += _draw_spans(lane, left_px, y, scale, lane_px)
                share = f"{busy_share(lane.spans, self.length_s):.0%}".replace("%", " %")
                parts.append(svg_text(width_px - 3, baseline, share, INK, anchor="end"))
                y += lane_px + GAP_PX
            y += GROUP_GAP_PX
        bottom = y - GROUP_GAP_PX
        axis = _draw_axis(left_px, bottom, scale, self.length_s)
        return f"{open_svg(width_px, bottom + AXIS_PX)}{''.join(axis)}{''.join(parts)}</svg>"


def step_timeline(run: RunRecord, step: int = -1) -> Timeline | None:
    """Compute, communication and idle of each rank in one profiled step; None without a timeline.

    Of more ranks than a page holds, MOST_RANKS, evenly spaced, the first and the last among them.
    """
    steps = {
        rank.rank: rank.facts["timeline"]["steps"][step]
        for rank in run.ranks
        if rank.facts.get("timeline", {}).get("steps")
    }
    if not steps:
        return None
    length_s = max(found["end_s"] - found["start_s"] for found in steps.values())
    begins_s = [found["start_s"] for found in steps.values()]
    # Ranks of one machine read one clock; those of several do not, and each starts at its own zero.
    one_clock = max(begins_s) - min(begins_s) < length_s
    if one_clock:
        length_s = max(found["end_s"] for found in steps.values()) - min(begins_s)
    lanes: list[Lane] = []
    for rank in _spaced(sorted(steps)):
        found = steps[rank]
        zero_s = min(begins_s) if one_clock else found["start_s"]
        spans = {kind: _spans_of(found, kind, zero_s) for kind in ("compute", "communication")}
        idle = _gaps(
            [*spans["compute"], *spans["communication"]], found["start_s"] - zero_s, found["end_s"] - zero_s
        )
        lanes += [Lane(f"rank {rank}", kind, found_spans) for kind, found_spans in spans.items()]
        lanes.append(Lane(f"rank {rank}", "idle", idle))
    return Timeline(tuple(lanes), length_s)


def device_timeline(busy: Sequence[tuple[str, Sequence[Span]]], length_s: float) -> Timeline:
    """One lane per device: what shows that a model cut into layers keeps one device busy at a time."""
    return Timeline(tuple(Lane(name, "compute", tuple(spans)) for name, spans in busy), length_s)


def _spaced(ranks: Sequence[int]) -> list[int]:
    if len(ranks) <= MOST_RANKS:
        return list(ranks)
    return [ranks[round(place * (len(ranks) - 1) / (MOST_RANKS - 1))] for place in range(MOST_RANKS)]


def busy_share(spans: Sequence[Span], length_s: float) -> float:
    """The part of the time that at least one span covers."""
    return sum(end - start for start, end in _union(spans)) / length_s


def _spans_of(step: dict[str, Any], kind: str, zero_s: float) -> tuple[Span, ...]:
    return tuple(
        Span(start - zero_s, end - zero_s, name) for lane, name, start, end in step["slices"] if lane == kind
    )


def _union(spans: Sequence[Span]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.start_s):
        if joined and span.start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], span.end_s))
        else:
            joined.append((span.start_s, span.end_s))
    return joined


def _gaps(spans: Sequence[Span], start_s: float, end_s: float) -> tuple[Span, ...]:
    """Where nothing runs between start and end."""
    gaps, at = [], start_s
    for busy_from, busy_to in _union(spans):
        if busy_from > at:
            gaps.append(Span(at, busy_from, "idle"))
        at = max(at, busy_to)
    if at < end_s:
        gaps.append(Span(at, end_s, "idle"))
    return tuple(gaps)


def _draw_spans(lane: Lane, left_px: float, y: float, scale: float, height_px: float) -> list[str]:
    drawn: list[tuple[float, float, list[Span]]] = []
    for span in sorted(lane.spans, key=lambda span: span.start_s):
        start, end = span.start_s * scale, span.end_s * scale
        if drawn and start - drawn[-1][1] < MERGE_PX:
            first, last, members = drawn.pop()
            drawn.append((first, max(last, end), [*members, span]))
        else:
            drawn.append((start, end, [span]))
    return [
        _rect(left_px + start, y, max(end - start, 0.6), height_px, FILLS[lane.kind], _name_spans(members))
        for start, end, members in drawn
    ]


def _name_spans(spans: Sequence[Span]) -> str:
    length = format_duration(max(span.end_s for span in spans) - spans[0].start_s)
    if len(spans) == 1:
        return f"{spans[0].name}: {length}"
    longest = max(spans, key=lambda span: span.end_s - span.start_s)
    return f"{len(spans)} in {length}, the longest {longest.name}"


def _rect(x: float, y: float, width: float, height: float, fill: str, title: str) -> str:
    inside = f"><title>{html.escape(title)}</title></rect>" if title else "/>"
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{inside}'


def _draw_axis(left_px: float, y: float, scale: float, length_s: float) -> list[str]:
    """Grid lines and labels at round times."""
    parts = []
    unit = choose_unit([length_s], "s")
    for tick_s in _ticks(length_s, most=max(int(length_s * scale / TICK_PX), 2)):
        x = left_px + tick_s * scale
        parts.append(f'<path d="M{x:.1f},{TOP_PX}V{y + 2:.1f}" stroke="{GRID}"/>')
        label = "0" if tick_s == 0 else f"{tick_s / unit.size:g} {unit.name}"
        parts.append(svg_text(x, y + 15, label, FAINT, anchor="middle"))
    parts.append(svg_text(left_px + length_s * scale + SHARE_PX - 3, y + 15, "share", FAINT, anchor="end"))
    return parts


def _ticks(length_s: float, most: int) -> list[float]:
    """At most `most` multiples of 1, 2 or 5 × 10ⁿ beside 0, the last one clear of the right edge."""
    room_s = length_s * 0.95
    magnitude = 10.0 ** math.floor(math.log10(room_s / most))
    step = next(m * magnitude for m in (1, 2, 5, 10) if room_s / (m * magnitude) < most + 1)
    return [index * step for index in range(int(room_s / step) + 1)]
