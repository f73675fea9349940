"""Practical 7 and Homework 2 from stored studies: tables, pages, and answers as the numbers say."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from lab_samples import World, measure_lab
from synthetic import make_run

from paceline.labs.answers.every_lab import build_every_experiment
from paceline.labs.data import LabData
from paceline.labs.spec import find_lab
from paceline.labs.submission import build_document, write_submission
from paceline.report.document import Block, Document, Formula, Paragraph, Question, as_cell, tables_of, walk
from paceline.report.pdf import num_pages

TEXTBOOK = World()
# 16 bits are slow, in time and memory; synchronising is free; nothing is as the course says.
REVERSED = World(
    sixteen_bits=2.0,
    sync_s=0.0,
    sixteen_bit_activations=1.0,
    sixteen_bit_copies=40 << 20,
    apart=0.2,
    batch_apart=0.03,
    undivided=1.0,
    underflow=0.0,
    no_sync_works=False,
)
LABS = ("practical7", "hw2")


def answers(data: LabData) -> dict[str, str]:
    """The beginning of each question, and all text below it."""
    found = {}
    for section in build_document(data).sections:
        for block in walk(section.blocks):
            if isinstance(block, Question):
                found[block.text] = " ".join(_text(inner) for inner in block.answer)
    return found


def _text(block: Block) -> str:
    return block.text if isinstance(block, Paragraph | Formula) else ""


def ask(data: LabData, beginning: str) -> str:
    (answer,) = [text for question, text in answers(data).items() if question.startswith(beginning)]
    return answer


def cells(document: Document, table: str) -> list[list[str]]:
    (found,) = [one for one in tables_of(document) if one.name == table]
    return [[as_cell(cell).text for cell in row] for row in found.rows]


@pytest.mark.parametrize("name", LABS)
@pytest.mark.parametrize("world", [TEXTBOOK, REVERSED], ids=["textbook", "reversed"])
def test_every_question_is_answered_and_every_cell_filled(name: str, world: World) -> None:
    data = measure_lab(name, world)
    document = build_document(data)
    wanted = [question.text for task in data.lab.tasks for question in task.questions]
    assert list(answers(data)) == wanted
    assert all(answers(data).values())
    for table in tables_of(document):
        for row in table.rows:
            for cell in row[1:]:
                assert as_cell(cell).text not in ("", "–"), table.name


@pytest.mark.parametrize("name", LABS)
def test_the_submission_is_complete_and_keeps_its_pages(name: str, tmp_path: Path) -> None:
    data = measure_lab(name, TEXTBOOK)
    written = write_submission(data, tmp_path, author="Ada", asked=["paceline lab run " + name])
    assert written.problems == []
    assert num_pages((tmp_path / "report.pdf").read_bytes()) <= data.lab.page_limit
    for script in data.lab.scripts:
        assert (tmp_path / Path(script).name).is_file()
    commands = (tmp_path / "commands.txt").read_text()
    assert (
        "\ntorchrun --standalone --nproc_per_node=2 practical7_accumulation.py --accum-steps 4 " in commands
    )
    assert "paceline.worker" not in commands, "what only the launcher can start is nothing to repeat"
    assert "/labs/" not in commands
    page = (tmp_path / "report.html").read_text()
    assert "Ada" in page
    assert "dim 1024 (handout 8192)" in page
    assert (tmp_path / "machine.json").is_file()
    assert sorted(path.suffix for path in (tmp_path / "plots").iterdir()).count(".svg") >= 3


def test_times_of_the_table_are_those_that_were_measured(tmp_path: Path) -> None:
    data = measure_lab("hw2", TEXTBOOK)
    document = build_document(data)
    table = cells(document, "codes")
    # 4 micro-steps of 32 samples at 0.1 ms, half of it in 16 bits, and 10 ms of synchronisation.
    assert [row[0] for row in table] == ["Code 1", "Code 2", "Code 3"]
    assert [float(row[1]) for row in table] == pytest.approx([0.0228, 0.0116, 0.0164], rel=0.01)
    (codes,) = [one for one in tables_of(document) if one.name == "codes"]
    assert [column.heading for column in codes.columns] == ["Code", "Time (s)", "Memory (GB)", "Stability"]
    # Two ranks: 256 samples per step, of Code 2 64.
    assert "Code 1 89.1 µs (87.7–90.5), Code 2 181 µs" in codes.notes[0]
    assert all("stable" in row[-1] and "unstable" not in row[-1] for row in table)
    sweep = cells(document, "accum-steps")
    assert [row[1] for row in sweep] == ["4", "8", "16", "32"] * 2
    write_submission(data, tmp_path, author="", asked=[])
    with (tmp_path / "tables" / "accum-steps.csv").open() as file:
        assert len(list(csv.reader(file))) == 9


def test_practical7_follows_the_textbook_where_the_numbers_do() -> None:
    data = measure_lab("practical7", TEXTBOOK)
    assert "No: on 1 of 4" in ask(data, "Are the gradients")
    assert "Once every 4" in ask(data, "How often")
    assert "4 times" in ask(data, "Why is the loss divided")
    assert "must be divided" in ask(data, "Why is the loss divided")
    assert "It saves time" in ask(data, "Why is the synchronisation")
    assert "Both train alike" in ask(data, "What happens without no_sync")
    assert "**Yes.**" in ask(data, "Is mixed precision faster")
    assert "It depends on the batch" in ask(data, "What does it do to the memory")
    assert "40 % of the gradients" in ask(data, "Why is GradScaler")
    assert "protects from nothing" in ask(data, "What happens without it")
    assert "**Accumulation.**" in ask(data, "Which of the two reduces memory")
    assert "**Mixed precision.**" in ask(data, "Which of the two improves speed")
    assert "together they save memory and time" in ask(data, "Can both")


def test_practical7_says_the_opposite_when_the_numbers_do() -> None:
    data = measure_lab("practical7", REVERSED)
    assert "Yes, on all 4" in ask(data, "Are the gradients")
    assert "that is not what was measured" in ask(data, "Why is the loss divided")
    assert "It saves time" not in ask(data, "Why is the synchronisation")
    assert "No, it is slower" in ask(data, "Is mixed precision faster")
    assert "likely converting to 16 bits and back costs more" in ask(data, "Is mixed precision faster")
    assert "It raises the peak" in ask(data, "What does it do to the memory")
    assert "no scaler would be needed" in ask(data, "Why is GradScaler")
    assert "unstable" in ask(data, "What happens without it")
    assert "Neither gains; accumulation costs less" in ask(data, "Which of the two improves speed") or (
        "**Accumulation.**" in ask(data, "Which of the two improves speed")
    )
    assert "slower here" in ask(data, "Can both")


def test_hw2_divides_the_gain_as_it_was_made() -> None:
    """Eight micro-steps of 3.2 ms: synchronising always costs 80 ms, once 10; 16 bits halve 25.6 ms."""
    time = ask(measure_lab("hw2", TEXTBOOK), "How do gradient synchronisation")
    assert "16 collectives" in time
    assert "become 2" in time
    assert "**2.97 × as fast**" in time  # 105.6 / 35.6
    assert "**4.63 × as fast**" in time  # 105.6 / 22.8
    assert "81 % of the gain is synchronisation and 19 % is precision" in time
    without_sync_cost = ask(
        measure_lab("hw2", replace(TEXTBOOK, sync_s=0.0)), "How do gradient synchronisation"
    )
    assert "0 % of the gain is synchronisation and 100 % is precision" in without_sync_cost


def test_hw2_says_the_opposite_when_the_numbers_do() -> None:
    data = measure_lab("hw2", REVERSED)
    assert "both together are slower" in ask(data, "How do gradient synchronisation")
    assert "likely converting to 16 bits and back costs more" in ask(data, "How do gradient synchronisation")
    assert "the weights dominate" in ask(data, "How do accumulation and mixed")
    assert "do not train alike" in ask(data, "What is the effective batch")
    table = cells(build_document(data), "codes")
    assert [("unstable" in row[-1]) for row in table] == [False, True, True]


def test_hw2_shows_equality_with_one_large_batch() -> None:
    said = ask(measure_lab("hw2", TEXTBOOK), "What is the effective batch")
    assert "32 × 16 × 2 = 1024" in said
    assert "equal to rounding" in said
    assert "1e-7" in said


def test_smaller_memory_in_16_bits_is_said_as_well() -> None:
    data = measure_lab("hw2", replace(TEXTBOOK, sixteen_bit_copies=0))
    assert "shrink by more than" in ask(data, "How do accumulation and mixed")


@pytest.mark.parametrize("name", LABS)
def test_what_was_not_measured_is_not_answered(name: str) -> None:
    once = replace(TEXTBOOK, rounds=1)
    for task in find_lab(name).tasks:
        for experiment in task.experiments:
            data = measure_lab(name, once, skip=(experiment.id,))
            document = build_document(data)
            text = " ".join(
                [*answers(data).values(), *(note for table in tables_of(document) for note in table.notes)]
            )
            same = {e.id for t in data.lab.tasks for e in t.experiments if _same(data, e.id, experiment.id)}
            if same == {experiment.id}:
                assert f"`paceline lab run {name} --task {task.id}`" in text, experiment.id


def _same(data: LabData, one: str, other: str) -> bool:
    """Whether two experiments share runs, so that leaving one out loses nothing."""
    mine = {row.config for row in data.rows(one)}
    return bool(mine & {row.config for row in data.rows(other)})


def test_a_failed_configuration_is_marked_with_its_cause() -> None:
    data = measure_lab("hw2", TEXTBOOK, skip=("code2",))
    config = next(planned.config for planned in data.plan if planned.experiment.id == "code2")
    failed = make_run(
        study="hw2-laptop",
        program=config.program,
        arguments=config.arguments,
        world=2,
        status="oom",
        cause="rank 1 was killed for memory",
        ranks=[],
        round=1,
        options=data.runs[0].options,
        versions=data.runs[0].versions,
        machine=data.runs[0].machine,
        started=1.75e9,
    )
    data = LabData(data.lab, "laptop", None, data.plan, [*data.runs, failed])
    (table,) = [one for one in tables_of(build_document(data)) if one.name == "codes"]
    assert as_cell(table.rows[1][1]).mark == "a"
    assert "a oom: rank 1 was killed for memory." in table.notes
    assert data.failures() == ["Code 2: oom: rank 1 was killed for memory"]


def test_a_task_that_was_not_measured_has_no_section() -> None:
    lab = find_lab("hw2")
    skip = tuple(experiment.id for task in lab.tasks if task.id != "1" for experiment in task.experiments)
    document = build_document(measure_lab("hw2", TEXTBOOK, skip=skip))
    titles = [section.title for section in document.sections]
    assert titles[-1] == "Tasks that are missing"
    assert not any(title.startswith("Task 3") for title in titles)


def test_a_lab_without_answers_has_a_table_for_each_experiment() -> None:
    """every_lab: what an instructor's own lab gets."""
    data = measure_lab("practical7", TEXTBOOK)
    sections = build_every_experiment(data)
    assert len(sections) == len(data.lab.tasks)
    names = [table.name for table in tables_of(Document("x", sections))]
    assert "underflow" in names
    assert "amp-twin" in names
