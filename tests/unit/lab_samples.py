"""A whole lab measured on a machine that does not exist, whose every number follows from a few constants.

`measure_lab("hw2", World())` is what the textbook expects; other constants turn its answers around.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from synthetic import communication, make_rank, make_run, memory

from paceline.labs.data import TABLE_FACT, LabData
from paceline.labs.plan import Planned, plan
from paceline.labs.spec import ScaleName, find_lab
from paceline.record import RankRecord, RunRecord
from paceline.report.labels import split_arguments

MIB = 1 << 20
STEPS, WARMUP, SAMPLED = 20, 5, 4
MACHINE = {
    "cores": 2,
    "processor": {"model": "Model T", "isa": ["avx512_bf16"]},
    "memory_bytes": 8 << 30,
    "accelerators": {"devices": []},
    "system": "Linux",
    "kernel": "6.1",
}


@dataclass(frozen=True)
class World:
    """What the course's scripts cost here."""

    sample_s: float = 1e-4  # of one sample in fp32
    sixteen_bits: float = 0.5  # time in 16 bits over time in fp32
    sync_s: float = 0.01  # of one synchronisation
    sixteen_bit_activations: float = 0.5
    sixteen_bit_copies: int = 1 * MIB  # of the weights, that autocast keeps
    apart: float = 1e-3  # relative distance of a loss in 16 bits from fp32
    batch_apart: float = 1e-7  # of an accumulated loss from that of one batch
    undivided: float = 4.0  # gradient without the division over gradient with it
    underflow: float = 0.4
    no_sync_works: bool = True
    rounds: int = 3


@functools.cache
def measure_lab(name: str, world: World, scale: ScaleName = "laptop", skip: tuple[str, ...] = ()) -> LabData:
    """The lab's data when every experiment but those of `skip` was measured."""
    lab = find_lab(name)
    planned = plan(lab, scale)
    runs = [
        run
        for one in dict.fromkeys(
            (p.study, p.config, p.experiment.kind) for p in planned if p.experiment.id not in skip
        )
        for run in _make_runs(
            next(p for p in planned if (p.study, p.config, p.experiment.kind) == one), world
        )
    ]
    return LabData(lab, scale, None, planned, runs)


def _make_runs(planned: Planned, world: World) -> list[RunRecord]:
    rounds = 1 if planned.experiment.kind == "table" else world.rounds
    return [
        make_run(
            study=planned.study,
            program=planned.config.program,
            arguments=planned.config.arguments,
            world=planned.config.world,
            placement=planned.config.placement,
            round=round,
            started=1.75e9 + round,
            machine=MACHINE,
            versions={"paceline": "0.1", "torch": "2.13"},
            command=["torchrun", "--nproc-per-node", "2", planned.config.program, *planned.config.arguments],
            ranks=_make_table(world)
            if planned.experiment.kind == "table"
            else _make_ranks(planned, world, round),
        )
        for round in range(1, rounds + 1)
    ]


def _make_table(world: World) -> list[RankRecord]:
    rows = [
        {
            "scale": 2.0**power,
            "underflow_share": world.underflow if power < 8 else 0.0,
            "overflow_share": 0.5 if power > 28 else 0.0,
        }
        for power in range(0, 33, 4)
    ]
    return [RankRecord(0, facts={TABLE_FACT: {"rows": rows}}, end="script ended")]


def _make_ranks(planned: Planned, world: World, round: int) -> list[RankRecord]:
    arguments = split_arguments(planned.config.arguments)
    program = planned.config.program
    is_code2 = program.endswith("practical7_amp.py")
    mixed = not program.endswith("practical7_accumulation.py") and arguments.get("precision") != "fp32"
    micro = 1 if is_code2 else int(arguments.get("accum-steps", 4))
    batch, dim, depth = (int(arguments[name]) for name in ("batch", "dim", "depth"))
    skips_sync = world.no_sync_works and "no-no-sync" not in arguments
    syncs = 1 if skips_sync else micro
    compute_s = micro * batch * world.sample_s * (world.sixteen_bits if mixed else 1.0)
    # Launches differ by a hundredth, steps by a few thousandths.
    step_s = (compute_s + syncs * world.sync_s) * (1 + 0.01 * (round - 2))
    times = [step_s * (1 + 0.002 * math.sin(step)) for step in range(STEPS)]
    weights = depth * dim * dim * 4
    activations = 2 * depth * batch * dim * 4 * (world.sixteen_bit_activations if mixed else 1.0)
    apart = (world.apart if mixed else 0.0) + (world.batch_apart if micro == 1 and not is_code2 else 0.0)
    losses = [0.3 / (1 + 0.1 * step) * (1 + apart * (step > 0)) for step in range(STEPS)]
    series = {
        "micro_steps": [float(micro)] * STEPS,
        "loss": losses,
        "loss_scale": [65536.0 if mixed and "no-scaler" not in arguments else math.nan] * STEPS,
        "skipped": [0.0 if mixed and "no-scaler" not in arguments else math.nan] * STEPS,
    }
    samples = micro * batch
    facts = {
        "communication": communication(
            calls=2 * syncs,
            bytes_=weights * syncs,
            exposed_s=syncs * world.sync_s * 0.8,
            busy_s=syncs * world.sync_s,
            synchronising_micro_steps=syncs,
            micro_steps=micro,
        ),
        "memory": memory(
            parameters=weights,
            gradients=weights,
            activations=int(activations),
            communication=weights,
            other=world.sixteen_bit_copies if mixed else 0,
        ),
        "precision": {"matmul_flops": {"bfloat16" if mixed else "float32": 1e9}},
        "gradients": {
            "norms": [0.5 * (world.undivided if "no-divide" in arguments else 1.0)],
            "nonfinite": 0,
        },
        "batch": {"samples_per_step": samples},
        "timeline": {"steps": [_make_step(step_s, syncs * world.sync_s)]},
    }
    return [
        make_rank(
            rank, times, warmup=WARMUP, sampled=SAMPLED, warmup_time_s=3 * step_s, series=series, facts=facts
        )
        for rank in range(planned.config.world)
    ]


def _make_step(step_s: float, sync_s: float) -> dict[str, object]:
    computed = 50.0 + step_s - sync_s
    slices = [
        ["compute", "aten::addmm", 50.0, computed],
        ["communication", "gloo:all_reduce", computed, 50.0 + step_s],
    ]
    return {"start_s": 50.0, "end_s": 50.0 + step_s, "slices": slices}
