"""Stability of a training, defined and measured: is everything finite, is it like fp32, is it steady.

In: the launches of a configuration and of its fp32 twin (same seeds, same data). Out: a `Stability`.
A training is called stable when all losses and gradients are finite, the scaler skips at most a tenth of the
steps, and no loss is further than 5 % from the twin's. Exercise: `pytest tests/unit/test_lab_stability.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from paceline.analyse.intervals import Array
from paceline.analyse.steps import aligned
from paceline.labs.answers.words import say_share
from paceline.labs.data import LabRow
from paceline.record import RunRecord

LARGEST_DEVIATION = 0.05
LARGEST_SKIPPED_SHARE = 0.1


@dataclass(frozen=True)
class Stability:
    """What was seen over all steps of all launches; None or NaN where it was not."""

    finite: bool
    skipped: int | None  # optimizer steps that the scaler left out; None without a scaler
    num_steps: int
    num_losses: int  # of those that were read, the finite ones
    deviation: float  # the largest relative deviation of a loss from the twin's; NaN without one
    spread: float  # of the step times, as a share
    unseen: str = ""  # what would have to be known before it is called stable

    @property
    def verdict(self) -> str:
        too_many = (self.skipped or 0) > LARGEST_SKIPPED_SHARE * self.num_steps
        if not self.finite or too_many or self.deviation > LARGEST_DEVIATION:
            return "unstable"
        return "cannot be told" if self.unseen else "stable"

    def describe(self) -> str:
        """`stable: finite, 0 skips, at most 0.31 % from fp32, steps vary 4.0 %`."""
        parts = [self.unseen] if self.unseen else []
        if self.num_losses or not self.finite:
            parts.append("all finite" if self.finite else "**not all finite**")
        if self.skipped is not None:
            parts.append(f"{self.skipped} of {self.num_steps} steps skipped")
        if not math.isnan(self.deviation):
            parts.append(f"loss at most {say_deviation(self.deviation)} from fp32")
        if not math.isnan(self.spread):
            parts.append(f"step times vary by {say_share(self.spread)}")
        return f"**{self.verdict}**: {', '.join(parts)}"


def judge(row: LabRow, twin: LabRow | None) -> Stability | None:
    """None where nothing was measured. `twin` None: the row is in fp32 itself."""
    if not row.runs:
        return None
    skips = [aligned(run, "skipped") for run in row.runs]
    has_scaler = any(np.isfinite(skipped).any() for skipped in skips)
    spread = row.metric("step_time_spread")
    num_losses = sum(int(np.isfinite(losses_of(run)).sum()) for run in row.runs)
    deviation = loss_deviation(row, twin) if twin is not None else math.nan
    unseen = ""
    if not num_losses:
        unseen = "no loss was read"
    elif twin is not None and math.isnan(deviation):
        unseen = "there is no fp32 twin to compare with"
    return Stability(
        # The rule of `explain`: losses of all steps, gradients of the sampled ones.
        finite=row.row is not None and all(finding.code != "non_finite" for finding in row.row.findings),
        skipped=int(sum(np.nansum(skipped.max(axis=0, initial=0)) for skipped in skips))
        if has_scaler
        else None,
        num_steps=sum(losses_of(run).shape[1] for run in row.runs),
        num_losses=num_losses,
        deviation=deviation,
        spread=spread.median if spread else math.nan,
        unseen=unseen,
    )


def loss_deviation(row: LabRow, twin: LabRow) -> float:
    """The largest |loss − twin's loss| / |twin's loss| over ranks, steps and rounds; NaN without both."""
    by_round = {run.round: run for run in twin.runs}
    largest = math.nan
    for run in row.runs:
        if run.round in by_round:
            ours, theirs = losses_of(run), losses_of(by_round[run.round])
            steps = min(ours.shape[1], theirs.shape[1])
            if ours.shape[0] != theirs.shape[0] or not steps:
                continue
            relative = np.abs(ours[:, :steps] - theirs[:, :steps]) / np.abs(theirs[:, :steps])
            if np.isfinite(relative).any():
                largest = float(np.nanmax([largest, np.nanmax(relative)]))
    return largest


def losses_of(run: RunRecord) -> Array:
    """Ranks × steps, warm-up and sampled steps included."""
    return aligned(run, "loss")


def say_deviation(deviation: float) -> str:
    """`0.31 %`; below a thousandth of a per cent in powers of ten."""
    if deviation == 0:
        return "0"
    return f"{deviation:.0e}".replace("e-0", "e-") if deviation < 1e-5 else f"{deviation * 100:.2g} %"
