"""Steps of a run → times: the world's step, rank 0's, the phases, and throughput.

Ranks are aligned by the step's number, and only steps that every rank timed count.
Try it: `pytest tests/unit/test_analyse_steps.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.analyse.intervals import UNKNOWN_NOISE, Array, counted, median_over_rounds, one_per_round
from paceline.record import TIMED, WARMUP, LaunchNoise, Metric, RankRecord, RunRecord

PHASES = ("data_s", "dataloader_s", "forward_s", "backward_s", "optimizer_s", "other_s")


def aligned(run: RunRecord, metric: str) -> Array:
    """Ranks × steps, as far as every rank got; NaN where a rank does not know the metric."""
    ranks = [rank for rank in run.ranks if rank.series.get("kind")]
    num_steps = min((len(rank.series["kind"]) for rank in ranks), default=0)
    values = np.full((len(ranks), num_steps), np.nan)
    for row, rank in zip(values, ranks, strict=True):
        known = rank.series.get(metric, [])[:num_steps]
        row[: len(known)] = known
    return values


def of_kind(run: RunRecord, metric: str, kind: int = TIMED) -> Array:
    """Ranks × steps of one kind."""
    values = aligned(run, metric)
    return values[:, np.all(aligned(run, "kind") == kind, axis=0)] if values.size else np.empty((0, 0))


def mean_over_ranks(values: Array) -> Array:
    return values.mean(axis=0) if values.size else np.empty(0)


def world_step_times(run: RunRecord) -> Array:
    """The step time of the world: a step is over when its last rank is done. Seconds, one per timed step."""
    times = of_kind(run, "step_time_s")
    return times.max(axis=0) if times.size else np.empty(0)


def rank0_step_times(run: RunRecord) -> Array:
    """Rank 0's step times by the wall clock, as a script that prints them would see them."""
    rank0 = next((rank for rank in run.ranks if rank.rank == 0), None)
    if rank0 is None or not rank0.series.get("kind"):
        return np.empty(0)
    is_timed = np.asarray(rank0.series["kind"][1:]) == TIMED
    return np.diff(rank0.series["wall_s"])[is_timed] if "wall_s" in rank0.series else np.empty(0)


def samples_per_step(run: RunRecord) -> float | None:
    """How many samples the whole world trains on in one step, when anybody said so."""
    given = run.options.get("samples_per_step")
    if given:
        return float(given)
    seen = [rank.facts.get("batch", {}).get("samples_per_step") for rank in run.ranks]
    known = [float(samples) for samples in seen if samples is not None]
    return sum(known) if known and len(known) == run.world else None


def step_metrics(runs: Sequence[RunRecord], noise: LaunchNoise = UNKNOWN_NOISE) -> dict[str, Metric | None]:
    """The times of one configuration's runs, one run per round."""
    worlds = [world_step_times(run) for run in runs]
    metrics = {
        "step_time_s": median_over_rounds(worlds, "s", noise),
        "rank0_step_time_s": median_over_rounds([rank0_step_times(run) for run in runs], "s", noise),
        "step_time_spread": one_per_round([_spread(times) for times in worlds], "ratio"),
        "launch_spread": _launch_spread(worlds),
        "first_step_s": one_per_round([_warmup(run)[0] for run in runs], "s"),
        "warmup_s": one_per_round([_warmup(run)[1] for run in runs], "s"),
        "micro_steps": counted([_centre(of_kind(run, "micro_steps")) for run in runs], "count"),
    }
    for phase in PHASES:
        # The mean over ranks, so that the phases of a step add up to a step.
        metrics[phase] = median_over_rounds([mean_over_ranks(of_kind(run, phase)) for run in runs], "s")
    return {**metrics, **_throughput(metrics["step_time_s"], runs)}


def _throughput(step_time: Metric | None, runs: Sequence[RunRecord]) -> dict[str, Metric | None]:
    """Steps and samples of the whole world per second: a step counts once, not once per rank."""
    if step_time is None or step_time.low <= 0:
        return {}
    metrics: dict[str, Metric | None] = {"throughput_steps_s": _rate(1.0, step_time, "steps/s")}
    samples = {samples_per_step(run) for run in runs}
    if len(samples) == 1 and (num_samples := samples.pop()) is not None:
        metrics["throughput_samples_s"] = _rate(num_samples, step_time, "samples/s")
    return metrics


def _rate(amount: float, time: Metric, unit: str) -> Metric:
    return Metric(amount / time.median, amount / time.high, amount / time.low, time.n, unit)


def _spread(times: Array) -> float:
    """Half the distance from the 16th to the 84th percentile, over the median."""
    times = times[np.isfinite(times)]
    if len(times) < 2:
        return float("nan")
    low, median, high = np.percentile(times, (16, 50, 84))
    return float((high - low) / 2 / median)


def _launch_spread(worlds: Sequence[Array]) -> Metric | None:
    medians = [float(np.nanmedian(times)) for times in worlds if np.isfinite(times).any()]
    if len(medians) < 2:
        return None
    spread = float(np.std(medians, ddof=1) / np.mean(medians))
    return Metric(spread, float("nan"), float("nan"), len(medians), "ratio")


def _warmup(run: RunRecord) -> tuple[float, float]:
    """The world's first step, and all its warm-up steps together."""
    times = of_kind(run, "step_time_s", WARMUP)
    if not times.size:
        return float("nan"), float("nan")
    slowest = times.max(axis=0)
    return float(slowest[0]), float(slowest.sum())


def _centre(values: Array) -> float:
    return float(np.nanmedian(values)) if np.isfinite(values).any() else float("nan")


def ranks_by_number(run: RunRecord) -> list[RankRecord]:
    """The ranks that took a step, in the order of `aligned`'s rows."""
    return [rank for rank in run.ranks if rank.series.get("kind")]
