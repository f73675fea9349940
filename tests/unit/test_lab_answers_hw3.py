"""Homework 3's answers follow the numbers: two studies with opposite numbers, opposite answers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from lab_studies import (
    assert_every_cell_is_filled,
    column,
    find_table,
    hw3_reversed,
    hw3_textbook,
    make_lab,
    say,
)

from paceline.labs.answers.hw3 import build
from paceline.labs.answers.hw3.script import find_function, find_line, split_in_two, split_layers
from paceline.labs.spec import find_lab
from paceline.report.document import Code, Figure, Section, walk
from paceline.report.pdf import render_pdf


@functools.cache
def textbook() -> list[Section]:
    return build(make_lab("hw3", hw3_textbook()))


@functools.cache
def reversed_() -> list[Section]:
    return build(make_lab("hw3", hw3_reversed()))


@pytest.mark.parametrize(
    ("question", "as_expected", "turned_round"),
    [
        ("At which exact point", "**Once, before layer 3**", "2 copies were counted, where"),
        ("Do more layers", "No: more layers are more work", "By these numbers, yes"),
        ("Are all devices", "but one at a time", "Yes, and at once"),
        ("Is it faster", "No, it is slower", "Here it is faster"),
        ("How many transfers", ": one for each cut of the model", "which is not one for each cut"),
        ("How do the number", "in a straight line", "the time of a step falls"),
    ],
)
def test_answers_turn_round_with_the_numbers(question: str, as_expected: str, turned_round: str) -> None:
    assert as_expected in say(textbook(), question)
    assert as_expected not in say(reversed_(), question)
    assert turned_round in say(reversed_(), question)
    assert turned_round not in say(textbook(), question)


def test_layers_and_transfers_are_counted() -> None:
    layers = say(textbook(), "How many layers")
    assert "**3 on device 0** (layers 0–2) and **3 on device 1** (layers 3–5)" in layers
    moved = say(textbook(), "At which exact point")
    assert "it ran in `model.py:39` after 3 matrix products, one for each layer" in moved
    assert "**1 with 2 devices** and **4 with 5 devices**" in say(textbook(), "How many transfers")
    assert column(find_table(textbook(), "transfers"), "copies, forward") == [str(n) for n in range(8)]


def test_the_fitted_lines_are_those_of_the_laws() -> None:
    relation = say(textbook(), "How do the number")
    assert "500 µs" in relation
    assert "**2.50 ms" in relation
    assert "500 µs" in say(textbook(), "Do more layers")


def test_memory_is_gained_or_not_as_counted() -> None:
    assert "What it gains is memory" in say(textbook(), "Is it faster")
    assert "It gains no memory either" in say(reversed_(), "Is it faster")


def test_the_code_is_the_script_s_own() -> None:
    script = (find_lab("hw3").folder / "model_parallel_dynamic.py").read_text(encoding="utf-8")
    (code,) = (block.text for s in textbook() for block in walk(s.blocks) if isinstance(block, Code))
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    assert len(lines) > 10
    assert all(line in script for line in lines)


def test_a_timeline_shows_who_works_when() -> None:
    names = [block.name for s in textbook() for block in walk(s.blocks) if isinstance(block, Figure)]
    assert {"turns", "copies", "depth-line", "transfers-line"} <= set(names)
    drawn = next(b for s in textbook() for b in walk(s.blocks) if isinstance(b, Figure) and b.name == "turns")
    assert drawn.drawing.draw(600).count("device") == 5


def test_every_cell_is_a_number_or_a_mark_with_its_reason() -> None:
    assert_every_cell_is_filled(textbook())
    assert_every_cell_is_filled(reversed_())
    assert "not measured over the link" in " ".join(find_table(textbook(), "transfers").notes)


def test_what_was_not_measured_is_said_with_its_reason() -> None:
    every = [e.id for task in find_lab("hw3").tasks for e in task.experiments]
    sections = build(make_lab("hw3", hw3_textbook(), without=every))
    for question in ("How many layers", "Do more layers", "Are all devices", "How many transfers"):
        assert "Cannot be answered: not measured" in say(sections, question)
    assert "divmod" in say(sections, "What is the logic"), "the rule needs no measurement"


def test_a_scale_without_the_link_says_so() -> None:
    sections = build(make_lab("hw3", hw3_textbook(), scale="tiny"))
    assert "the emulated link is left out at this scale" in say(sections, "How do the number")
    assert_every_cell_is_filled(sections)


def test_a_script_s_own_rule_is_applied(tmp_path: Path) -> None:
    folder = find_lab("hw3").folder
    assert split_in_two(folder / "model_parallel.py", 7) == [0, 0, 0, 1, 1, 1, 1]
    assert split_layers(folder / "model_parallel_dynamic.py", 7, 3) == [0, 0, 0, 1, 1, 2, 2]
    other = tmp_path / "other.py"
    other.write_text(
        "class LargeLinearModelMP:\n    def __init__(self, depth):\n        for i in range(depth):\n"
        "            if i < 1:\n                pass\n"
        "    def forward(self, x):\n        x = x.to(d)  # moves\n"
    )
    assert split_in_two(other, 3) == [0, 1, 1]
    assert find_line(other, "x = x.to(") == (7, "x = x.to(d)")
    assert find_function(other, "__init__")[1] == 2
    with pytest.raises(ValueError, match="no function split_layers"):
        split_layers(other, 3, 2)


def test_the_report_keeps_to_its_pages() -> None:
    submission = pytest.importorskip("paceline.labs.submission")
    pytest.importorskip("typst")
    pytest.importorskip("vl_convert")
    for laws in (hw3_textbook(), hw3_reversed()):
        pdf = render_pdf(submission.build_document(make_lab("hw3", laws), "Ada Lovelace"))
        assert pdf.problem == ""
