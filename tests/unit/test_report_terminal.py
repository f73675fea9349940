"""The tables: every number with its interval, in the widths that terminals have."""

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console
from synthetic import make_run

from paceline.record import Finding, Metric, Row
from paceline.report.terminal import collect_findings, print_study, show_interval
from paceline.report.units import Unit
from paceline.store import Store


def make_row(world: int, step_time_s: float, **fields) -> Row:
    def metric(value: float, unit: str) -> Metric:
        return Metric(value, 0.95 * value, 1.05 * value, 90, unit)

    metrics = {
        "step_time_s": metric(step_time_s, "s"),
        "speedup": metric(0.02 / step_time_s, "ratio"),
        "efficiency": metric(0.02 / step_time_s / world, "ratio"),
        "exposed_comm_s": metric(0.004, "s"),
        "peak_memory_bytes": metric(3 * 2**20, "bytes"),
    }
    values = {
        "program": "train.py",
        "arguments": ["--accum-steps", "4", "--precision", "bfloat16"],
        "placement": "tuned",
        "status": "ok",
        "rounds": 3,
        "metrics": metrics,
        **fields,
    }
    return Row(world=world, **values)


def show(rows: list[Row], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_study("demo", rows, console)
    return console.file.getvalue()


ROWS = [
    make_row(1, 0.02),
    make_row(2, 0.0125),
    make_row(4, 0.03, oversubscribed=True, arguments=["--accum-steps", "16", "--precision", "float32"]),
]


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (140, ("20.0 19.0–21.0", "1.60 1.52–1.68", "oversubscribed", "accum-steps")),
        (90, ("19.0–21.0", "1.52–1.68", "oversubscribed", "accum-")),
        (80, ("±5 %", "over-", "accum-")),
    ],
)
def test_nothing_is_cut_or_too_wide(width, said):
    text = show(ROWS, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for number in ("20.0", "12.5", "1.60", "80", "4.00", "3.00", "bfloat16", "precision", "ms", "MiB", *said):
        assert number in text


@pytest.mark.parametrize("width", [44, 50, 60, 70])
def test_narrow_terminal_shows_fewer_numbers_but_all_names(width):
    text = show(ROWS, width)
    table = text.partition("!")[0]
    assert max(len(line) for line in table.splitlines()) <= width
    for told in ("ranks", "accum-", "16", "20.0", "12.5", "bfloat16", "ok"):
        assert told in table


def test_interval_without_an_end_is_not_written_in_digits():
    wild = Metric(0.0222, 5e-7, 836.269, 60, "s")
    row = make_row(1, 0.02, metrics={"step_time_s": wild})
    for width in (60, 120):
        text = show([row], width)
        assert ">±300 %" in text
        assert "836" not in text
    assert show_interval(Metric(1.7, 1.6, 1.8, 3, "ratio"), Unit(1.0, "×")) == "1.60–1.80"
    assert show_interval(Metric(1.7, 1.6999, 1.7001, 3, "ratio"), Unit(1.0, "×")) == ""
    assert show_interval(Metric(1.7, float("nan"), float("nan"), 1, "ratio"), Unit(1.0, "×")) == ""


def test_terminal_without_unicode_shows_the_study(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        for world in (1, 2):
            store.add(make_run(world=world))
    shown = subprocess.run(
        [sys.executable, "-m", "paceline", "show", "synthetic", "--store", str(tmp_path / "store.sqlite")],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "20.0" in shown.stdout


def test_two_sweeps_and_oversubscription_are_the_only_reason_to_shorten_an_interval():
    assert "19.0–21.0" in show(ROWS[:2], 80)


def test_one_unit_per_column():
    text = show([make_row(1, 1.5), make_row(2, 0.0125)], 120)
    assert "1.50" in text
    assert "0.0125" in text


def test_a_failed_row_has_no_numbers_and_says_so():
    finding = Finding("hung", "hung: rank 1 stands at train.py:7.", {}, "warning")
    failed = make_row(2, 0.02, status="hung", metrics={}, findings=[finding])
    text = show([make_row(1, 0.02), failed], 80)
    assert re.search(r"2 .*–.*–.*hung", text)
    assert "! 2 ranks: hung: rank 1 stands at train.py:7.  [hung]" in text


def test_of_one_code_the_gravest_is_told_and_failures_of_two_causes_are_two():
    small = Finding("straggler", "6 % of the step.", {"share": 0.06})
    large = Finding("straggler", "60 % of the step.", {"share": 0.6}, "warning")
    causes = [Finding("failed", text, {}, "warning") for text in ("no such file.", "division by zero.")]
    rows = [
        make_row(2, 0.02, findings=[small, causes[0]]),
        make_row(4, 0.02, findings=[large, causes[1]]),
    ]
    text = show(rows, 80)
    assert "! 4 ranks: 60 % of the step. Also: 2 ranks." in text
    assert "no such file." in text
    assert "division by zero." in text


def test_findings_come_once_each_and_the_gravest_first():
    note = Finding("single_launch", "one launch.", {})
    noisy = Finding("too_noisy", "too noisy.", {}, "warning")
    failed = Finding("failed", "failed.", {}, "warning")
    rows = [make_row(1, 0.02, findings=[note, noisy]), make_row(2, 0.02, findings=[noisy, failed])]
    assert [(finding.code, len(where)) for finding, where in collect_findings(rows)] == [
        ("failed", 1),
        ("too_noisy", 2),
        ("single_launch", 1),
    ]
    text = show(rows, 80)
    assert text.count("[too_noisy]") == 1
    assert "! 1 rank: too noisy. Also: 2 ranks." in text
    assert "· 1 rank: one launch." in text
