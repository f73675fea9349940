"""What a lab's report says when the machine was busy, when launches disagree, and when little was counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lab_samples import MACHINE, World, measure_lab
from lab_studies import hw1_textbook, hw3_textbook, make_lab, say

from paceline.labs.answers.tables import UNKNOWN, UNKNOWN_NOTE, Shown, build_table
from paceline.labs.answers.words import is_hopeless
from paceline.labs.answers.words import say as say_metric
from paceline.labs.data import LabData
from paceline.labs.submission import build_document, describe_all_commands, find_disturbance
from paceline.record import Metric, RankRecord
from paceline.report.document import as_cell, tables_of

UNSURE = Metric(0.0222, 4.9e-7, 836.0, 40, "s")
SURE = Metric(0.0222, 0.02, 0.025, 40, "s")


def change_runs(data: LabData, **changes: object) -> LabData:
    """The same measurements with other facts or another machine."""
    ranks = changes.pop("ranks", None)
    runs = [
        replace(run, **changes, **({"ranks": [ranks(rank) for rank in run.ranks]} if callable(ranks) else {}))
        for run in data.runs
    ]
    return LabData(data.lab, data.scale, data.option, data.plan, runs)


def test_an_interval_that_says_nothing_is_not_printed_as_a_result() -> None:
    assert is_hopeless(UNSURE)
    assert not is_hopeless(SURE)
    assert say_metric(UNSURE) == "22.2 ms (not even known to a factor of 10)"
    row = make_lab("hw1", hw1_textbook()).rows("strong")[0]
    table = build_table("t", "t", ["x"], [(["a"], row)], [Shown("step", lambda _: UNSURE)])
    cell = as_cell(table.rows[0][1])
    assert (cell.small, cell.metric) == (UNKNOWN, UNSURE)  # the CSV has the interval all the same
    assert table.notes == [UNKNOWN_NOTE]


def test_other_programs_on_the_cores_stand_on_the_first_page() -> None:
    def occupy(rank: RankRecord) -> RankRecord:
        steps = len(rank.series["step_time_s"])
        return replace(
            rank, series=rank.series | {"foreign_cores": [0.9] * steps, "steal_cores": [0.0] * steps}
        )

    quiet = make_lab("hw1", hw1_textbook())
    assert find_disturbance(quiet) == []
    (caveat,) = find_disturbance(change_runs(quiet, ranks=occupy))
    assert "Other programs used the ranks' cores" in caveat
    assert "--fresh" in caveat
    assert caveat in build_document(change_runs(quiet, ranks=occupy)).caveats


def ask(data: LabData, question: str) -> str:
    return say(build_document(data).sections, question)


def test_an_accelerator_is_not_said_to_help_where_it_does_not() -> None:
    devices = {"kind": "cuda", "devices": [{"name": "GPU", "memory_bytes": 1 << 34}] * 2}
    machine = MACHINE | {"accelerators": devices}

    def on_it(rank: RankRecord) -> RankRecord:
        return replace(rank, start=rank.start | {"device": "cuda"})

    faster = change_runs(measure_lab("practical7", World()), machine=machine, ranks=on_it)
    slower = change_runs(measure_lab("practical7", World(sixteen_bits=2.0)), machine=machine, ranks=on_it)
    assert "on the accelerator's matrix units" in ask(faster, "Is mixed precision faster")
    assert "does not make the step faster" in ask(slower, "Is mixed precision faster")


def test_both_together_are_compared_with_each_alone() -> None:
    said = ask(measure_lab("practical7", World()), "Can both")
    assert "less than either alone" in said
    assert "beside mixed precision alone it is" in said
    alike = ask(
        measure_lab("practical7", World(sixteen_bit_activations=1.0, sixteen_bit_copies=0)), "Can both"
    )
    assert "as much as the better of the two alone" in alike


@pytest.mark.parametrize("name", ["practical7", "hw2"])
def test_nothing_is_concluded_from_what_was_not_counted(name: str) -> None:
    def forget(rank: RankRecord) -> RankRecord:
        return rank if "table" in rank.facts else replace(rank, facts={})

    data = change_runs(measure_lab(name, World()), ranks=forget)
    if name == "practical7":
        assert "Cannot be answered" in ask(data, "Are the gradients")
        assert "Cannot be answered" in ask(data, "What does it do to the memory")
        assert "was not counted" in ask(data, "Is mixed precision faster")
        assert "save" not in ask(data, "Can both")
        assert "**Accumulation.**" not in ask(data, "Which of the two reduces memory")
    else:
        assert "not counted" in ask(data, "How do gradient synchronisation")
        memory = ask(data, "How do accumulation and mixed")
        assert "no peak of memory" in memory
        assert "shrink" not in memory


def test_hw3_speaks_of_turns_only_where_they_were_seen() -> None:
    seen = make_lab("hw3", hw3_textbook())
    unseen = change_runs(seen, ranks=lambda rank: replace(rank, facts={}))
    assert "one device after the other" in ask(seen, "Is it faster")
    assert "one device after the other" not in ask(unseen, "Is it faster")


def test_hw3_says_over_which_link_the_step_grows() -> None:
    assert "Over the emulated link copies and step grow" in ask(
        make_lab("hw3", hw3_textbook()), "How do the number of devices"
    )
    here = ask(make_lab("hw3", hw3_textbook(), scale="tiny"), "How do the number of devices")
    assert here.startswith("**Here copies and step grow")


def test_devices_that_were_virtual_are_so_by_hand() -> None:
    commands = describe_all_commands(make_lab("hw3", hw3_textbook()), ["paceline lab run hw3"])
    assert "paceline lab run hw3\n" in commands
    assert "paceline run --nproc 1 --virtual 8 model_parallel.py --batch 64 --depth 6" in commands


def test_hw3_lists_the_memory_of_each_device() -> None:
    document = build_document(make_lab("hw3", hw3_textbook()))
    (table,) = [table for table in tables_of(document) if table.name == "devices"]
    assert [len(as_cell(row[-1]).text.split(", ")) for row in table.rows] == [2, 5]
