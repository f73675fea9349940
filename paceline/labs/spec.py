"""A lab, as its lab.toml declares it: tasks, questions, and the experiments that answer them.

In: labs/<name>/lab.toml and a scale. Out: a `Lab`, and the studies that `measure` runs for it. An
experiment's own keys are the course's constants (the scale `handout`); what another scale changes
stands in its table `scales`. The format is described in docs/labs.md.
Exercise: `pytest tests/unit/test_lab_spec.py`.
"""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from paceline.nearest import find_program, nearest_of
from paceline.study import Config, Options, Study

ScaleName = Literal["handout", "laptop", "tiny"]
SCALES: tuple[ScaleName, ...] = ("handout", "laptop", "tiny")
Value = bool | int | float | str
# A rank's probe may need a step more than it measures to see where the last one ends.
SPARE_STEPS = 2


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Scale(_Table):
    """How much is measured: the same for every experiment of a lab."""

    steps: int
    warmup: int
    sampled: int = 4
    rounds: int
    timeout_s: float = 300.0

    @property
    def script_steps(self) -> int:
        """What the scripts get as --steps, so that a printed command does the same without Paceline."""
        return self.warmup + self.steps + self.sampled + SPARE_STEPS


class Change(_Table):
    """What one scale makes of an experiment; what is absent stays."""

    arguments: dict[str, Value] = {}
    sweep: dict[str, list[Value]] = {}
    worlds: list[int] | None = None
    skip: str | None = None  # the reason why this scale leaves the experiment out


class Experiment(_Table):
    """One program, what is varied, and where it runs."""

    id: str
    title: str  # the row's or curve's name in tables and plots
    program: str  # relative to the lab's folder
    # ranks: a world of ranks. process: one process that drives several devices. table: no training and
    # no probe; run once with --json-out FILE, which receives a list of rows.
    kind: Literal["ranks", "process", "table"] = "ranks"
    option: str | None = None  # HW1's research options A, B, C
    arguments: dict[str, Value] = {}  # true is a bare flag, false leaves it out
    sweep: dict[str, list[Value]] = {}
    worlds: list[int] = [1]
    devices: int = 0  # accelerators that each process must see; virtual ones where the machine has too few
    link: str | None = None  # the emulated link between virtual devices
    placement: list[Literal["tuned", "plain"]] = ["tuned"]
    min_rounds: int = 1  # for what needs two runs at every scale
    scales: dict[ScaleName, Change] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind != "ranks" and self.worlds != [1]:
            raise ValueError(f"{self.kind} is one process, its world is 1, found {self.worlds}")
        if self.link is not None and not self.devices:
            raise ValueError("a link joins virtual devices: devices must say how many")
        return self


class Question(_Table):
    id: str  # "3.2": unique in its lab
    text: str


class Task(_Table):
    id: str
    title: str
    questions: list[Question] = []
    experiments: list[Experiment] = []


class Lab(_Table):
    """Everything that a lab.toml says."""

    name: str
    title: str
    page_limit: int
    answer_lines: int | None = None  # the most lines that an explanation may have
    scripts: list[str]  # what is handed in, relative to the lab's folder
    ours: dict[str, str] = {}  # constants that the course leaves open, each with why we chose it
    scales: dict[ScaleName, Scale]
    tasks: list[Task] = Field(min_length=1)
    _folder: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _check(self) -> Self:
        missing = [scale for scale in SCALES if scale not in self.scales]
        if missing:
            raise ValueError(f"the scale {missing[0]} is missing; a lab has {', '.join(SCALES)}")
        for kind, ids in (
            ("task", [task.id for task in self.tasks]),
            ("question", [question.id for task in self.tasks for question in task.questions]),
            ("experiment", [experiment.id for task in self.tasks for experiment in task.experiments]),
        ):
            twice = sorted({id for id in ids if ids.count(id) > 1})
            if twice:
                raise ValueError(f"two {kind}s have the id {twice[0]!r}")
        return self

    @property
    def folder(self) -> Path:
        return self._folder

    def task(self, id: str) -> Task:
        """The task of this id; `--task 2` finds it."""
        found = {task.id: task for task in self.tasks}
        if id not in found:
            raise ValueError(f"{self.name} has no task {id!r}; {nearest_of(id, found)}")
        return found[id]


@dataclass(frozen=True)
class Planned:
    """One configuration of one experiment, and why it cannot run where it cannot."""

    experiment: Experiment
    config: Config
    virtual_devices: int = 0
    refusal: str | None = None


def find_labs() -> dict[str, Path]:
    """The labs by name: beside the package in a clone, inside it when installed from a wheel."""
    here = Path(__file__).resolve().parent
    for root in (here / "course", here.parents[1] / "labs"):
        found = {path.parent.name: path for path in sorted(root.glob("*/lab.toml"))}
        if found:
            return found
    raise ValueError(f"no labs are installed: neither {here}/course nor {here.parents[1]}/labs has any")


def find_lab(name: str) -> Lab:
    labs = find_labs()
    if name not in labs:
        raise ValueError(f"there is no lab {name!r}; {nearest_of(name, labs)}")
    return load_lab(labs[name])


