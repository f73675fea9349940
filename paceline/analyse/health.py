"""Are the numbers of a run sound, and what did the machine do to it: loss, scaler, faults, switches, load.

Try it: `pytest tests/unit/test_analyse_health.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from paceline.analyse.intervals import Array, counted, median_over_rounds, one_per_round
from paceline.analyse.steps import aligned, mean_over_ranks, of_kind, ranks_by_number
from paceline.record import TIMED, Metric, RunRecord

# A step is disturbed when others took this share of one of its cores, by the host's own count.
DISTURBING_CORES = 0.25


def health_metrics(runs: Sequence[RunRecord]) -> dict[str, Metric | None]:
    """Counts are those of the rank that has most."""
    metrics = {
        "loss": one_per_round([_last_loss(run) for run in runs], "loss"),
        "loss_scale": one_per_round([_last(of_kind(run, "loss_scale")) for run in runs], "ratio"),
        "skipped_steps": counted([_most_skips(run) for run in runs], "count"),
        "gradient_norm": one_per_round([_gradient_norm(run) for run in runs], "norm"),
        "cpu_share": median_over_rounds([mean_over_ranks(cpu_shares(run)) for run in runs], "ratio"),
        "compute_share": one_per_round([_compute_share(run) for run in runs], "ratio"),
        "disturbed_share": one_per_round([_disturbed_share(run) for run in runs], "ratio"),
    }
    for name in ("page_faults", "voluntary_switches", "involuntary_switches"):
        metrics[name] = median_over_rounds([_most(of_kind(run, name)) for run in runs], "count")
    for precision, flops in _matmul_flops(runs).items():
        metrics[f"matmul_flops.{precision}"] = counted(flops, "flop")
    return metrics


def cpu_shares(run: RunRecord) -> Array:
    """CPU seconds per second and core, ranks × timed steps: 1 is a rank that kept all its cores busy."""
    num_cores = [
        len(rank.start.get("cores") or ()) or rank.start.get("threads") or 1 for rank in ranks_by_number(run)
    ]
    cpu_s, step_time_s = of_kind(run, "cpu_s"), of_kind(run, "step_time_s")
    return cpu_s / step_time_s / np.array(num_cores, float)[:, None] if cpu_s.size else cpu_s


def _compute_share(run: RunRecord) -> float:
    """How much of a profiled step something is computed, as a mean over the ranks that know."""
    shares = [rank.facts.get("timeline", {}).get("compute_share") for rank in run.ranks]
    known = [float(share) for share in shares if share is not None]
    return float(np.mean(known)) if known else math.nan


def disturbed_steps(run: RunRecord) -> Array:
    """For every timed step whether somebody else used the ranks' cores; NaN where the host was never read."""
    foreign, steal = aligned(run, "foreign_cores"), aligned(run, "steal_cores")
    if not foreign.size:
        return np.empty(0)
    load = _held(foreign) + np.nan_to_num(_held(steal))
    kinds = np.all(aligned(run, "kind") == TIMED, axis=0)
    most = _most(load[:, kinds])
    return np.where(np.isnan(most), np.nan, most > DISTURBING_CORES)


def _held(readings: Array) -> Array:
    """A reading covers the steps since the one before it: fill backwards."""
    filled = readings.copy()
    for row in filled:
        known = np.flatnonzero(np.isfinite(row))
        if len(known):
            following = np.searchsorted(known, np.arange(len(row)))
            covered = following < len(known)
            row[covered] = row[known[following[covered]]]
    return filled


def _disturbed_share(run: RunRecord) -> float:
    steps = disturbed_steps(run)
    return float(np.nanmean(steps)) if np.isfinite(steps).any() else math.nan


def _most(values: Array) -> Array:
    """The largest over the ranks that know it, per step."""
    return np.fmax.reduce(values, axis=0) if values.size else np.empty(0)


def _last(values: Array) -> float:
    known = values[np.isfinite(values)] if values.size else values
    return float(known[-1]) if known.size else math.nan


def _last_loss(run: RunRecord) -> float:
    """The mean over ranks at the last timed step: each rank has the loss of its own share of the batch."""
    losses = of_kind(run, "loss")
    return float(losses[:, -1].mean()) if losses.size else math.nan


def _most_skips(run: RunRecord) -> float:
    skipped = of_kind(run, "skipped")
    return float(np.nansum(skipped, axis=1).max()) if np.isfinite(skipped).any() else math.nan


def _gradient_norm(run: RunRecord) -> float:
    """Of rank 0, the median of the sampled steps."""
    norms = next((rank.facts.get("gradients", {}).get("norms") for rank in run.ranks), None)
    return float(np.median(norms)) if norms else math.nan


def _matmul_flops(runs: Sequence[RunRecord]) -> dict[str, list[float]]:
    """Precision → per run, the floating-point operations of all ranks' matmuls in one step."""
    totals: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        of_run: dict[str, float] = defaultdict(float)
        for rank in run.ranks:
            for precision, flops in rank.facts.get("precision", {}).get("matmul_flops", {}).items():
                of_run[precision] += flops
        for precision, total in of_run.items():
            totals[precision].append(total)
    return totals
