"""What more ranks gained: speedup and efficiency; and the ratio of any two configurations.

Ratios are taken within a round, where both sides met the same machine, and then summarised over the rounds.
Try it: `pytest tests/unit/test_analyse_scaling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.analyse.intervals import UNKNOWN_NOISE, ratio_over_rounds
from paceline.analyse.steps import samples_per_step, world_step_times
from paceline.record import LaunchNoise, Metric, RunRecord


def ratio(
    runs_a: Sequence[RunRecord], runs_b: Sequence[RunRecord], noise: LaunchNoise = UNKNOWN_NOISE
) -> Metric | None:
    """Step time of a over step time of b: above 1 means that b is faster. `noise` is that of both."""
    pairs = [(world_step_times(a), world_step_times(b)) for a, b in _pairs(runs_a, runs_b)]
    return ratio_over_rounds(pairs, unit="ratio", noise=noise)


def scaling_metrics(
    base: Sequence[RunRecord], runs: Sequence[RunRecord], noise: LaunchNoise = UNKNOWN_NOISE
) -> dict[str, Metric | None]:
    """Speedup and efficiency of `runs` against `base`, the smallest world of the same program and arguments.

    Speedup compares the time for the same work. A step is taken to be the same work in both, unless the
    samples per step are known and differ. Samples that the counted operations contradict are not reported.
    """
    small, large = base[0].world, runs[0].world
    if small == large:
        one = Metric(1.0, 1.0, 1.0, len(runs), "ratio")
        return {"speedup": one, "efficiency": one}
    gained = ratio(base, runs, noise)
    if gained is None:
        return {}
    work = work_growth(base, runs)
    doubtful: dict[str, Metric | None] = {} if work else {"throughput_samples_s": None}
    work = work or 1.0
    return {**doubtful, "speedup": _scaled(gained, work), "efficiency": _scaled(gained, work * small / large)}


def work_growth(base: Sequence[RunRecord], runs: Sequence[RunRecord]) -> float | None:
    """Samples per step of `runs` over those of `base`: 1 where they are not known.

    None where the counted operations contradict them, and nobody but the probe has named them.
    """
    work = _growth(samples_per_step(base[0]), samples_per_step(runs[0])) or 1.0
    operations = _growth(_matmul_flops(base[0]), _matmul_flops(runs[0]))
    if operations and not 0.8 < operations / work < 1.25 and "samples_per_step" not in runs[0].options:
        return None
    return work


def _growth(before: float | None, after: float | None) -> float | None:
    return after / before if before and after else None


def _matmul_flops(run: RunRecord) -> float:
    """Of all ranks in one step, 0 when nobody counted."""
    facts = (rank.facts.get("precision", {}).get("matmul_flops", {}) for rank in run.ranks)
    return float(sum(sum(flops.values()) for flops in facts))


def _pairs(runs_a: Sequence[RunRecord], runs_b: Sequence[RunRecord]) -> list[tuple[RunRecord, RunRecord]]:
    """Runs of the same round; in order where no round is common, as between two studies."""
    by_round = {run.round: run for run in runs_b}
    paired = [(run, by_round[run.round]) for run in runs_a if run.round in by_round]
    return paired or list(zip(runs_a, runs_b, strict=False))


def _scaled(metric: Metric, factor: float) -> Metric:
    return Metric(metric.median * factor, metric.low * factor, metric.high * factor, metric.n, metric.unit)
