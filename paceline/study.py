"""A study: which program runs with which arguments in which worlds, how often, and under which options.

In: what the user said, on the command line or (study_file.py) in TOML. Out: a `Study` whose every
configuration can run, or a ValueError that names the nearest that can. No torch here.
Exercise: `pytest tests/unit/test_study.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.nearest import find_program, nearest_of
from paceline.quantity import parse_bytes, parse_link

PLACEMENTS = ("tuned", "plain")
DEVICES = ("auto", "cpu")

# A step begins where the one before it ended, so the first has no beginning that could be timed.
MIN_WARMUP = 1
# Below this a median and its interval say nothing.
MIN_STEPS = 3
# Rounds that are run before the width of an interval is believed.
MIN_ROUNDS_UNTIL = 3
DEFAULT_ROUNDS = 3
DEFAULT_BUDGET_S = 600.0


@dataclass(frozen=True)
class Config:
    """One row of the tables: a program with its arguments in a world."""

    program: str
    arguments: tuple[str, ...]
    world: int  # ranks on this node, as in torchrun --nproc-per-node
    placement: str


@dataclass(frozen=True)
class Options:
    """How every configuration of a study is run and observed."""

    steps: int = 30
    warmup: int = 5
    sampled: int = 4
    to_end: bool = False
    step_marker: str = "auto"
    timeout_s: float = 300.0
    device: str = "auto"  # "cpu" hides the accelerators of the machine from the script
    virtual_devices: int = 0
    virtual_memory: str | None = None
    virtual_link: str | None = None
    virtual_as_cuda: bool = False
    nnodes: str = "1"
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: str | None = None
    local_addr: str | None = None

    def __post_init__(self) -> None:
        check_steps(self.steps)
        check_warmup(self.warmup)
        check_count(self.sampled)
        check_count(self.virtual_devices)
        check_nnodes(self.nnodes)
        check_device(self.device)
        check_step_marker(self.step_marker)
        check_duration(self.timeout_s)
        if self.virtual_memory is not None:
            parse_bytes(self.virtual_memory)
        if self.virtual_link is not None:
            parse_link(self.virtual_link)
        raise_first(find_conflicts({name for name, value in changed_options(self).items() if value}))

    @property
    def hides_accelerators(self) -> bool:
        """Virtual devices stand where a machine has none: a real one beside them would be taken instead."""
        return self.device == "cpu" or self.virtual_devices > 0


@dataclass(frozen=True)
class Study:
    """Everything that `measure` needs to know."""

    name: str
    configs: list[Config]
    rounds: int = DEFAULT_ROUNDS  # 0 with `until`: as many as it takes
    until: float | None = None  # half-width of the interval of every ratio, as a share
    budget_s: float | None = None
    options: Options = field(default_factory=Options)
    # Whose ranks divide the cores among them, where that is a world of another part of the same study.
    largest_world: int | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.configs:
            raise ValueError("a study needs at least one configuration; try --nproc 1")
        if self.until is None:
            check_rounds(self.rounds)
        if self.budget_s is not None:
            check_duration(self.budget_s)


def check_steps(steps: int) -> int:
    if steps < MIN_STEPS:
        raise ValueError(
            f"{steps} measured steps are too few for an interval; at least {MIN_STEPS}, 30 is usual"
        )
    return steps


def check_warmup(warmup: int) -> int:
    if warmup < MIN_WARMUP:
        raise ValueError(
            f"a warm-up of {warmup} steps leaves nowhere to start the clock; the least is {MIN_WARMUP}"
        )
    return warmup


def check_count(count: int) -> int:
    if count < 0:
        raise ValueError(f"{count} is below zero; the least is 0")
    return count


def check_duration(seconds: float) -> float:
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"{seconds:g} s is no duration above zero; try 300s")
    return seconds


def check_rounds(rounds: int) -> int:
    if rounds < 1:
        raise ValueError(f"{rounds} rounds measure nothing; the least is 1, 3 is usual")
    return rounds


def check_world(world: int) -> int:
    if world < 1:
        raise ValueError(f"a world of {world} ranks cannot run; the least is 1")
    return world


def check_placement(placement: str) -> str:
    if placement not in PLACEMENTS:
        raise ValueError(f"unknown placement {placement!r}; {nearest_of(placement, PLACEMENTS)}")
    return placement


def check_step_marker(marker: str) -> str:
    if not marker.isidentifier():
        raise ValueError(f"{marker!r} marks no step; it is auto, mark, or an optimizer's class such as AdamW")
    return marker


def check_device(device: str) -> str:
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}; {nearest_of(device, DEVICES)}")
    return device


def check_nnodes(nnodes: str) -> str:
    """torchrun's own form: a number, or MIN:MAX for an elastic world."""
    if not re.fullmatch(r"[1-9][0-9]*(:[1-9][0-9]*)?", nnodes):
        raise ValueError(f"{nnodes!r} is not a number of nodes; try 2, or 1:4 for an elastic world")
    return nnodes


