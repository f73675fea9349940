"""docs/metrics.md defines exactly the metrics that the code can report, with their units."""

from __future__ import annotations

import math
import re
from pathlib import Path

from synthetic import communication, devices, make_rank, make_run, memory

from paceline.analyse import summarise
from paceline.record import STEP_METRICS, Row

DOCUMENT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
# The precisions depend on the script, the devices on the machine.
PATTERNS = {
    re.compile(r"^matmul_flops\..+$"): "matmul_flops.<precision>",
    re.compile(r"^(\w+_of_device)\.\d+$"): r"\1.<device>",
}


def everything() -> list[Row]:
    """Rows of runs in which every series and every fact is known."""
    facts = {
        "communication": communication(exposed_s=0.002),
        "memory": {**memory(parameters=8), "device_peak_bytes": 16},
        "precision": {"matmul_flops": {"float32": 1.0, "bfloat16": 2.0}},
        "gradients": {"norms": [1.0]},
        "timeline": {"steps": [], "compute_share": 0.8},
        "devices": devices(peak_bytes=[8, 16], transfers=[(0, 1, 2, 64)], busy={0: [(0, 1)], 1: [(1, 2)]}),
    }
    runs = []
    for world in (1, 2):
        for round in range(2):
            ranks = [make_rank(rank, [0.02] * 10, facts=facts) for rank in range(world)]
            for rank in ranks:
                num_steps = len(rank.series["kind"])
                rank.series = {name: [1.0] * num_steps for name in STEP_METRICS} | rank.series
            for placement in ("plain", "tuned"):
                runs.append(
                    make_run(
                        world=world,
                        round=round,
                        placement=placement,
                        ranks=ranks,
                        options={"samples_per_step": 8},
                    )
                )
    return summarise(runs)


def documented() -> dict[str, str]:
    """Name → unit, from the first two columns of the tables."""
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]+?) \|", DOCUMENT, re.MULTILINE))


def reported() -> dict[str, str]:
    return {_documented_as(name): metric.unit for row in everything() for name, metric in row.metrics.items()}


def _documented_as(name: str) -> str:
    for pattern, written in PATTERNS.items():
        name = pattern.sub(written, name)
    return name


def test_what_is_reported_is_documented_and_the_reverse() -> None:
    assert documented() == reported()


def test_every_metric_is_defined_once() -> None:
    names = re.findall(r"^\| `([^`]+)` \|", DOCUMENT, re.MULTILINE)
    assert len(names) == len(set(names))


def test_every_name_that_the_definitions_mention_exists() -> None:
    mentioned = set(re.findall(r"`([a-z0-9]+_[a-z0-9_]+(?:\.\w+)?)`", DOCUMENT))
    others = {"perf_counter", "work_differs", "samples_per_step", "matmul_flops.bfloat16"}
    assert mentioned - others <= set(documented())


def test_no_metric_of_known_steps_is_unknown() -> None:
    assert all(math.isfinite(metric.median) for row in everything() for metric in row.metrics.values())
