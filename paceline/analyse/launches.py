"""What the rows of a study tell each other: how much one launch of the same thing differs from the next.

Three launches of one row say little about how much launches differ, and Student's t rightly asks a high price
for that. But a study has many rows, launched in turn on one machine. Where rows of the same world differ from
launch to launch alike, what the others show counts as launches of one's own; where they do not, it counts for
less, down to nothing (an empirical Bayes estimate of a variance: Smyth, Linear models and empirical Bayes
methods, 2004, section 6.2).
Try it: `pytest tests/unit/test_launch_noise.py`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import special
from scipy.optimize import brentq

from paceline.record import LaunchNoise

Key = TypeVar("Key", bound=Hashable)

# Fewer others cannot show whether rows are alike.
MIN_OTHERS = 3
# Launches that agree to the last digit are simulated ones; their logarithm must be finite.
LEAST_VARIANCE = 1e-18


def learn_from_others(medians: Mapping[Key, Sequence[float]]) -> dict[Key, LaunchNoise]:
    """For each row what all the others say, from the medians of every row's launches."""
    known = {
        key: (max(float(np.var(np.log(values), ddof=1)), LEAST_VARIANCE), len(values) - 1)
        for key, values in medians.items()
        if len(values) > 1 and min(values) > 0
    }
    return {key: _pool([known[other] for other in known if other != key]) for key in medians}


def _pool(others: Sequence[tuple[float, int]]) -> LaunchNoise:
    if len(others) < MIN_OTHERS:
        return LaunchNoise()
    variances, freedoms = np.array([v for v, _ in others]), np.array([d for _, d in others], dtype=float)
    # Of alike rows the logarithms of the variances scatter by chance alone. What they scatter beyond is
    # unlikeness, and the error of its estimate is added: rows that only seem alike would narrow too much.
    logs = np.log(variances) - special.digamma(freedoms / 2) + np.log(freedoms / 2)
    by_chance = float(np.mean(special.polygamma(1, freedoms / 2)))
    scatter = max(float(np.var(logs, ddof=1)), by_chance)
    unlike = scatter - by_chance + scatter * math.sqrt(2 / (len(others) - 1))
    freedom = min(float(freedoms.sum()), 2 * _invert_trigamma(unlike))
    centre = float(np.mean(logs) + special.digamma(freedom / 2) - np.log(freedom / 2))
    return LaunchNoise(math.exp(centre), freedom)


def _invert_trigamma(value: float) -> float:
    """x with trigamma(x) = value; it falls from infinity to zero."""
    low, high = 1e-3, 1e6
    if value >= special.polygamma(1, low):
        return low
    if value <= special.polygamma(1, high):
        return high
    return float(brentq(lambda x: float(special.polygamma(1, x)) - value, low, high))
