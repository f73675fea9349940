"""A report from a stored study: its tables, its figures, what it writes, and that it follows the numbers."""

from __future__ import annotations

import csv
import html
import re
import sys
from pathlib import Path

import pytest
from report_samples import MACHINE, NASTY, make_study, profiled_rank
from synthetic import make_run
from typer.testing import CliRunner

from paceline.analyse import summarise
from paceline.cli.report import add_to
from paceline.explain import explain
from paceline.record import RunRecord
from paceline.report import drawing
from paceline.report.document import Bullets, Code, Document, as_cell, figures_of, tables_of, walk
from paceline.report.html import render_html
from paceline.report.pdf import PT_PER_PX, WIDE_PX
from paceline.report.study_report import build_study_report
from paceline.report.write import write_report
from paceline.store import Store

FASTER = {1: 0.040, 2: 0.021, 4: 0.022}
SLOWER = {1: 0.021, 2: 0.040, 4: 0.044}


def build(runs: list[RunRecord], tmp_path: Path) -> Document:
    """By way of the store, as a user's report comes about."""
    with Store(tmp_path / "store.sqlite") as store:
        for run in runs:
            store.add(run)
        stored = store.runs("synthetic")
    return build_study_report("synthetic", explain(summarise(stored), stored), stored, author="Ada")


def findings_of(document: Document) -> str:
    return "\n".join(
        item
        for section in document.sections
        for block in walk(section.blocks)
        if isinstance(block, Bullets)
        for item in block.items
    )


def test_report_shows_what_placement_gains(tmp_path: Path) -> None:
    runs = [
        make_run(placement=placement, step_times_s=[step_s] * 30, round=round)
        for round in range(2)
        for placement, step_s in (("plain", 0.03), ("tuned", 0.02))
    ]
    times = next(table for table in tables_of(build(runs, tmp_path)) if table.name == "times")
    place = next(n for n, column in enumerate(times.columns) if column.heading.startswith("gain over plain"))
    assert [as_cell(row[place]).text for row in times.rows] == ["–", "1.50"]


def test_report_holds_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("typst")
    pytest.importorskip("vl_convert")
    document = build(make_study(FASTER), tmp_path)
    assert [table.name for table in tables_of(document)] == [
        "times",
        "phases",
        "communication",
        "memory",
        "failures",
    ]
    assert [figure.name for figure in figures_of(document)] == ["speedup", "timeline", "steps", "memory"]
    written = write_report(document, tmp_path / "out")
    assert written.problems == []
    assert all(path.stat().st_size > 0 for path in written.paths)
    names = {str(path.relative_to(tmp_path / "out")) for path in written.paths}
    assert {"report.pdf", "report.html", "tables/times.csv", "tables/times.md"} <= names
    assert {"plots/speedup.svg", "plots/speedup.png", "plots/timeline.svg"} <= names
    with (tmp_path / "out/tables/times.csv").open() as file:
        rows = {row["ranks"]: row for row in csv.DictReader(file)}
    assert float(rows["1"]["step time, ms"]) == pytest.approx(0.0404)
    assert float(rows["2"]["speedup, ×"]) == pytest.approx(40 / 21)
    # Marked, and what did not run says why in every cell.
    assert "4†" in rows
    assert rows["8"]["step time, ms"] == "oom"


def test_first_page_says_what_a_reader_must_know(tmp_path: Path) -> None:
    document = build(make_study(FASTER), tmp_path)
    about = dict(document.about)
    assert about["Machine"] == "2 cores, Model T, 8.00 GiB of memory, no accelerator, Linux 6.1"
    assert about["Software"] == "python 3.11, torch 2.13"
    assert about["Measured"] == "2025-06-15 15:06 UTC, 10 launches in 3 rounds"
    assert "CPU cores" in document.caveats[0]
    assert "Worlds of 4 ranks had more ranks than the 2 cores" in document.caveats[1]


def test_commands_are_those_that_ran_without_the_place_of_their_logs(tmp_path: Path) -> None:
    runs = make_study({1: 0.04})[:1]
    runs[0].command = [
        "/opt/bin/python3",
        "-m",
        "torch.distributed.run",
        "--log-dir",
        "/tmp/x y",
        "train.py",
        "--n",
        "a b",
    ]
    document = build_study_report("s", explain(summarise(runs), runs), runs, command="paceline run train.py")
    assert [block.text for block in document.sections[-1].blocks if isinstance(block, Code)] == [
        "paceline run train.py",
        "python3 -m torch.distributed.run train.py --n 'a b'",
    ]


