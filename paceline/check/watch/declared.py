"""What the script itself says about accumulation and batch size: whole numbers under such names.

Enters: the script's frames at a backward call. Leaves: {"ACCUM_STEPS": 4, "args.batch_size": 32}, from
globals, locals, flags and the attributes of the script's own objects.

    pytest tests/check/test_watch.py
"""

from __future__ import annotations

import argparse
import re
import types
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

NAMES = re.compile(r"accum|batch|(^|_|\.)g?bs(_|$)", re.IGNORECASE)
MOST_NAMES = 50


def read_declared(frames: Iterable[FrameType]) -> dict[str, int]:
    """The innermost frame wins where a name occurs twice."""
    found: dict[str, int] = {}
    for frame in frames:
        for variables in (frame.f_locals, frame.f_globals):
            for name, value in list(variables.items()):
                _add(found, name, value)
                for inner, inner_value in _attributes(value, frame.f_globals.get("__name__")).items():
                    _add(found, f"{name}.{inner}", inner_value)
    return found


def _add(found: dict[str, int], name: str, value: Any) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and value > 0 and NAMES.search(name) and len(found) < MOST_NAMES:
        found.setdefault(name, value)


def _attributes(value: Any, script_name: Any) -> Mapping[str, Any]:
    """Of flags, dictionaries of settings and objects of the script's own classes."""
    if isinstance(value, dict):
        return {name: inner for name, inner in value.items() if isinstance(name, str)}
    own = isinstance(value, argparse.Namespace | types.SimpleNamespace) or (
        type(value).__module__ == script_name and not isinstance(value, type)
    )
    return getattr(value, "__dict__", {}) if own else {}
