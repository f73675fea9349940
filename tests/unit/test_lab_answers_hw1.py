"""Homework 1's answers follow the numbers: two studies with opposite numbers, opposite answers."""

from __future__ import annotations

import dataclasses
import functools

import pytest
from lab_studies import (
    assert_every_cell_is_filled,
    column,
    find_table,
    hw1_reversed,
    hw1_textbook,
    make_lab,
    say,
)

from paceline.labs.answers.hw1 import build
from paceline.report.document import Paragraph, Section, walk
from paceline.report.pdf import render_pdf

MOST_LETTERS = 15 * 125  # of 15 lines of the PDF


@functools.cache
def textbook(cores: int = 4) -> list[Section]:
    return build(make_lab("hw1", hw1_textbook(), cores=cores))


@functools.cache
def reversed_() -> list[Section]:
    return build(make_lab("hw1", hw1_reversed()))


@pytest.mark.parametrize(
    ("question", "as_expected", "turned_round"),
    [
        ("Why are warm-up", "They would spoil the mean", "they hardly matter"),
        ("Why is randomness", "So that runs differ in what was changed", "Seeds were not enough here"),
        ("Is the speedup linear", "Less than linear: 4 ranks gain", "More than linear"),
        ("Where does the efficiency", "Most from 1 to 2 ranks", "Nowhere"),
        ("Explain it", "communication that no computing hides", "Nothing is lost"),
        (
            "For which model",
            "For the large, batch 512; at the same batch",
            "For the small, batch 64: size alone",
        ),
        ("Why?", "computes more for each byte", "Not because of the ratio"),
        ("When does communication", "They are equal at 22 samples", "They are equal at 6 samples"),
        ("Why is device 0", "Everything passes through it", "Here it is none"),
        ("Why does DDP", "It does: on 4 devices", "Here it does not"),
        ("When is DataParallel", "Where its price does not matter", "it was the faster one here"),
        ("Option A: how does a delay", "Less than linear", "More than linear"),
        ("Option A: how does a delay", "the delay simply adds", "the delay does not simply add"),
        ("Option B: does a larger batch", "**Yes.**", "it makes it worse"),
        ("Option C: what happens to the total", "the maximum counts, not the mean", "nearer to the mean"),
    ],
)
def test_answers_turn_round_with_the_numbers(question: str, as_expected: str, turned_round: str) -> None:
    assert as_expected in say(textbook(), question)
    assert as_expected not in say(reversed_(), question)
    assert turned_round in say(reversed_(), question)
    assert turned_round not in say(textbook(), question)


def test_every_question_of_the_lab_is_answered_within_its_lines() -> None:
    for sections in (textbook(), textbook(2), reversed_()):
        lab = make_lab("hw1", hw1_textbook(), without=["dp"]).lab
        for question in (question for task in lab.tasks for question in task.questions):
            text = say(sections, question.text)
            assert 10 < len(text) < MOST_LETTERS


def test_tables_say_what_the_laws_say() -> None:
    strong = find_table(textbook(), "strong")
    assert column(strong, "ranks") == ["1", "2", "4"]
    assert column(strong, "speedup") == ["1.00", "1.16", "1.64"]
    assert column(strong, "efficiency") == ["100", "58", "41"]
    delay = find_table(textbook(), "delay")
    assert column(delay, "with,") == ["26.1", "23.9", "19.8"]
    assert column(delay, "predicted") == column(delay, "with,")
    assert column(find_table(textbook(), "imbalance"), "added") == ["20.0", "20.0"]
    assert column(find_table(textbook(), "devices"), "DP, MiB") == ["4.77", "0.954", "0.954", "0.954"]


@pytest.mark.parametrize("cores", [2, 4])
def test_every_cell_is_a_number_or_a_mark_with_its_reason(cores: int) -> None:
    assert_every_cell_is_filled(textbook(cores))
    assert_every_cell_is_filled(reversed_())


