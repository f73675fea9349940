"""A study and a document whose every number is known, for the tests of reports: nothing is run."""

from __future__ import annotations

from synthetic import communication, make_rank, make_run, memory

from paceline.record import Metric, RankRecord, RunRecord
from paceline.report.bar_charts import MEMORY_FILLS, memory_stack
from paceline.report.chart_parts import Point
from paceline.report.charts import speedup
from paceline.report.document import (
    Bullets,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Formula,
    Paragraph,
    Question,
    Section,
    SideBySide,
    Table,
)

MIB = 2**20
NASTY = 'a <b>bold</b> & "quoted" #set page(width: 1cm) $x$ \\ [[1, 2]] @everyone'
MACHINE = {
    "cores": 2,
    "processor": {"model": "Model T"},
    "memory_bytes": 8 * 2**30,
    "accelerators": {"devices": []},
    "system": "Linux",
    "kernel": "6.1",
}


def profiled_rank(rank: int, step_time_s: float, *, communicates: bool) -> RankRecord:
    """Compute for the first half of a step, from 60 % to 90 % a collective."""
    begin, end = 50.0, 50.0 + step_time_s
    slices = [["compute", "aten::addmm", begin, begin + 0.5 * step_time_s]]
    if communicates:
        slices.append(
            ["communication", "gloo:all_reduce", begin + 0.6 * step_time_s, begin + 0.9 * step_time_s]
        )
    facts = {
        "timeline": {"steps": [{"start_s": begin, "end_s": end, "slices": slices}]},
        "memory": memory(parameters=64 * MIB, gradients=64 * MIB, activations=16 * MIB),
    }
    if communicates:
        facts["communication"] = communication(calls=2, bytes_=64 * MIB, exposed_s=0.003, busy_s=0.006)
    times = [step_time_s * (1 + 0.01 * (step % 3)) for step in range(30)]
    return make_rank(rank, times, warmup_time_s=2 * step_time_s, facts=facts)


def make_study(step_times_s: dict[int, float]) -> list[RunRecord]:
    """World → step time, three rounds of each; more than 2 ranks are oversubscribed, 8 run out of memory."""
    runs = [
        make_run(
            world=world,
            ranks=[profiled_rank(rank, time_s, communicates=world > 1) for rank in range(world)],
            round=round,
            oversubscribed=world > 2,
            started=1.75e9 + round,
            machine=MACHINE,
            versions={"python": "3.11", "torch": "2.13"},
            command=["torchrun", f"--nproc-per-node={world}", "train.py"],
        )
        for round in range(3)
        for world, time_s in step_times_s.items()
    ]
    return [*runs, make_run(world=8, status="oom", cause=NASTY, ranks=[], machine=MACHINE, started=1.75e9)]


def seconds(median: float) -> Metric:
    return Metric(median, median * 0.95, median * 1.05, 90, "s")


def ratio(median: float) -> Metric:
    return Metric(median, median * 0.95, median * 1.05, 3, "ratio")


SPEEDUP = speedup([Point(1, ratio(1.0)), Point(2, ratio(1.7)), Point(4, ratio(1.6), apart=True)])


def make_document(num_paragraphs: int = 1, page_limit: int | None = None) -> Document:
    """Every kind of block, and texts that would break a careless renderer."""
    table = Table(
        "times",
        f"Times of {NASTY}",
        [Column("code"), Column("time, ms", numeric=True)],
        [
            ["first", Cell("32.1", small="31.0–33.2", metric=seconds(0.0321))],
            [NASTY, Cell("28.1", small="27.0–29.2", mark="†", metric=seconds(0.0281))],
            ["third", "oom"],
        ],
        ["† measured with `--steps 5`."],
    )
    blocks = [
        Paragraph(f"{NASTY}, `code <i>`, **strong**, see @figure:speedup and @table:times."),
        Bullets([NASTY, "second"]),
        Code("torchrun --nproc-per-node=2 'train me.py' <&1"),
        Formula("S(n) = t_1 / t_n", "S of n is t one over t n"),
        table,
        Figure("speedup", "Speedup.", NASTY, SPEEDUP),
        SideBySide(
            Figure(
                "memory",
                "Memory.",
                "Stacked bars.",
                memory_stack([("4 ranks · accum-steps 16", dict.fromkeys(MEMORY_FILLS, MIB))]),
            ),
            Table("small", "Small.", [Column("n", numeric=True)], [["1"]]),
        ),
    ]
    question = Question("Why <so>?", [Paragraph("Because. " * 60)] * num_paragraphs)
    return Document(
        title=NASTY,
        subtitle="Sub",
        author="Ada & Co",
        about=[("Machine", NASTY)],
        caveats=[NASTY],
        sections=[Section("One", blocks), Section("Two", [question])],
        page_limit=page_limit,
    )
