"""Where the time of a step goes: to computing, to communication, or to neither.

Enters: a profiler run over the last sampled steps. Leaves: the fact "timeline" and, for "communication", busy
time (a collective is under way) and exposed time (a collective is under way and nothing is computed).

    pytest tests/gloo/test_truth.py tests/unit/test_spans.py
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from paceline.probe.spans import TOUCHING_S, Span, close_gaps, intersect, length, merge

MOST_SLICES = 4000  # per step: a timeline is looked at, not archived
LAUNCH_ALONE = ("c10d::", "record_param_comms")  # hands a collective over; is no computing itself


class Timeline:
    """The profiler over several steps, and where their boundaries were."""

    def __init__(self, device_type: str) -> None:
        activities = [ProfilerActivity.CPU]
        if device_type != "cpu":
            supported = torch.profiler.supported_activities()  # type: ignore[no-untyped-call]
            activities += sorted(supported - {ProfilerActivity.CPU}, key=str)
        self._device_type = device_type
        self._profile = profile(activities=activities)
        self._boundaries_s: list[float] = []
        self._device_spans: dict[int, list[Span]] = {}

    def start(self) -> None:
        self._profile.start()
        # The profiler speaks unix time, the step clock perf_counter.
        self._offset_s = time.perf_counter() - time.time()
        self._boundaries_s.append(time.perf_counter())

    @property
    def has_steps(self) -> bool:
        return len(self._boundaries_s) > 1

    def step_ended(self) -> None:
        self._boundaries_s.append(time.perf_counter())

    def stop(self) -> dict[str, dict[str, Any]]:
        """Facts of the profiled steps; the first of them pays for the profiler's start and is left out."""
        self._profile.stop()
        compute, communication = self._read_events()
        bounds = list(zip(self._boundaries_s, self._boundaries_s[1:], strict=False))
        steps = [_cut(compute, communication, *bound) for bound in (bounds[1:] or bounds)]
        busy = [length(merge([span for span, _ in step["communication"]])) for step in steps]
        exposed = [busy_s - _hidden_s(step) for busy_s, step in zip(busy, steps, strict=True)]
        computing = [
            length(merge([span for span, _ in step["compute"]])) / (step["end_s"] - step["start_s"])
            for step in steps
        ]
        return {
            "communication": {
                "busy_s": statistics.median(busy),
                "exposed_s": statistics.median(exposed),
                "profiled_steps": len(steps),
            },
            "timeline": {
                "busy": self._busy_devices(*(bounds or [(0.0, 0.0)])[-1]),
                "steps": [_as_json(step) for step in steps],
                "compute_share": statistics.median(computing),
                "threads": torch.get_num_threads(),  # as the script has left them
            },
        }

    def _busy_devices(self, began_s: float, ended_s: float) -> dict[str, list[Span]]:
        """When each accelerator was at work in the last step; empty where the ranks computed on the CPU."""
        busy: dict[str, list[Span]] = {}
        for index, spans in sorted(self._device_spans.items()):
            within = intersect(merge(spans), [(began_s, ended_s)])
            if within:
                busy[str(index)] = close_gaps(within, TOUCHING_S)
        return busy

    def _read_events(self) -> tuple[list[tuple[Span, str]], list[tuple[Span, str]]]:
        compute: list[tuple[Span, str]] = []
        communication: list[tuple[Span, str]] = []
        results: Any = self._profile.profiler.kineto_results  # type: ignore[union-attr]
        on_device = self._device_type != "cpu" and any(
            str(event.device_type()) != "DeviceType.CPU" for event in results.events()
        )
        for event in results.events():
            name = event.name()
            began_s = event.start_ns() * 1e-9 + self._offset_s
            span = (began_s, began_s + event.duration_ns() * 1e-9)
            is_device_event = str(event.device_type()) != "DeviceType.CPU"
            if name.startswith(("gloo:", "nccl:")) or (is_device_event and "nccl" in name.lower()):
                if is_device_event or not on_device:
                    communication.append((span, name))
            elif on_device == is_device_event and (is_device_event or name.startswith("aten::")):
                compute.append((span, name))
                if is_device_event:
                    self._device_spans.setdefault(event.device_index(), []).append(span)
        return _outermost(compute), communication


def _outermost(slices: list[tuple[Span, str]]) -> list[tuple[Span, str]]:
    """Operators call operators: keep the ones that nothing else encloses."""
    kept: list[tuple[Span, str]] = []
    for span, name in sorted(slices, key=lambda s: (s[0][0], -s[0][1])):
        if not kept or span[1] > kept[-1][0][1]:
            kept.append((span, name))
    return kept


def _cut(
    compute: list[tuple[Span, str]], communication: list[tuple[Span, str]], began_s: float, ended_s: float
) -> dict[str, Any]:
    def within(slices: list[tuple[Span, str]]) -> list[tuple[Span, str]]:
        return [
            ((max(start, began_s), min(end, ended_s)), name)
            for (start, end), name in slices
            if end > began_s and start < ended_s
        ]

    return {
        "start_s": began_s,
        "end_s": ended_s,
        "compute": within(compute),
        "communication": within(communication),
    }


def _hidden_s(step: dict[str, Any]) -> float:
    """Seconds in which a collective and a computation ran at once."""
    return length(
        intersect(
            merge([span for span, _ in step["communication"]]), merge([span for span, _ in step["compute"]])
        )
    )


def _as_json(step: dict[str, Any]) -> dict[str, Any]:
    slices = [
        [lane, name, start, end]
        for lane in ("compute", "communication")
        for (start, end), name in sorted(step[lane], key=lambda s: s[0][0] - s[0][1])[:MOST_SLICES]
    ]
    slices.sort(key=lambda s: (s[0], s[2]))
    return {"start_s": step["start_s"], "end_s": step["end_s"], "slices": slices}
