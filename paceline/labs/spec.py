"""A lab, as its lab.toml declares it: tasks, questions, and the experiments that answer them.

In: labs/<name>/lab.toml. Out: a `Lab`. An experiment's own keys are the course's constants (the scale
`handout`); what another scale changes stands in its table `scales`. The format is described in docs/labs.md.
Exercise: `pytest tests/unit/test_lab_spec.py`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from paceline.nearest import find_program, nearest_of

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
    uses: int | None = None  # of these, where fewer do and no --devices says so
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