def test_oversubscribed_worlds_stand_apart_and_decide_nothing() -> None:
    crowded = textbook(2)
    assert "2 ranks gain, but not 2 times" in say(crowded, "Is the speedup linear")
    assert "more ranks than cores" in say(crowded, "Is the speedup linear")
    assert "on 4" not in say(crowded, "Where does the efficiency")
    assert "One comparable world" in say(crowded, "Option A: how does a delay")
    assert "†" in " ".join(find_table(crowded, "strong").notes)


def test_without_a_core_for_a_second_rank_no_scaling_is_claimed() -> None:
    alone = textbook(1)
    for question in (
        "Is the speedup linear",
        "For which model",
        "Option A: how does a delay",
        "Option B: does a larger batch",
    ):
        assert "Cannot be answered: no world of several ranks had a core" in say(alone, question)
    assert "Times cannot tell here" in say(alone, "Why does DDP")
    assert_every_cell_is_filled(alone)


def test_one_launch_leaves_few_verdicts_and_breaks_nothing() -> None:
    sections = build(make_lab("hw1", hw1_textbook(), scale="tiny", rounds=1))
    assert "a second run is missing" in say(sections, "Why is randomness")
    assert_every_cell_is_filled(sections)


def test_wide_intervals_allow_no_verdict() -> None:
    noisy = dataclasses.replace(hw1_textbook(), unsteady=0.8)
    sections = build(make_lab("hw1", noisy))
    assert "That cannot be told" in say(sections, "For which model")
    assert "cannot be told" in say(sections, "Option B: does a larger batch")
    assert "the interval holds both" in say(sections, "Option A: how does a delay")
    assert "more rounds would tell" in say(sections, "Option C: what happens to the total")


def test_what_was_not_measured_is_said_with_its_reason() -> None:
    sections = build(make_lab("hw1", hw1_textbook(), without=["dp", "large-batch", "imbalance"]))
    assert "paceline lab run hw1 --task 4" in say(sections, "Why is device 0")
    assert "Cannot be answered" in say(sections, "When does communication")
    assert "Cannot be answered" in say(sections, "Option C: what happens to the total")
    assert_every_cell_is_filled(sections)


def test_nothing_measured_at_all_breaks_nothing() -> None:
    lab = make_lab("hw1", hw1_textbook(), without=[])
    every = [e.id for task in lab.lab.tasks for e in task.experiments]
    sections = build(make_lab("hw1", hw1_textbook(), without=every))
    assert len(sections) == len(lab.lab.tasks)
    assert not any("**" in b.text for s in sections for b in walk(s.blocks) if isinstance(b, Paragraph))


def test_one_option_is_answered_alone() -> None:
    sections = build(make_lab("hw1", hw1_textbook(), option="B"))
    assert "Yes" in say(sections, "Option B: does a larger batch")
    with pytest.raises(AssertionError, match="0 questions"):
        say(sections, "Option A: how does a delay")


def test_a_knee_is_named_where_the_curve_bends() -> None:
    laws = hw1_textbook()

    def saturating(case: object) -> float:
        found = laws.step_s(case)  # type: ignore[arg-type]
        batch = case.number("batch")  # type: ignore[attr-defined]
        gain = {32.0: 1.0, 64.0: 1.4, 128.0: 1.9, 256.0: 1.92}[batch] if batch < 512 else 1.9
        return found if case.world == 1 else laws.step_s(dataclasses.replace(case, world=1)) / gain  # type: ignore

    sections = build(make_lab("hw1", dataclasses.replace(laws, step_s=saturating)))
    assert "It saturates at **128**" in say(sections, "Option B: does a larger batch")


def test_the_report_keeps_to_its_pages() -> None:
    submission = pytest.importorskip("paceline.labs.submission")
    pytest.importorskip("typst")
    pytest.importorskip("vl_convert")
    for laws, cores in ((hw1_textbook(), 2), (hw1_textbook(), 4), (hw1_reversed(), 4)):
        pdf = render_pdf(submission.build_document(make_lab("hw1", laws, cores=cores), "Ada Lovelace"))
        assert pdf.problem == ""
