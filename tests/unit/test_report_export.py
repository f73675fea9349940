"""The JSON and CSV that other programs read: complete, without NaN, and stable."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from synthetic import communication, make_rank, make_run, memory

from paceline.analyse import summarise
from paceline.explain import explain
from paceline.record import Finding, Metric, Row
from paceline.report.export import CSV_COLUMNS, JSON_SCHEMA, describe_study, to_csv, to_json, write_json

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"


def rows() -> list[Row]:
    facts = {"communication": communication(exposed_s=0.008), "memory": memory(parameters=64)}
    runs = [
        make_run(world=1, facts=facts),
        make_run(world=2, facts=facts, arguments=["--name", "a,b é"], oversubscribed=True),
        make_run(world=4, status="oom", cause="out of memory", ranks=[]),
    ]
    return explain(summarise(runs), runs)


def test_json_has_the_promised_shape() -> None:
    given = rows()
    study = json.loads(to_json("sweep", given))
    assert study["schema"] == JSON_SCHEMA
    assert (study["study"], study["source"]) == ("sweep", "measured")
    first, second, third = study["runs"]
    assert (first["program"], first["world"], first["placement"]) == ("train.py", 1, "tuned")
    assert first["metrics"]["step_time_s"] == {
        "median": 0.02,
        "low": 0.02,
        "high": 0.02,
        "n": 30,
        "unit": "s",
    }
    assert second["arguments"] == ["--name", "a,b é"]
    assert second["oversubscribed"] is True
    codes = [finding["code"] for finding in second["findings"]]
    assert codes == [finding.code for finding in given[1].findings]
    assert "oversubscribed" in codes
    assert (third["status"], third["cause"], third["metrics"]) == ("oom", "out of memory", {})


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def test_what_is_not_known_is_null_and_never_nan() -> None:
    row = Row("t.py", [], 1, "tuned", "ok")
    row.metrics["loss"] = Metric(math.inf, math.nan, -math.inf, 1, "loss")
    row.findings.append(Finding("too_noisy", "…", {"half_width": math.inf}))
    study = json.loads(to_json("s", [row]), parse_constant=refuse)
    assert study["runs"][0]["metrics"]["loss"] == {
        "median": None,
        "low": None,
        "high": None,
        "n": 1,
        "unit": "loss",
    }
    assert study["runs"][0]["findings"][0]["numbers"] == {"half_width": None}
    json.loads(to_json("s", rows()), parse_constant=refuse)


def test_a_study_may_be_measured_simulated_both_or_empty() -> None:
    measured, simulated = (
        Row("t.py", [], 1, "tuned", "ok", source=source) for source in ("measured", "simulated")
    )
    assert describe_study("s", [simulated])["source"] == "simulated"
    assert describe_study("s", [measured, simulated])["source"] == "mixed"
    assert describe_study("s", []) == {"schema": JSON_SCHEMA, "study": "s", "source": None, "runs": []}


def test_csv_has_a_line_per_metric_and_one_for_a_row_without() -> None:
    given = rows()
    lines = list(csv.DictReader(io.StringIO(to_csv(given))))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert len(lines) == sum(len(row.metrics) or 1 for row in given)
    first = next(line for line in lines if line["metric"] == "step_time_s")
    assert (first["median"], first["n"], first["unit"]) == ("0.02", "30", "s")
    exposed = next(line for line in lines if line["metric"] == "exposed_comm_s")
    assert (exposed["median"], exposed["low"]) == ("0.008", ""), "an interval that is not known is empty"
    assert (lines[-1]["status"], lines[-1]["metric"], lines[-1]["median"]) == ("oom", "", "")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.json"
    write_json("s", rows(), target)
    before = target.read_text(encoding="utf-8")
    assert json.loads(before)["study"] == "s"

    def fail(self: Path, *_: object, **__: object) -> int:
        self.touch()
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match="no space"):
        write_json("another", rows(), target)
    assert target.read_text(encoding="utf-8") == before
    assert list(tmp_path.iterdir()) == [target]


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    row = next(row for row in rows() if row.findings and row.metrics)
    study = json.loads(to_json("s", [row]))
    entry = study["runs"][0]
    keys = {*study, *entry, *entry["metrics"]["step_time_s"], *entry["findings"][0]}
    documented = re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(documented) == keys


def test_the_example_in_the_document_is_of_the_version_that_is_written() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    study = json.loads(example)
    written = describe_study("s", rows())
    assert study["schema"] == JSON_SCHEMA
    assert set(study) == set(written)
    assert all(set(run) == set(written["runs"][0]) for run in study["runs"])


def test_ranks_that_know_nothing_make_no_trouble() -> None:
    runs = [make_run(ranks=[make_rank(0, [], warmup=1, sampled=0)])]
    json.loads(to_json("s", explain(summarise(runs), runs)), parse_constant=refuse)