def test_failure_is_told_with_its_cause(tmp_path: Path) -> None:
    failures = tables_of(build(make_study(FASTER), tmp_path))[-1]
    assert [list(row) for row in failures.rows] == [["8 ranks", "oom", NASTY]]


def test_reversed_numbers_reverse_the_report(tmp_path: Path) -> None:
    reports = []
    for name, times in (("faster", FASTER), ("slower", SLOWER)):
        (tmp_path / name).mkdir()
        reports.append(build(make_study(times), tmp_path / name))
    faster, slower = reports
    assert "1.90 on 2 ranks" in figures_of(faster)[0].alt
    assert "1.00 on 1 rank." in figures_of(slower)[0].alt
    assert "no_speedup" in findings_of(slower)
    assert "no_speedup" not in findings_of(faster)


def test_study_of_a_single_failure_is_a_report_too(tmp_path: Path) -> None:
    document = build(make_study({}), tmp_path)
    # No table without a number in it.
    assert [table.name for table in tables_of(document)] == ["failures"]
    assert document.subtitle == "A study of 1 configuration"
    assert write_report(document, tmp_path / "out").paths


def test_names_that_read_like_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("typst")
    evil = "a`b`**c** @figure:none @table:times <script>alert(1)</script> #panic() \u0646\u0645"
    runs = make_study(FASTER)
    for place, run in enumerate(runs):
        run.program = f"{evil}.py"
        run.arguments = ["--who", f"{evil} {place % 4}"]
        run.machine = {**run.machine, "processor": {"model": evil}}
    document = build(runs, tmp_path)
    page = html.unescape(re.sub(r"<(?:wbr|/?code|/?strong)>", "", render_html(document)))
    assert evil in findings_of_page(page)
    assert page.count(f"2 cores, {evil}, 8.00") == 1
    assert "<script" not in render_html(document)
    assert write_report(document, tmp_path / "out").problems == []
    with (tmp_path / "out/tables/times.csv").open() as file:
        assert next(csv.DictReader(file))["who"].startswith(evil)


def findings_of_page(page: str) -> str:
    return page.partition("What was found")[2].partition("Times")[0]


def test_large_study_stays_on_its_pages(tmp_path: Path) -> None:
    pytest.importorskip("typst")
    runs = [
        make_run(
            world=2,
            ranks=[profiled_rank(rank, 0.02, communicates=True) for rank in range(2)],
            arguments=["--precision", f"{number} bits"],
            machine=MACHINE,
        )
        for number in range(40)
    ]
    document = build(runs, tmp_path)
    captions = {figure.name: figure.caption for figure in figures_of(document)}
    assert "of the 24 fullest configurations of 40" in captions["memory"]
    assert "of the 24 fastest configurations of 40" in captions["step-time"]
    for figure in figures_of(document):
        (height,) = re.findall(r'height="([\d.]+)"', figure.drawing.draw(WIDE_PX))[:1]
        assert float(height) * PT_PER_PX < 700  # of the 842 points of A4, without its margins and a caption


def test_only_rows_that_communicate_stand_in_its_table(tmp_path: Path) -> None:
    tables = {table.name: table for table in tables_of(build(make_study(FASTER), tmp_path))}
    assert [as_cell(row[0]).text for row in tables["communication"].rows] == ["2", "4"]


def test_without_the_extra_the_rest_is_written_and_the_command_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typst", None)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    drawing._vl_convert.cache_clear()
    written = write_report(build(make_study(FASTER), tmp_path), tmp_path / "out")
    names = {path.name for path in written.paths}
    assert {"report.html", "times.csv", "timeline.svg"} <= names
    assert "report.pdf" not in names
    assert len(written.problems) == 2
    assert all("pip install 'paceline[report]'" in problem for problem in written.problems)


def test_command_writes_a_folder_and_says_when_a_limit_is_not_kept(tmp_path: Path) -> None:
    typer = pytest.importorskip("typer")
    pytest.importorskip("typst")
    build(make_study(FASTER), tmp_path)
    app = typer.Typer()
    add_to(app)
    app.callback()(lambda: None)
    arguments = ["report", "synth", "--store", str(tmp_path / "store.sqlite"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "out" / "report.html") in result.output
    result = CliRunner().invoke(app, [*arguments, "--page-limit", "1"])
    assert result.exit_code == 1
    assert "the limit is 1" in result.output