def check_name(name: str) -> str:
    """A study's name becomes part of a path and an argument of `show`."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"{name!r} cannot name a study (letters, digits, . _ -); try {default_name(name)!r}")
    return name


def default_name(program: str) -> str:
    """`scripts/train me.py` → `train-me`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(program).stem).strip("-._") or "study"


def find_conflicts(given: Collection[str]) -> list[tuple[str, str]]:
    """Which of the settings that were given exclude each other: (its name, what is wrong)."""
    conflicts = []
    if "rounds" in given and "until" in given:
        conflicts.append(
            ("rounds", "rounds and until exclude each other: a fixed number, or as many as needed")
        )
    if "virtual_devices" not in given:
        conflicts += [
            (
                name,
                f"{option_name(name)} needs {option_name('virtual_devices')} N, the number of devices; try 2",
            )
            for name in ("virtual_memory", "virtual_link", "virtual_as_cuda")
            if name in given
        ]
    if "nnodes" in given and "rdzv_endpoint" not in given:
        conflicts.append(("nnodes", "several nodes need rdzv-endpoint HOST:PORT, the same on each of them"))
    if "nnodes" in given:
        conflicts += [
            (
                name,
                f"{option_name(name)} is for one node: of several, each would decide by itself when to stop, "
                "and wait for the others; use rounds",
            )
            for name in ("until", "budget_s")
            if name in given
        ]
    return conflicts


def option_name(field_name: str) -> str:
    """The name that users write: `virtual_devices` → `virtual`, `timeout_s` → `timeout`."""
    return {"virtual_devices": "virtual", "timeout_s": "timeout", "budget_s": "budget"}.get(
        field_name, field_name.replace("_", "-")
    )


def raise_first(conflicts: Sequence[tuple[str, str]]) -> None:
    if conflicts:
        raise ValueError(conflicts[0][1])


def changed_options(options: Options) -> dict[str, object]:
    """The options that differ from their default."""
    defaults = {spec.name: spec.default for spec in dataclasses.fields(Options)}
    return {name: value for name, value in dataclasses.asdict(options).items() if value != defaults[name]}


def parse_sweeps(texts: Iterable[str]) -> dict[str, list[str]]:
    """`["accum-steps=4,8"]` → `{"accum-steps": ["4", "8"]}`."""
    sweeps: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().removeprefix("--")
        if not name or not equals:
            raise ValueError(
                f"cannot read the sweep {text!r}; it is NAME=VALUE,VALUE, such as accum-steps=4,8"
            )
        if name in sweeps:
            raise ValueError(f"{name} is swept twice; put all its values in one list: {name}=4,8,16")
        sweeps[name] = [value.strip() for value in values.split(",") if value.strip()]
    return sweeps


def expand(
    program: str,
    arguments: Sequence[str],
    worlds: Sequence[int],
    sweeps: Mapping[str, Sequence[str]],
    placements: Sequence[str],
) -> list[Config]:
    """Every combination once: sweeps multiply, then placements, then worlds, which vary fastest."""
    find_program(program)
    for world in worlds:
        check_world(world)
    for placement in placements:
        check_placement(placement)
    for name, values in sweeps.items():
        if not values:
            raise ValueError(f"the sweep of {name} has no values; try {name}=4,8")
    appended = [
        [word for name, value in zip(sweeps, values, strict=True) for word in (f"--{name}", value)]
        for values in itertools.product(*sweeps.values())
    ]
    return list(
        dict.fromkeys(
            Config(program, (*arguments, *extra), world, placement)
            for extra, placement, world in itertools.product(appended, placements, worlds)
        )
    )


def build_study(
    configs: list[Config],
    *,
    name: str | None = None,
    rounds: int | None = None,
    until: float | None = None,
    budget_s: float | None = None,
    options: Options,
) -> Study:
    """A study with what was left out filled in: three rounds, or for `until` at most ten minutes."""
    given = {"rounds": rounds, "until": until, "budget_s": budget_s, **changed_options(options)}
    raise_first(find_conflicts({name for name, value in given.items() if value is not None}))
    if until is not None:
        rounds, budget_s = 0, budget_s or DEFAULT_BUDGET_S
    elif rounds is None:
        rounds = DEFAULT_ROUNDS
    return Study(name or default_name(configs[0].program), configs, rounds, until, budget_s, options)
