"""Quantities as people write them: `8GiB`, `3%`, `2m`, `12GB/s,5us` become numbers, and back.

A text that is none raises a ValueError that names the rule and an example. Standard library only.
Exercise: `pytest tests/unit/test_quantity.py`.
"""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµ%/]*)\s*")

_BYTES = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": factor**power
    for power, prefix in enumerate("KMGTP", start=1)
    for suffix, factor in (("", 1024), ("iB", 1024), ("B", 1000))
}
_SECONDS = {"": 1.0, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _split(text: str, rule: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not {rule}")
    return float(match[1]), match[2]


def _scaled(text: str, units: dict[str, float] | dict[str, int], rule: str) -> float:
    number, unit = _split(text, rule)
    # `k` and `K` are both in use; no two units differ by case alone.
    by_case = {name.lower(): factor for name, factor in units.items()}
    if unit.lower() not in by_case:
        raise ValueError(
            f"{text!r} has the unit {unit!r}, which is not one of {', '.join(filter(None, units))}"
        )
    return number * by_case[unit.lower()]


def parse_bytes(text: str) -> int:
    """`8GiB` → 8589934592; `8GB` → 8000000000; `8G` is 8GiB, as in most tools that limit memory."""
    size = int(_scaled(text, _BYTES, "a size, such as 8GiB or 512MB"))
    if size < 1:
        raise ValueError(f"{text!r} is not a size of at least one byte, such as 8GiB or 512MB")
    return size


def parse_duration_s(text: str) -> float:
    """`90` and `90s` → 90.0; `2m` → 120.0; `1.5h` → 5400.0."""
    rule = "a duration above zero, such as 90s, 10m or 1.5h"
    duration_s = _scaled(text, _SECONDS, rule)
    if not 0 < duration_s < math.inf:
        raise ValueError(f"{text!r} is not {rule}")
    return duration_s


def parse_share(text: str) -> float:
    """`3%` and `0.03` → 0.03. A bare 3 is refused: it could mean either."""
    rule = "a share between 0 and 100 %, such as 3%"
    number, unit = _split(text, rule)
    share = number / 100 if unit == "%" else number
    if unit not in ("", "%") or not 0 < share < 1:
        nearest = f"; try {number:g}%" if unit == "" and 0 < number < 100 else ""
        raise ValueError(f"{text!r} is not {rule}{nearest}")
    return share


def parse_link(text: str) -> tuple[float, float]:
    """`12GB/s,5us` → (12e9 bytes per second, 5e-6 seconds); the latency may be left out."""
    rule = "a link, such as 12GB/s,5us (bandwidth, latency)"
    bandwidth, _, latency = text.partition(",")
    if not bandwidth.strip().endswith("/s"):
        raise ValueError(f"{text!r} is not {rule}")
    bytes_per_s = float(parse_bytes(bandwidth.strip().removesuffix("/s")))
    return bytes_per_s, parse_duration_s(latency) if latency else 0.0


def _digits(value: float) -> str:
    """Three significant digits without an exponent for what lies between 0.001 and 1e6."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(decimals, 3)}f}"


def format_duration(seconds: float) -> str:
    """0.0123 → `12.3 ms`; 75 → `1 min 15 s`."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 1e-3:
        return f"{_digits(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{_digits(seconds * 1e3)} ms"
    if seconds < 60:
        return f"{_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def format_roughly(seconds: float) -> str:
    """For what is only guessed: 49.3 → `49 s`."""
    return f"{seconds:.0f} s" if seconds < 60 else format_duration(seconds)


def format_bytes(num_bytes: float) -> str:
    """3221225472 → `3.00 GiB`."""
    if not math.isfinite(num_bytes):
        return "–"
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{_digits(size)} {unit}"
