"""Whole labs measured on paper: every launch of a lab's plan, by laws that are known. Nothing is run.

A `Laws` says how long a step takes and what was counted; two of them, one as the textbook has it and one
turned round, must lead to opposite answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from synthetic import communication, devices, make_rank, make_run

from paceline.labs.data import LabData
from paceline.labs.plan import Planned, plan
from paceline.labs.spec import ScaleName, find_lab
from paceline.record import RunRecord
from paceline.report.document import Paragraph, Question, Section, Table, as_cell, walk

NUM_STEPS, NUM_ROUNDS = 20, 3
MACHINE = {"cores": 4, "memory_bytes": 8 * 2**30, "accelerators": {"devices": []}, "system": "Linux"}


@dataclass(frozen=True)
class Case:
    """What a law looks at: one configuration of one experiment."""

    experiment: str
    world: int
    arguments: dict[str, str]

    def number(self, name: str, default: float = 0.0) -> float:
        return float(self.arguments.get(name, default))

    @property
    def layer_bytes(self) -> float:
        return 4 * (self.number("dim") ** 2 + self.number("dim"))

    @property
    def model_bytes(self) -> float:
        return self.number("depth", 20) * self.layer_bytes

    @property
    def flops(self) -> float:
        return 6 * self.model_bytes / 4 * self.number("batch")


@dataclass(frozen=True)
class Laws:
    step_s: Callable[[Case], float]
    comm_s: Callable[[Case], float] = lambda case: 0.0
    losses: Callable[[Case, int], Sequence[float]] = lambda case, round: [1.0] * NUM_STEPS
    devices: Callable[[Case], list[dict[str, Any]]] = lambda case: []  # the fact of each rank
    warmup: float = 3.0  # how many times as long a warm-up step is
    noise: float = 0.01
    unsteady: float = 0.0  # how much launches differ, each world in its own way


def make_lab(
    name: str,
    laws: Laws,
    *,
    scale: ScaleName = "laptop",
    cores: int = 4,
    option: str | None = None,
    without: Sequence[str] = (),
    rounds: int = NUM_ROUNDS,
) -> LabData:
    """The lab as if it had been measured; nothing of the experiments `without` was."""
    lab = find_lab(name)
    planned = plan(lab, scale, option=option)
    runs: dict[str, RunRecord] = {}
    for one in planned:
        if one.experiment.id in without:
            continue
        for round in range(rounds):
            run = _launch(one, laws, round, cores)
            runs.setdefault(f"{run.study} {run.key}", run)
    return LabData(lab, scale, option, planned, runs.values())


def _launch(planned: Planned, laws: Laws, round: int, cores: int) -> RunRecord:
    config = planned.config
    values = {name.removeprefix("--"): value for name, value in pairwise([*config.arguments, ""])}
    case = Case(planned.experiment.id, config.world, values)
    step_s = laws.step_s(case) * (1 + laws.noise * (round - 1))
    step_s *= 1 + laws.unsteady * ((round + config.world.bit_length()) % 3 - 1)
    times = [step_s * (1 + laws.noise * ((step * 7) % 5 - 2) / 2) for step in range(NUM_STEPS)]
    comm_s = laws.comm_s(case)
    facts: dict[str, dict[str, Any]] = {"precision": {"matmul_flops": {"float32": case.flops / config.world}}}
    facts["communication"] = communication(
        bytes_=case.model_bytes, busy_s=comm_s, exposed_s=comm_s * 0.9, bus_bytes=case.model_bytes
    )
    on_devices = laws.devices(case)
    ranks = [
        make_rank(
            rank,
            times,
            warmup_time_s=step_s * laws.warmup,
            series={"loss": [loss + 0.001 * rank for loss in laws.losses(case, round)]},
            facts=facts | ({"devices": on_devices[rank]} if rank < len(on_devices) else {}),
        )
        for rank in range(config.world)
    ]
    return make_run(
        study=planned.study,
        program=config.program,
        arguments=config.arguments,
        world=config.world,
        round=round,
        ranks=ranks,
        oversubscribed=config.world > cores,
        machine=MACHINE,
        started=1.79e9 + round,
        versions={"torch": "2.13"},
        options={"steps": NUM_STEPS, "warmup": 5, "virtual_devices": planned.virtual_devices},
    )


# Homework 1

SPEED_FLOPS, BANDWIDTH = 50e9, 1.5e9


def hw1_textbook() -> Laws:
    """Computing is divided, sending is not; the slowest rank counts; device 0 does it all."""

    def comm_s(case: Case) -> float:
        return 2e-4 + case.model_bytes / BANDWIDTH if case.world > 1 else 0.0

    def step_s(case: Case) -> float:
        if case.experiment == "dp":
            return 0.003 * case.number("devices") + case.flops / SPEED_FLOPS
        computing_s = case.flops / SPEED_FLOPS / case.world
        return computing_s + comm_s(case) + case.number("delay") + case.number("imbalance")

    def losses(case: Case, round: int) -> list[float]:
        chance = 0.05 * round if case.experiment == "unseeded" else 0.0
        return [1 / (step + 1) + chance for step in range(NUM_STEPS)]

    def on_devices(case: Case) -> list[dict[str, Any]]:
        if case.experiment == "dp":
            others = range(1, int(case.number("devices")))
            return [
                devices(
                    peak_bytes=[5_000_000, *(1_000_000 for _ in others)],
                    transfers=[pair for at in others for pair in ((0, at, 3, 500_000), (at, 0, 2, 500_000))],
                    busy={0: [(0.0, 4.0)], **{at: [(1.0, 2.0)] for at in others}},
                )
            ]
        return _one_device_per_rank(case) if case.experiment == "ddp-on-devices" else []

    return Laws(step_s, comm_s, losses, on_devices)


def hw1_reversed() -> Laws:
    """Ranks help more than they should, the small model most; chance is not controlled by seeds; the mean of
    the ranks counts; DataParallel is the faster one and spreads its work."""

    def comm_s(case: Case) -> float:
        large = case.number("dim") > 1024 or case.number("batch") > 64
        return (0.3 if large else 0.001) * step_s(case) if case.world > 1 else 0.0

    def step_s(case: Case) -> float:
        if case.experiment == "dp":
            return 0.001
        large = case.number("dim") > 1024
        batch = case.number("batch")
        gain = float(case.world ** (0.9 if large else 1.2 - 0.001 * batch))
        return 0.01 * batch / 64 / gain + (
            case.number("delay") / case.world + case.number("imbalance") / case.world
        )

    def losses(case: Case, round: int) -> list[float]:
        chance = 1e-6 * round if case.experiment == "seeded" else 0.0
        return [1 / (step + 1) + (chance if step else 0.0) for step in range(NUM_STEPS)]

    def on_devices(case: Case) -> list[dict[str, Any]]:
        if case.experiment == "dp":
            num = int(case.number("devices"))
            ring = [(at, (at + 1) % num, 1, 1000) for at in range(num)]
            return [devices(peak_bytes=[1_000_000] * num, transfers=[*ring, (1, 0, 0, 0)])]
        return _one_device_per_rank(case) if case.experiment == "ddp-on-devices" else []

    return Laws(step_s, comm_s, losses, on_devices, warmup=1.0)


def _one_device_per_rank(case: Case) -> list[dict[str, Any]]:
    return [
        devices(peak_bytes=[2_500_000 if at == rank else 0 for at in range(4)], busy={rank: [(0.0, 3.0)]})
        for rank in range(case.world)
    ]


# Homework 3


def hw3_textbook() -> Laws:
    """One device at a time, a copy for each cut, and each copy costs."""

    def num_devices(case: Case) -> int:
        return int(case.number("devices", 2))

    def step_s(case: Case) -> float:
        delay_s = 0.0025 if case.experiment == "transfers-over-link" else 0.0005
        return 0.001 + 0.0005 * case.number("depth", 20) + delay_s * (num_devices(case) - 1)

    def on_devices(case: Case) -> list[dict[str, Any]]:
        num = num_devices(case)
        x_bytes = int(4 * case.number("batch") * case.number("dim"))
        forward = [(at, at + 1, 1, x_bytes) for at in range(num - 1)]
        back = [(at + 1, at, 1, x_bytes) for at in range(num - 1)]
        held = int(2 * case.model_bytes / num)
        return [
            devices(
                peak_bytes=[held if at < num else 0 for at in range(8)],
                transfers=[*forward, *back],
                forward_transfers=forward,
                moves=[
                    (at, at + 1, int(case.number("depth", 20)) // num, "model.py:39") for at in range(num - 1)
                ],
                busy={at: [(at, at + 0.9), (2 * num - at - 1, 2 * num - at)] for at in range(num)},
            )
        ]

    return Laws(step_s, devices=on_devices)


def hw3_reversed() -> Laws:
    """All devices at once, and more of everything is faster."""

    def num_devices(case: Case) -> int:
        return int(case.number("devices", 2))

    def step_s(case: Case) -> float:
        return 0.1 / num_devices(case) / case.number("depth", 20)

    def on_devices(case: Case) -> list[dict[str, Any]]:
        num = num_devices(case)
        pairs = [(at, (at + 2) % num, 3, 96) for at in range(num)] if num > 2 else [(0, 1, 2, 64)]
        return [
            devices(
                peak_bytes=[1000 * num] * 8,
                transfers=pairs,
                busy={at: [(0.1 * at, 5.0)] for at in range(num)},
            )
        ]

    return Laws(step_s, devices=on_devices)


# What a reader finds


def say(sections: Sequence[Section], question: str) -> str:
    """The answer to the question that begins so."""
    blocks = [block for section in sections for block in walk(section.blocks)]
    found = [b for b in blocks if isinstance(b, Question) and b.text.startswith(question)]
    assert len(found) == 1, f"{len(found)} questions begin with {question!r}"
    return " ".join(block.text for block in walk(found[0].answer) if isinstance(block, Paragraph))


def find_table(sections: Sequence[Section], name: str) -> Table:
    (table,) = (
        block
        for section in sections
        for block in walk(section.blocks)
        if isinstance(block, Table) and block.name == name
    )
    return table


def column(table: Table, heading: str) -> list[str]:
    """The texts below the heading that begins so."""
    (place,) = (n for n, one in enumerate(table.columns) if one.heading.startswith(heading))
    return [as_cell(row[place]).text for row in table.rows]


def assert_every_cell_is_filled(sections: Sequence[Section]) -> None:
    """A number, or a mark that a note below the table explains."""
    tables = [b for section in sections for b in walk(section.blocks) if isinstance(b, Table)]
    assert tables
    for table in tables:
        for cell in (as_cell(cell) for row in table.rows for cell in row):
            assert cell.text, f"{table.name} has an empty cell"
            if cell.text == "–":
                assert cell.mark, f"{table.name}: a missing number without a mark"
            if cell.mark:
                assert any(note.startswith(cell.mark) for note in table.notes), f"{table.name}: {cell.mark}"
