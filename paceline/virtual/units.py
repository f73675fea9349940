"""Sizes and rates as people write them: `8GiB`, `12GB/s,5us`.

Enters: text or a number. Leaves: bytes, bytes per second, seconds.
Exercise: `python -c "from paceline.virtual.units import parse_size; print(parse_size('8GiB'))"`
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZE_UNITS: dict[str, int] = {"B": 1, **{f"{p}B": 1000**n for n, p in enumerate("KMGT", 1)}}
_SIZE_UNITS |= {f"{p}iB": 1024**n for n, p in enumerate("KMGT", 1)}
_TIME_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Link:
    """What joins every two devices: a rate and the time that even an empty copy takes."""

    bytes_per_s: float
    latency_s: float


def parse_size(text: str | int) -> int:
    """Bytes of a size such as `8GiB`, `500MB` or `1048576`."""
    if isinstance(text, int):
        return text
    found = re.fullmatch(r"\s*([\d.]+)\s*([A-Za-z]*)\s*", text)
    units = {name.lower(): factor for name, factor in _SIZE_UNITS.items()}
    unit = (found[2] or "B").lower() if found else ""
    if found is None or unit not in units or not _is_number(found[1]):
        raise ValueError(f"{text!r} is no size; write a number and a unit, such as 8GiB or 500MB")
    return round(float(found[1]) * units[unit])


def parse_link(text: str) -> Link:
    """A link such as `12GB/s,5us`; without a latency, `12GB/s`, it is zero."""
    rate, _, latency = (part.strip() for part in text.partition(","))
    if not rate.endswith("/s"):
        raise ValueError(f"{text!r} is no link; write rate and latency, such as 12GB/s,5us")
    bytes_per_s = parse_size(rate.removesuffix("/s"))
    if bytes_per_s <= 0:
        raise ValueError(f"a link's rate must be above zero, not {rate!r}; try 12GB/s")
    return Link(bytes_per_s, _parse_duration_s(latency) if latency else 0.0)


def _parse_duration_s(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)\s*([a-zµ]+)", text)
    if found is None or found[2] not in _TIME_UNITS_S or not _is_number(found[1]):
        raise ValueError(f"{text!r} is no latency; write a number and one of {', '.join(_TIME_UNITS_S)}: 5us")
    return float(found[1]) * _TIME_UNITS_S[found[2]]


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
