"""A student's script by itself: whatever it does, there is a verdict, and nothing is left running."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from paceline.check import world
from paceline.check.check import FileReport, check_file, judge_few_layers
from paceline.check.observations import Seen
from paceline.check.watch.limits import LARGEST_FILE_BYTES
from paceline.check.world import copy_folder
from paceline.cli import lab_check
from paceline.ingest import RankLog
from paceline.outcome import Ended
from paceline.processes import find_descendants
from paceline.record import RankRecord
from paceline.torchrun import stop_idle_agents
from paceline.virtual.build import find_compiler
from tests.check.mistake import PROGRAMS
from tests.check.mistakes_ranks import FUNCTIONS
from tests.check.written import model, seen, train
from tests.check.written import world as written_world


def write(folder: Path, source: str) -> str:
    path = folder / "student.py"
    path.write_text(source)
    return str(path)


def judge_run(report: FileReport) -> tuple[str, int | None, str]:
    run = report.verdicts["run"]
    others = {verdict.answer for name, verdict in report.verdicts.items() if name != "run"}
    assert others == {"unknown"}
    return run.answer, run.line, f"{run.reason} → {run.change}"


def test_a_syntax_error_is_shown_with_its_line(tmp_path: Path) -> None:
    answer, line, said = judge_run(check_file("hw2", write(tmp_path, "x = 1\nif x = 2:\n    pass\n")))
    assert (answer, line) == ("fail", 2)
    assert "SyntaxError" in said


def test_a_script_that_hangs_is_stopped_and_says_where(tmp_path: Path) -> None:
    source = (
        "import os, subprocess, time\n"
        "subprocess.Popen(['sleep', '1000'])\n"
        "while os.environ['RANK']:\n"
        "    time.sleep(0.1)\n"
    )
    began = time.monotonic()
    answer, line, said = judge_run(check_file("practical7", write(tmp_path, source), timeout_s=12.0))
    assert (answer, line) == ("fail", 4), said
    assert "did not end within 12 s" in said
    assert time.monotonic() - began < 40
    stop_idle_agents()
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in find_descendants(os.getpid())]
    assert not [command for command in commands if b"1000" in command]


def test_endless_output_ends_the_script_alone(tmp_path: Path) -> None:
    source = "while True:\n    print('all work and no play ' * 100_000)\n"
    answer, line, said = judge_run(check_file("practical7", write(tmp_path, source), timeout_s=60.0))
    assert (answer, line) == ("fail", 2), said
    assert f"{LARGEST_FILE_BYTES >> 20} MiB" in said


def test_a_script_that_asks_for_too_much_memory_fails_alone(tmp_path: Path) -> None:
    source = "import torch\nkept = [torch.empty(2**28) for _ in range(400)]\n"
    answer, line, said = judge_run(check_file("practical7", write(tmp_path, source), timeout_s=60.0))
    assert (answer, line) == ("fail", 2), said
    assert "memory" in said


def test_the_folder_is_copied_with_what_the_script_needs_and_nothing_is_written_back(tmp_path: Path) -> None:
    script = tmp_path / "student.py"
    script.write_text("")
    (tmp_path / "random.py").write_text("another student's, which torch would import")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "model.py").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    copied = copy_folder(script, tmp_path.parent / f"{tmp_path.name}-copy")
    names = {str(path.relative_to(copied.parent)) for path in copied.parent.rglob("*") if path.is_file()}
    assert names == {"student.py", "package/model.py"}


@pytest.mark.parametrize(
    ("frame", "ours"),
    [
        ("/home/student/train.py", False),
        ("/usr/lib/python3/site-packages/torch/_tensor.py", False),
        (str(world.PROBE / "period.py"), True),
        (str(Path(world.__file__).parent / "watch" / "model.py"), False),
        (str(Path(world.__file__).parents[1] / "virtual" / "distributed.py"), False),
    ],
)
def test_faults_are_told_apart_by_the_innermost_frame(frame: str, ours: bool) -> None:
    traceback = (
        f'Traceback:\n  File "{world.__file__}", line 1, in told\n  File "{frame}", line 2, in inner\n'
    )
    log = RankLog(RankRecord(0), exception={"traceback": traceback, "message": "", "type": "E"})
    ended = Ended(Path("train.py"), {0: log}, [], 1, None, {}, {}, 0, 0, True)
    assert world.is_own_fault(ended) is ours


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler for the virtual devices")
@pytest.mark.parametrize("fallback", [True, False], ids=["falls_back_to_the_cpu", "insists_on_cuda"])
def test_scripts_for_cuda_are_checked_on_virtual_devices(fallback: bool, tmp_path: Path) -> None:
    source = (PROGRAMS / "both_cuda.py").read_text()
    insisting = source.replace("torch.cuda.is_available()", "True")
    report = check_file("hw2", write(tmp_path, source if fallback else insisting))
    open_checks = {name for name, verdict in report.verdicts.items() if verdict.answer != "pass"}
    assert open_checks == {"timing", "waiting", "warmup"}  # it reads no clock
    assert "float16" in report.verdicts["autocast_forward"].reason


@pytest.fixture
def app() -> Typer:
    app = Typer()
    app.callback()(lambda: None)
    lab_check.add_to(app)
    return app


def test_a_failing_file_leaves_the_others_alone_and_json_holds_both(app: Typer, tmp_path: Path) -> None:
    good = shutil.copy(PROGRAMS / FUNCTIONS, tmp_path / "good.py")
    bad = write(tmp_path, "raise ValueError('on purpose')\n")
    result = CliRunner().invoke(app, ["check", "practical7", bad, str(good), "--json"])
    assert result.exit_code == 1, result.output
    files = json.loads(result.stdout)["files"]
    assert [file["answer"] for file in files] == ["fail", "pass"]
    assert "on purpose" in files[0]["checks"][0]["reason"]
    assert {path.name for path in tmp_path.iterdir()} == {"good.py", "student.py"}


def test_a_fault_of_the_check_is_told_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise KeyError("backward")

    monkeypatch.setattr("paceline.check.check.run_observed", fail)
    report = check_file("hw2", write(tmp_path, "x = 1"))
    assert (report.answer, report.num("unknown")) == ("unknown", len(report.script.checks))
    assert "KeyError: 'backward'" in report.verdicts["run"].reason


@pytest.mark.parametrize(
    ("layers", "failure", "answer"),
    [(3, None, "pass"), (4, None, "fail"), (3, "raised at x.py:3", "unknown")],
)
def test_layers_must_not_be_lost_on_some_numbers_of_devices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, layers: int, failure: str | None, answer: str
) -> None:
    def spread(number: int, devices: int) -> Seen:
        machine = seen("machine", accelerators=devices, virtual=True)
        return written_world([[machine, model([f"virtual:{layer}" for layer in range(number)]), *train(1)]])

    monkeypatch.setattr(
        "paceline.check.check.run_observed", lambda path, devices, **rest: spread(layers, devices)
    )
    first = spread(3, 3)
    first.failure = failure
    assert judge_few_layers(Path(write(tmp_path, "x = 1")), first, 9.0).answer == answer


def test_a_file_that_cannot_be_read_is_told_before_anything_runs(
    app: Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result = CliRunner().invoke(app, ["check", "hw2", write(tmp_path, "x = 1")])
    assert isinstance(result.exception, ValueError)
    assert "cannot be read" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hw9", "x.py"], "there is no lab 'hw9'; did you mean 'hw"),
        (["hw2", "x.py", "--script", "ddp"], "'ddp' is not one of hw2's"),
        (["hw2", "nowhere.py"], "there is no file nowhere.py"),
    ],
)
def test_mistakes_in_the_command_are_told_before_anything_runs(
    app: Typer, arguments: list[str], said: str
) -> None:
    result = CliRunner().invoke(app, ["check", *arguments])
    assert isinstance(result.exception, ValueError)
    assert said in str(result.exception)