def load_lab(path: str | Path) -> Lab:
    """Read a lab.toml; a mistake in it is a ValueError that says where it stands."""
    path = Path(path)
    try:
        lab = Lab.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        mistakes = [
            f"{'.'.join(str(part) for part in details['loc']) or 'the file'}: {details['msg']}"
            for details in error.errors()
        ]
        raise ValueError(f"{path}: " + "; ".join(mistakes)) from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    lab._folder = path.resolve().parent
    for program in {*lab.scripts, *(e.program for task in lab.tasks for e in task.experiments)}:
        find_program(str(lab.folder / program))
    return lab


def skipped(experiment: Experiment, scale: ScaleName) -> str | None:
    """The reason why this scale leaves the experiment out, None when it does not."""
    change = experiment.scales.get(scale)
    return change.skip if change else None


def configs_of(lab: Lab, scale: ScaleName, experiment: Experiment) -> list[Config]:
    """Every configuration of one experiment. Equal ones of two experiments are equal, and run once."""
    change = experiment.scales.get(scale, Change())
    if change.skip:
        return []
    fixed = experiment.arguments | change.arguments
    if experiment.kind != "table":
        fixed = {"steps": lab.scales[scale].script_steps} | fixed
    sweep = experiment.sweep | change.sweep
    worlds = change.worlds or experiment.worlds
    return [
        Config(
            program=str((lab.folder / experiment.program).resolve()),
            arguments=_as_arguments(fixed | dict(zip(sweep, values, strict=True))),
            world=world,
            placement=placement,
        )
        for values in itertools.product(*sweep.values())
        for placement, world in itertools.product(experiment.placement, worlds)
    ]


def plan(
    lab: Lab, scale: ScaleName, task: str | None = None, option: str | None = None, accelerators: int = 0
) -> list[Planned]:
    """What a task (all of them for None) measures on a machine with so many accelerators.

    Two are enough to use the real ones, and what needs more of them than there are is refused: times of
    virtual devices beside real ones would compare nothing.
    """
    planned = []
    for chosen in lab.tasks if task is None else [lab.task(task)]:
        for experiment in chosen.experiments:
            if option is not None and experiment.option not in (None, option):
                continue
            for config in configs_of(lab, scale, experiment):
                needed = _devices_of(experiment, config)
                virtual = accelerators < 2 and experiment.devices > 0
                refusal = None
                if accelerators >= 2 and needed > accelerators and experiment.kind != "table":
                    refusal = f"needs {needed} accelerators, this machine has {accelerators}"
                elif accelerators >= 2 and experiment.link:
                    refusal = "emulates a link between virtual devices; these devices are real"
                planned.append(Planned(experiment, config, experiment.devices if virtual else 0, refusal))
    return planned


def studies_for(
    lab: Lab, scale: ScaleName, task: str | None = None, option: str | None = None, accelerators: int = 0
) -> list[Study]:
    """The studies that measure a task, or the whole lab; a task's runs are the whole lab's runs."""
    chosen = lab.scales[scale]
    groups: dict[str, tuple[Options, int, dict[Config, None]]] = {}
    for planned in plan(lab, scale, task, option, accelerators):
        experiment = planned.experiment
        if planned.refusal or experiment.kind == "table":
            continue
        options = Options(
            steps=chosen.steps,
            warmup=chosen.warmup,
            sampled=chosen.sampled,
            timeout_s=chosen.timeout_s,
            virtual_devices=planned.virtual_devices,
            virtual_link=experiment.link if planned.virtual_devices else None,
        )
        rounds = max(chosen.rounds, experiment.min_rounds)
        # A study gives each rank the same cores. One process that drives all devices gets all cores, so it
        # must not share a study with worlds of several ranks.
        parts = [
            lab.name,
            scale,
            "process" if experiment.kind == "process" else "",
            "virtual" if planned.virtual_devices else "",
            "link" if options.virtual_link else "",
            f"{rounds}-rounds" if rounds != chosen.rounds else "",
        ]
        name = "-".join(part for part in parts if part)
        known = groups.setdefault(name, (options, rounds, {}))
        if known[0] != options:
            raise ValueError(
                f"{lab.name}: the experiments of {name} differ in devices or link;"
                f" {experiment.id} must say the same as the others"
            )
        known[2][planned.config] = None
    return [
        Study(name, list(configs), rounds=rounds, until=None, budget_s=None, options=options)
        for name, (options, rounds, configs) in groups.items()
    ]


def _devices_of(experiment: Experiment, config: Config) -> int:
    """Accelerators that a configuration uses on one machine."""
    if experiment.kind == "ranks":
        return config.world
    wanted = dict(itertools.pairwise(config.arguments)).get("--devices")
    return int(wanted) if wanted else experiment.devices


def _as_arguments(values: dict[str, Value]) -> tuple[str, ...]:
    """Sorted by name, so that two experiments that mean the same configuration share its runs."""
    words: list[str] = []
    for name, value in sorted(values.items()):
        if value is True:
            words.append(f"--{name}")
        elif value is not False:
            words += [f"--{name}", f"{value}"]
    return tuple(words)
