"""From numbers to conclusions: rows and their runs enter, the same rows leave with findings.

Findings are a closed list: each says the fact, the likely cause, what to do next, and the numbers it rests
on. What nothing explains is said to be unattributed.
Try it: `paceline show STUDY`, or `pytest tests/unit/test_explain.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from paceline.analyse.summary import RowKey, find_base, group_runs, key_of
from paceline.findings import local, parallel, speedup, trust
from paceline.findings.case import Case
from paceline.record import Finding, Row, RunRecord

# Every code that a finding may have. Equally severe findings of equal size come in this order.
CODES = {
    "failed": "a run ended with an error",
    "hung": "a run made no progress until the timeout",
    "oom": "a run ran out of memory",
    "refused": "a configuration cannot run at all",
    "no_collectives": "several ranks, and no communication between them was recognised",
    "non_finite": "a loss or gradient is infinite or not a number",
    "oversubscribed": "more ranks than cores or accelerators",
    "too_noisy": "the interval is too wide to conclude from",
    "disturbed": "other programs used the ranks' cores",
    "straggler": "the other ranks wait for one, always or at times",
    "no_speedup": "more ranks are hardly faster, and where the time goes",
    "communication_exposed": "communication that no computing hides",
    "accumulation_synchronises": "gradients are synchronised more often than needed",
    "data_bound": "much of the step passes before the model is called",
    "threads_fight": "more computing threads than cores",
    "allocator_costs": "memory is fetched from the system again and again",
    "fp16_on_cpu": "float16 matmuls on a CPU",
    "scaler_skips": "GradScaler skipped optimizer steps",
    "periodic_steps": "slow steps return at a fixed distance",
    "work_differs": "the compared steps are not the same amount of work",
    "unattributed": "lost time that nothing measured explains",
    "single_launch": "a comparison rests on one launch of each side",
    "no_samples": "the script ended before communication and memory were sampled",
    "steps_restarted": "what a step is was found out late",
    "ended_badly": "a process failed after its steps were measured",
}

DETECTORS: tuple[Callable[[Case], Finding | None], ...] = (
    trust.find_bad_end,
    trust.find_oversubscription,
    trust.find_noise,
    trust.find_single_launch,
    trust.find_disturbance,
    trust.find_missing_samples,
    trust.find_restarted_count,
    trust.find_bad_teardown,
    parallel.find_missing_collectives,
    parallel.find_exposed_communication,
    parallel.find_straggler,
    parallel.find_needless_synchronisation,
    speedup.find_more_work,
    speedup.find_missing_speedup,
    speedup.find_unattributed,
    local.find_data_bound,
    local.find_thread_fight,
    local.find_allocator_costs,
    local.find_slow_steps,
    local.find_fp16_on_cpu,
    local.find_scaler_skips,
    local.find_non_finite,
)


def explain(rows: Sequence[Row], runs: Iterable[RunRecord]) -> list[Row]:
    """The rows of `summarise(runs)` with their findings, the gravest and largest first."""
    groups = group_runs(runs)
    by_key = {key_of(row): row for row in rows}
    return [dataclasses.replace(row, findings=_find_all(_make_case(row, by_key, groups))) for row in rows]


def _make_case(row: Row, by_key: dict[RowKey, Row], groups: dict[RowKey, list[RunRecord]]) -> Case:
    key = key_of(row)
    measured = {key: [run for run in group if run.status == "ok"] for key, group in groups.items()}
    base = find_base(key, measured)
    return Case(
        row=row,
        runs=measured.get(key, []),
        ended_ill=[run for run in groups.get(key, []) if run.status != "ok"],
        base=by_key.get(base) if base is not None and base != key else None,
        base_runs=measured[base] if base is not None and base != key else [],
    )


def _find_all(case: Case) -> list[Finding]:
    return sorted(
        (finding for detect in DETECTORS if (finding := detect(case)) is not None), key=order_of_gravity
    )


def order_of_gravity(finding: Finding) -> tuple[bool, float, int]:
    """For sorting: the gravest and largest first, equal ones in the order of the list."""
    is_warning = finding.severity == "warning"
    # A warning without a share of the step puts the whole row in doubt.
    size = finding.numbers.get("share", 1.0 if is_warning else 0.0)
    return not is_warning, -size, list(CODES).index(finding.code)
