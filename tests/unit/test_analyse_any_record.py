"""Whatever ranks left behind, torn or in part, rows and findings come out and JSON stays valid."""

from __future__ import annotations

import json
import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.analyse import interval_is_narrow, ratio, summarise
from paceline.explain import CODES, explain
from paceline.record import STEP_METRICS, RankRecord, RunRecord
from paceline.report.export import to_csv, to_json

TIMES = st.one_of(st.floats(1e-4, 10.0), st.just(float("nan")), st.just(0.02))
ANYTHING = st.one_of(TIMES, st.sampled_from([0.0, -1.0]))
LOSSES = st.one_of(ANYTHING, st.just(float("inf")))
NUMBERS = st.one_of(st.none(), st.integers(0, 10**9), st.floats(0, 1e9))


@st.composite
def ranks(draw: st.DrawFn, number: int) -> RankRecord:
    num_steps = draw(st.integers(0, 12))
    kinds = sorted(draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=num_steps, max_size=num_steps)))
    names = draw(st.lists(st.sampled_from(STEP_METRICS[1:]), unique=True))
    series = {
        name: draw(
            st.lists(
                {"step_time_s": TIMES, "loss": LOSSES}.get(name, ANYTHING),
                min_size=num_steps,
                max_size=num_steps,
            )
        )
        for name in names
    }
    communication = {
        name: draw(NUMBERS)
        for name in draw(
            st.lists(st.sampled_from(["calls", "bytes", "busy_s", "exposed_s", "bus_bytes", "micro_steps"]))
        )
    }
    facts: dict[str, dict[str, object]] = {
        "communication": {name: value for name, value in communication.items() if value is not None},
        "memory": {"peak_bytes": draw(NUMBERS), "at_peak": {"parameters": draw(NUMBERS)}},
        "precision": {"matmul_flops": {"float32": draw(st.floats(0, 1e12))}},
        "gradients": {
            "norms": draw(st.lists(st.floats(0, 10), max_size=3)),
            "nonfinite": draw(st.integers(0, 2)),
        },
    }
    kept = draw(st.lists(st.sampled_from(sorted(facts)), unique=True))
    start = draw(
        st.sampled_from([{}, {"device": "cpu", "threads": 2, "cores": [0]}, {"threads": None, "cores": None}])
    )
    return RankRecord(
        number,
        dict(start),
        {"kind": kinds, **series} if draw(st.booleans()) or num_steps else {},
        {name: facts[name] for name in kept},
        draw(st.sampled_from([[], [{"code": "no_samples"}], [{"event": "note"}]])),
    )


@st.composite
def runs(draw: st.DrawFn) -> RunRecord:
    world = draw(st.integers(1, 3))
    return RunRecord(
        key="k",
        study="s",
        program="t.py",
        arguments=[],
        world=world,
        placement="tuned",
        round=draw(st.integers(1, 3)),
        status=draw(st.sampled_from(["ok", "ok", "ok", "failed", "hung"])),
        oversubscribed=draw(st.booleans()),
        ranks=[draw(ranks(number)) for number in range(draw(st.integers(0, world)))],
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(runs(), max_size=5))
def test_any_record_is_summarised_and_explained(records: list[RunRecord]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = explain(summarise(records), records)
        interval_is_narrow(rows, 0.03)
        ratio(records, list(reversed(records)))
        json.loads(to_json("s", rows))
        to_csv(rows)
    for row in rows:
        assert {finding.code for finding in row.findings} <= set(CODES)
        for metric in row.metrics.values():
            assert metric.n > 0
            assert not metric.low > metric.median
            assert not metric.high < metric.median
