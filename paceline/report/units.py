"""One unit for all values of an axis: numbers and their unit enter, what a reader likes to see leaves.

Exercise: `pytest tests/unit/test_report_charts.py -k unit`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SIZES = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "bytes": (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)),
    "ratio": (("×", 1.0),),
}


@dataclass(frozen=True)
class Unit:
    """`value / size` is what stands on the axis, `name` what stands beside it."""

    size: float
    name: str

    def show(self, value: float) -> str:
        """Three significant digits and the unit."""
        number = value / self.size
        if number == 0 or not math.isfinite(number):
            digits = f"{number:.0f}"
        else:
            digits = f"{number:.{min(max(2 - math.floor(math.log10(abs(number))), 0), 4)}f}"
        return f"{digits} {self.name}".rstrip()


def choose_unit(values: Sequence[float], unit: str) -> Unit:
    """The unit in which the largest value is at least 1."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    sizes = _SIZES.get(unit)
    if sizes is None:
        return Unit(1.0, unit)
    name, size = next(((name, size) for name, size in sizes if largest >= size), sizes[-1])
    return Unit(size, name)
