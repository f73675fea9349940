"""Running a lab: what is told while it goes on, tables, the command's mistakes. No rank is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import make_run

from paceline.labs import runner
from paceline.labs.constants import describe_constants
from paceline.labs.plan import Host, Planned, studies_for
from paceline.labs.runner import LabRun, WholePlan
from paceline.labs.spec import Experiment, find_lab
from paceline.labs.table_run import run_table
from paceline.measure import cores_for_each_rank
from paceline.record import RunRecord
from paceline.store import Store
from paceline.study import Config, Study


class Listener:
    """Remembers what a reporter is told."""

    def __init__(self) -> None:
        self.remaining: list[float | None] = []

    def begin(self, plan: object, remaining_s: float | None) -> None:
        self.remaining.append(remaining_s)

    def end_run(self, config: object, record: object, run_dir: object, remaining_s: float | None) -> None:
        self.remaining.append(remaining_s)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_the_time_that_is_left_is_that_of_the_whole_plan() -> None:
    listener = Listener()
    whole = WholePlan(listener, later_runs=5, seen_s=[])  # type: ignore[arg-type]
    config = Config("a.py", (), 1, "tuned")
    whole.begin(None, None)  # type: ignore[arg-type]
    whole.end_run(config, make_run(wall_s=4.0), Path(), 8.0)
    whole.end_run(config, make_run(wall_s=2.0), Path(), 6.0)
    assert listener.remaining == [None, 8.0 + 5 * 4.0, 6.0 + 5 * 3.0]


def test_a_task_gets_the_cores_of_the_whole_lab() -> None:
    """Task 1 needs two ranks, others four: its runs are theirs all the same."""
    lab = find_lab("hw1")
    alone = studies_for(lab, "laptop", task="1")
    whole = {study.name: study for study in studies_for(lab, "laptop")}
    assert {study.name for study in alone} <= set(whole)
    for study in alone:
        assert cores_for_each_rank(study, 16) == cores_for_each_rank(whole[study.name], 16)
    # One process that drives all devices has all cores.
    process = next(study for name, study in whole.items() if "process" in name)
    assert cores_for_each_rank(process, 16) == 16


def table(tmp_path: Path, text: str) -> Planned:
    program = tmp_path / "table.py"
    program.write_text(text)
    experiment = Experiment(id="table", title="t", program="table.py", kind="table")
    return Planned(experiment, Config(str(program), ("--dim", "8"), 1, "tuned"), "lab-tiny-table")


WRITES = "import json, sys\njson.dump([{'n': 1, 'given': sys.argv[1:3]}], open(sys.argv[-1], 'w'))\n"


def test_a_table_is_run_once_and_kept(tmp_path: Path) -> None:
    planned = table(tmp_path, WRITES)
    with Store(tmp_path / "s.sqlite") as store:
        run_table(planned, store, 30, fresh=False, retry=False)
        run_table(planned, store, 30, fresh=False, retry=False)
        (run,) = store.runs("lab-tiny-table", superseded=True)
        assert run.ranks[0].facts["table"] == {"rows": [{"n": 1, "given": ["--dim", "8"]}]}
        run_table(planned, store, 30, fresh=True, retry=False)
        assert len(store.runs("lab-tiny-table", superseded=True)) == 2


def test_a_table_that_fails_says_why_and_is_tried_again_on_request(tmp_path: Path) -> None:
    planned = table(tmp_path, "raise SystemExit('no luck')\n")
    with Store(tmp_path / "s.sqlite") as store:
        for retry in (False, False, True):
            run_table(planned, store, 30, fresh=False, retry=retry)
        runs = store.runs("lab-tiny-table", superseded=True)
        assert [run.status for run in runs] == ["failed", "failed"]
        assert runs[0].cause == "ended with exit code 1: no luck"


def test_a_table_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    planned = table(tmp_path, "import time\ntime.sleep(60)\n")
    with Store(tmp_path / "s.sqlite") as store:
        run_table(planned, store, 0.5, fresh=False, retry=False)
        assert store.runs("lab-tiny-table")[0].cause == "did not end within 0.5 s"


def test_every_study_of_a_lab_is_measured_under_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Study] = []

    def record(study: Study, *_: object, **__: object) -> list[RunRecord]:
        measured.append(study)
        return []

    monkeypatch.setattr(runner, "measure", record)
    monkeypatch.setattr(runner, "run_table", lambda *_, **__: None)
    with Store(tmp_path / "s.sqlite") as store:
        run = LabRun(
            find_lab("hw3"), "laptop", None, None, Host(), store, {"command": "c"}, lambda _: Listener()
        )  # type: ignore[arg-type, return-value]
        run.measure()
        assert [study.name for study in measured] == [
            "hw3-laptop-process-virtual",
            "hw3-laptop-process-virtual-link",
        ]
        assert {info.spec["command"] for info in store.studies()} == {"c"}


def test_constants_stand_beside_the_handouts() -> None:
    lab = find_lab("practical7")
    said = describe_constants(lab, "laptop")
    assert said.startswith("dim 1024 (handout 8192), depth 2 (handout 8), batch 32 (handout 64); ")
    assert "“Code 2, large batch” and 3 more: dim 256 (handout 8192)" in said
    assert describe_constants(lab, "handout") == "exactly the handout's"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "hw22"], "did you mean 'hw2'?"),
        (["run", "hw2", "--task", "9"], "hw2 has no task '9'"),
        (["run", "hw2", "--option", "A"], "hw2 has none"),
        (["run", "hw1", "--option", "D"], "it is one of A, B, C, all"),
        (["run", "hw2", "--scale", "laptp"], "did you mean 'laptop'?"),
        (["report", "hw2"], "There is no store"),
    ],
)
def test_a_mistake_is_one_message(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paceline", "lab", *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "submission").exists()


def test_a_missing_package_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['typst'] = None; from paceline.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "lab", "run", "hw2", "--scale", "tiny"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "pip install 'paceline[report]'" in done.stderr
    assert not (tmp_path / ".paceline").exists()


def test_tables_are_written_as_json_text(tmp_path: Path) -> None:
    """The shipped script keeps the agreement."""
    script = find_lab("practical7").folder / "practical7_underflow.py"
    out = tmp_path / "rows.json"
    subprocess.run(
        [sys.executable, str(script), "--depth", "2", "--json-out", str(out)], check=True, capture_output=True
    )
    assert {"scale", "underflow_share", "overflow_share"} <= set(json.loads(out.read_text())[0])
