"""The constants that were measured beside those of the handout, in a line that fits below a report's title.

In: a lab and a scale. Out: text. Exercise: `pytest tests/unit/test_lab_run.py -k constants`.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.labs.plan import skipped
from paceline.labs.spec import Change, Experiment, Lab, ScaleName


def describe_constants(lab: Lab, scale: ScaleName) -> str:
    """`Code 1, Code 2: dim 1024 (handout 8192)`; experiments that change alike share an entry."""
    if scale == "handout":
        return "exactly the handout's"
    alike: dict[str, list[str]] = {}
    for task in lab.tasks:
        for experiment in task.experiments:
            alike.setdefault(_describe(experiment, scale), []).append(experiment.title)
    alike.pop("", None)
    largest = max(alike.values(), key=len, default=[])
    texts: list[str] = []
    for change, titles in alike.items():
        named = list(dict.fromkeys(titles))
        if titles is largest and len(alike) > 1 and len(named) > 2:
            texts.insert(0, change)
        else:
            others = f" and {len(named) - 1} more" if len(named) > 1 else ""
            texts.append(change if len(alike) == 1 else f"“{named[0]}”{others}: {change}")
    here, handout = lab.scales[scale], lab.scales["handout"]
    counted = [
        f"{getattr(here, name)} {name} (handout {getattr(handout, name)})"
        for name in ("steps", "rounds")
        if getattr(here, name) != getattr(handout, name)
    ]
    return "; ".join([*texts, *([", ".join(counted)] if counted else [])]) or "those of the handout"


def _describe(experiment: Experiment, scale: ScaleName) -> str:
    if skipped(experiment, scale):
        return "left out"
    here = experiment.scales.get(scale, Change())
    values = experiment.arguments | here.arguments
    changed = [
        f"{name} {values[name]} (handout {experiment.arguments.get(name, 'none')})"
        for name in here.arguments
        if values[name] != experiment.arguments.get(name)
    ]
    for name, swept in here.sweep.items():
        if swept != experiment.sweep.get(name):
            changed.append(f"{name} {_list(swept)} (handout {_list(experiment.sweep.get(name, []))})")
    if here.worlds and here.worlds != experiment.worlds:
        changed.append(f"ranks {_list(here.worlds)} (handout {_list(experiment.worlds)})")
    return ", ".join(changed)


def _list(values: Sequence[object]) -> str:
    return "/".join(map(str, values))
