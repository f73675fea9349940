"""The document model: numbering, references, names, and tables as files."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path

import pytest
from report_samples import NASTY, SPEEDUP, make_document

from paceline.report.document import (
    Cell,
    Column,
    Figure,
    Paragraph,
    Section,
    Table,
    as_code,
    as_text,
    marked_notes,
    number,
    split_text,
    tables_of,
    unescaped,
)
from paceline.report.table_files import to_csv, to_markdown


def test_figures_and_tables_are_numbered_in_reading_order() -> None:
    assert number(make_document()) == {
        "figure:speedup": "Figure 1",
        "figure:memory": "Figure 2",
        "table:times": "Table 1",
        "table:small": "Table 2",
    }


def test_text_is_cut_into_runs_and_references_are_resolved() -> None:
    runs = split_text("see @figure:a in `x*y` **now**, a@b.c", {"figure:a": "Figure 7"})
    assert [(run.kind, run.text) for run in runs] == [
        ("text", "see "),
        ("reference", "Figure 7"),
        ("text", " in "),
        ("code", "x*y"),
        ("text", " "),
        ("strong", "now"),
        ("text", ", a@b.c"),
    ]


def test_text_that_only_looks_like_markup_stays_as_it_is() -> None:
    assert "".join(run.text for run in split_text(NASTY, {})) == NASTY
    assert [run.kind for run in split_text("2 ** 3, a ` b", {})] == ["text"]


@pytest.mark.parametrize(
    "found", [NASTY, "**a** `b` @figure:x @table:y", "C:\\dir\\*.py \\`x", "*", "`", "@figure:a**"]
)
def test_what_a_script_said_is_no_markup(found: str) -> None:
    runs = split_text(f"**{as_text(found)}**: {as_text(found)}", {})
    assert (runs[0].kind, runs[0].text) == ("strong", found)
    assert "".join(run.text for run in runs[1:]) == f": {found}"
    assert {run.kind for run in runs[1:]} == {"text"}
    assert unescaped(as_text(found)) == found
    ((kind, text),) = {(run.kind, run.text) for run in split_text(as_code(found), {})}
    assert (kind, text) == ("code", " ".join(found.replace("`", "'").split()))


def test_note_begins_with_the_mark_of_a_cell() -> None:
    table = Table("t", "", [Column("n")], [[Cell("1", mark="a")]], ["a not measured.", "b is a letter."])
    assert marked_notes(table) == [("a", "not measured."), ("", "b is a letter.")]


def test_reference_to_nothing_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"@figure:spedup refers to nothing.*did you mean 'figure:speedup'"):
        split_text("@figure:spedup", {"figure:speedup": "Figure 1"})


def test_name_used_twice_is_refused() -> None:
    document = make_document()
    twice = Section("Again", [Figure("speedup", "Again.", "Again.", SPEEDUP), Paragraph("")])
    with pytest.raises(ValueError, match="two figures are named 'speedup'"):
        number(dataclasses.replace(document, sections=[*document.sections, twice]))


@pytest.mark.parametrize("name", ["Step Time", "../up", ""])
def test_name_that_is_no_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a file"):
        Figure(name, "", "", SPEEDUP)


def test_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells, there are 2 columns"):
        Table("t", "", [Column("a"), Column("b")], [["1"]])


def test_csv_holds_the_numbers_behind_the_texts() -> None:
    table = tables_of(make_document())[0]
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert list(rows[0]) == ["code", "time, ms", "time, ms low", "time, ms high", "time, ms unit"]
    assert float(rows[0]["time, ms"]) == 0.0321
    assert float(rows[0]["time, ms low"]) == pytest.approx(0.0321 * 0.95)
    assert rows[0]["time, ms unit"] == "s"
    assert rows[1]["code"] == NASTY
    assert rows[2]["time, ms"] == "oom"


def test_markdown_shows_intervals_and_survives_bars() -> None:
    table = Table(
        "t",
        "Cap",
        [Column("a"), Column("b", numeric=True)],
        [["x|y", Cell("1", small="0–2", mark="†")]],
        ["† n"],
    )
    assert to_markdown(table) == "**Cap**\n\n| a | b |\n| --- | ---: |\n| x\\|y | 1† (0–2) |\n\n† n\n"


def test_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typst")
    pytest.importorskip("vl_convert")
    page = (Path(__file__).parents[2] / "docs/report.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/report.md", "exec"), {})
    assert (tmp_path / "out/report.pdf").exists()
