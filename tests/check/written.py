"""Observations of ranks that never ran: the judges' input, with one thing changed at a time."""

from __future__ import annotations

from typing import Any

from paceline.check.observations import Event, Seen, read_rank


def world(ranks: list[list[Event]], failure: str | None = None) -> Seen:
    read = [read_rank(rank, events) for rank, events in enumerate(ranks)]
    return Seen(ranks=read, num_ranks=len(ranks), failure=failure)


def seen(what: str, line: int = 1, **values: Any) -> Event:
    return {"event": "observed", "what": what, "line": line, **values}


def model(layers: list[str] | None = None, weights: list[float] | None = None, **values: Any) -> Event:
    placed = [[f"layers.{i}", device, 10] for i, device in enumerate(layers or ["cpu"])]
    kind = {"kind": "Model", "ddp": True, "data_parallel": False, "replicas": 0}
    return seen("model", 5, layers=placed, weights=weights or [0.5], **{**kind, **values})


def forward(**values: Any) -> Event:
    usual = {
        "grad": True,
        "batch": 8,
        "sync": True,
        "data": [1.0],
        "layers": 1,
        "autocast": 0,
        "autocast_types": [],
        "path": [],
        "moves": [],
        "devices": ["cpu"],
    }
    return seen("forward", 10, **{**usual, **values})


def backward(**values: Any) -> Event:
    usual = {
        "value": 1.0,
        "scaled": False,
        "ratio": 1.0,
        "factor": 1.0,
        "autocast": False,
        "sync": True,
        "had_gradients": False,
        "collectives": 1,
    }
    return seen("backward", 12, **{**usual, **values})


def move(**values: Any) -> Event:
    usual = {
        "skipped": False,
        "through_scaler": False,
        "autocast": False,
        "had_gradients": True,
        "weights": [1.0],
    }
    return seen("move", 13, **{**usual, **values})


def clock(value_s: float, line: int = 9, function: str = "perf_counter") -> Event:
    return seen("clock", line, function=function, value_s=value_s)


def train(num_steps: int, num_micros: int = 1, ratio: float = 1.0) -> list[Event]:
    """Steps without a mistake."""
    events: list[Event] = []
    for _ in range(num_steps):
        for micro in range(num_micros):
            last = micro == num_micros - 1
            events.append(forward(sync=last))
            events.append(
                backward(ratio=ratio, factor=ratio, collectives=int(last), had_gradients=micro > 0, sync=last)
            )
        events.append(move())
    return events
