"""Run records whose every number is known, for tests: no rank is started.

`make_run` builds one run from step times; keyword arguments add what a test is about. Example:

    run = make_run(world=2, step_times_s=[[0.02] * 30, [0.03] * 30])    # rank 1 is the slower one
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.record import SAMPLED, TIMED, WARMUP, RankRecord, RunRecord

# How a step of the synthetic program divides.
PHASES = {"data_s": 0.1, "forward_s": 0.3, "backward_s": 0.5, "optimizer_s": 0.1, "other_s": 0.0}

MEMORY_CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "buffers",
    "communication",
    "other",
)


def ar1(generator: np.random.Generator, num_steps: int, *, phi: float, spread: float) -> np.ndarray:
    """Log deviations of steps that remember the step before: x[i] = phi · x[i-1] + noise, of sd `spread`."""
    noise = generator.normal(0.0, spread * np.sqrt(1 - phi**2), num_steps)
    deviations = np.empty(num_steps)
    state = generator.normal(0.0, spread)
    for step in range(num_steps):
        state = phi * state + noise[step]
        deviations[step] = state
    return deviations


def make_rank(
    rank: int,
    step_times_s: Sequence[float],
    *,
    warmup: int = 5,
    sampled: int = 4,
    warmup_time_s: float | None = None,
    phases: Mapping[str, Sequence[float]] | None = None,
    series: Mapping[str, Sequence[float]] | None = None,
    facts: Mapping[str, dict[str, Any]] | None = None,
    start: Mapping[str, Any] | None = None,
    notes: Sequence[dict[str, Any]] = (),
    start_s: float = 1000.0,
) -> RankRecord:
    """One rank: `step_times_s` are the timed steps; warm-up and sampled ones are put around them.

    `phases` and `series` are given for the timed steps padded at both ends with their edges.
    """
    times = np.asarray(step_times_s, float)
    edge = float(np.median(times)) if len(times) else 0.02

    def padded(values: Sequence[float]) -> np.ndarray:
        array = np.asarray(values, float)
        return np.concatenate((np.full(warmup, array[0]), array, np.full(sampled, array[-1])))

    step_time_s = np.concatenate(
        (np.full(warmup, edge if warmup_time_s is None else warmup_time_s), times, np.full(sampled, edge))
    )
    end_s = start_s + np.cumsum(step_time_s)
    columns: dict[str, np.ndarray] = {
        "kind": np.repeat((WARMUP, TIMED, SAMPLED), (warmup, len(times), sampled)).astype(float),
        "end_s": end_s,
        "wall_s": end_s + 1.7e9,
        "step_time_s": step_time_s,
        **{name: step_time_s * share for name, share in PHASES.items()},
        "micro_steps": np.ones_like(step_time_s),
    }
    columns |= {name: padded(values) for name, values in {**(phases or {}), **(series or {})}.items()}
    return RankRecord(
        rank=rank,
        start={
            "rank": rank,
            "local_rank": rank,
            "device": "cpu",
            "threads": 1,
            "cores": [rank],
            **(start or {}),
        },
        series={name: values.tolist() for name, values in columns.items()},
        facts=copy.deepcopy(dict(facts or {})),
        notes=list(notes),
        end="steps done",
    )


def make_run(
    *,
    world: int = 1,
    step_times_s: Sequence[float] | Sequence[Sequence[float]] = (0.02,) * 30,
    round: int = 0,
    arguments: Sequence[str] = (),
    placement: str = "tuned",
    program: str = "train.py",
    study: str = "synthetic",
    facts: Mapping[str, dict[str, Any]] | None = None,
    ranks: Sequence[RankRecord] | None = None,
    **fields: Any,
) -> RunRecord:
    """One run. `step_times_s`: one list for all ranks, or one per rank. `fields` go to the RunRecord."""
    if ranks is None:
        per_rank = step_times_s if step_times_s and isinstance(step_times_s[0], Sequence) else None
        ranks = [
            make_rank(rank, per_rank[rank] if per_rank else step_times_s, facts=facts)  # type: ignore[arg-type]
            for rank in range(world)
        ]
    values: dict[str, Any] = {
        "key": f"{program} {' '.join(arguments)} {world} {placement} {round}",
        "status": "ok",
        "options": {"steps": 30, "warmup": 5, "sampled": 4},
        "script_hash": "abc",
        **fields,
    }
    return RunRecord(
        study=study,
        program=program,
        arguments=list(arguments),
        world=world,
        placement=placement,
        round=round,
        ranks=list(ranks),
        **values,
    )


def communication(
    *,
    calls: float = 1.0,
    bytes_: float = 4096.0,
    exposed_s: float = 0.0,
    busy_s: float = 0.002,
    kind: str = "all_reduce",
    **data: Any,
) -> dict[str, Any]:
    """The fact "communication" of one rank, per optimizer step."""
    return {
        "steps": 4,
        "calls": calls,
        "bytes": bytes_,
        "by_kind": {kind: {"calls": calls, "bytes": bytes_}} if calls else {},
        "synchronising_micro_steps": 1.0,
        "micro_steps": 1.0,
        "busy_s": busy_s,
        "exposed_s": exposed_s,
        "bus_bytes": bytes_,
        "backend": "gloo",
        **data,
    }


def memory(**bytes_by_category: int) -> dict[str, Any]:
    """The fact "memory" of one rank whose peak is the sum of the given categories."""
    split = {name: bytes_by_category.get(name, 0) for name in MEMORY_CATEGORIES}
    total = sum(split.values())
    return {
        "peak_bytes": total,
        "at_peak": split,
        "start_of_step": split,
        "resident_bytes": total + 1000,
        "resident_peak_bytes": total + 2000,
        "device_peak_bytes": None,
    }


def devices(
    *,
    peak_bytes: Sequence[int],
    transfers: Sequence[tuple[int, int, int, int]] = (),
    forward_transfers: Sequence[tuple[int, int, int, int]] | None = None,
    busy: Mapping[int, Sequence[tuple[float, float]]] | None = None,
    moves: Sequence[tuple[int, int, int, str]] = (),
    counted_by: str = "device",
) -> dict[str, Any]:
    """The fact "devices" of one process. Copies: (from, to, count, bytes), where -1 is the host."""

    def rows(copies: Sequence[tuple[int, int, int, int]]) -> list[dict[str, Any]]:
        places = [
            ["cpu" if index < 0 else f"virtual:{index}" for index in (source, target)]
            for source, target, _, _ in copies
        ]
        return [
            {"from": source, "to": target, "count": count, "bytes": num_bytes}
            for (source, target), (_, _, count, num_bytes) in zip(places, copies, strict=True)
        ]

    return {
        "device_type": "virtual",
        "counted_by": counted_by,
        "peak_bytes": list(peak_bytes),
        "transfers": rows(transfers),
        "forward_transfers": rows(transfers if forward_transfers is None else forward_transfers),
        "forward_moves": [
            {"from": f"virtual:{source}", "to": f"virtual:{target}", "after_products": products, "at": at}
            for source, target, products, at in moves
        ],
        "busy": {str(device): [list(span) for span in spans] for device, spans in (busy or {}).items()},
    }
