"""Correct programs in several styles pass; each mistake is caught by the right check at the right line."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.check.check import judge
from paceline.check.observations import Seen
from paceline.check.scripts import SCRIPTS, guess_script, recognise_script
from paceline.check.verdicts.verdict import Verdict
from paceline.virtual.build import build_library, find_compiler
from tests.check.conftest import RunScript
from tests.check.mistake import PROGRAMS, Mistake, write_script
from tests.check.mistakes_precision import PRECISION
from tests.check.mistakes_ranks import RANKS
from tests.check.mistakes_timing import DYNAMIC, TIMING
from tests.check.styles import STYLES, Style

MISTAKES = (*RANKS, *PRECISION, *TIMING)
LABS = Path(__file__).parents[2] / "labs"
CORRECT = {
    "accumulation_functions.py": ("practical7", "accumulation"),
    "accumulation_nested.py": ("practical7", "accumulation"),
    "both_class.py": ("hw2", "both"),
    "both_decorated.py": ("hw2", "both"),
    "amp_plain.py": ("practical7", "amp"),
    "ddp_each_step.py": ("hw1", "ddp"),
    "ddp_whole_loop.py": ("hw1", "ddp"),
}
# The scripts that the labs themselves offer, and what each is.
LABS_OWN = {
    "practical7/practical7_accumulation.py": ("practical7", "accumulation"),
    "practical7/practical7_amp.py": ("practical7", "amp"),
    "hw1/ddp_benchmark.py": ("hw1", "ddp"),
    "hw1/dataparallel_benchmark.py": ("hw1", "dataparallel"),
    "hw2/practical5_single.py": ("hw2", "both"),
    "hw3/model_parallel.py": ("hw3", "static"),
    "hw3/model_parallel_dynamic.py": ("hw3", "dynamic"),
}
# What cannot be told about a correct program, and nothing else.
UNTIMED = {"timing", "waiting", "warmup"}
CANNOT_TELL = {
    "accumulation_functions.py": UNTIMED,
    "accumulation_nested.py": UNTIMED,
    "both_class.py": UNTIMED,
    "both_decorated.py": UNTIMED | {"large_batch"},  # its loss is no function of PyTorch's
    "amp_plain.py": UNTIMED,
    "ddp_each_step.py": set(),
    "ddp_whole_loop.py": set(),
}


def judge_as(lab: str, path: Path, seen: Seen) -> tuple[str, dict[str, Verdict]]:
    name = "dynamic.py" if lab == "hw3" else path.name
    script = recognise_script(lab, guess_script(lab, name, path.read_text()), seen)
    return script.name, judge(script, seen)


def named(verdicts: dict[str, Verdict], answer: str) -> set[str]:
    return {name for name, verdict in verdicts.items() if verdict.answer == answer}


def need_virtual_devices() -> None:
    """Compiles them where they never were; without a compiler there is nothing to test with."""
    if find_compiler() is None:
        pytest.skip("no C++ compiler for the virtual devices")
    build_library()


def explain(verdicts: dict[str, Verdict]) -> str:
    return "\n".join(f"{v.answer:8} {name}: line {v.line}: {v.reason}" for name, v in verdicts.items())


@pytest.mark.parametrize("program", CORRECT)
def test_correct_programs_pass(program: str, run_script: RunScript) -> None:
    lab, kind = CORRECT[program]
    path = PROGRAMS / program
    seen = run_script(path)
    name, verdicts = judge_as(lab, path, seen)
    assert not any(rank.all("stumble") for rank in seen.ranks)
    assert name == kind
    assert named(verdicts, "fail") == set(), explain(verdicts)
    assert named(verdicts, "unknown") == CANNOT_TELL[program], explain(verdicts)


@pytest.mark.parametrize("other", STYLES, ids=lambda other: other.name)
def test_other_styles_do_not_fail(other: Style, run_script: RunScript, tmp_path: Path) -> None:
    seen = run_script(write_script(other, tmp_path))
    _, verdicts = judge_as(other.lab, PROGRAMS / other.program, seen)
    assert not any(rank.all("stumble") for rank in seen.ranks)
    assert named(verdicts, "fail") == set(), explain(verdicts)
    assert named(verdicts, "unknown") == CANNOT_TELL[other.program] | other.unknown, explain(verdicts)


def test_the_loss_is_followed_by_value_and_by_graph(run_script: RunScript) -> None:
    seen = run_script(PROGRAMS / "both_class.py")
    for micro in seen.main.micros:
        assert micro.backward["scale"] == 65536.0
        assert micro.backward["ratio"] == pytest.approx(0.25, rel=1e-3)
        assert micro.backward["factor"] == pytest.approx(0.25)


@pytest.mark.parametrize("program", LABS_OWN)
def test_the_labs_own_scripts_pass_every_check(program: str, run_script: RunScript) -> None:
    lab, kind = LABS_OWN[program]
    script = SCRIPTS[kind]
    if script.accelerators:
        need_virtual_devices()
    path = LABS / program
    seen = run_script(path, "--dim", "64", devices=script.accelerators)
    assert not any(rank.all("stumble") for rank in seen.ranks)
    assert recognise_script(lab, guess_script(lab, path.name, path.read_text()), seen) == script
    verdicts = judge(script, seen)
    # Steps of a tiny model are so short that the printed digits may fit several means.
    assert named(verdicts, "pass") | {"warmup"} == set(script.checks), explain(verdicts)
    assert verdicts["warmup"].answer != "fail", explain(verdicts)


@pytest.mark.parametrize("wrong", MISTAKES, ids=lambda wrong: wrong.name)
def test_mistakes_are_caught(wrong: Mistake, run_script: RunScript, tmp_path: Path) -> None:
    path = write_script(wrong, tmp_path)
    if wrong.devices:
        need_virtual_devices()
    seen = run_script(path, devices=wrong.devices)
    _, verdicts = judge_as(wrong.lab, path, seen)
    assert not any(rank.all("stumble") for rank in seen.ranks)
    assert named(verdicts, "fail") == wrong.fails, explain(verdicts)
    lines = path.read_text().splitlines()
    blamed = [lines[v.line - 1] for v in verdicts.values() if v.answer == "fail" and v.line]
    assert any(wrong.line in line for line in blamed), blamed
    assert all(verdict.change for verdict in verdicts.values() if verdict.answer == "fail")


@pytest.mark.parametrize("devices", [2, 3, 8])  # seven layers: with a remainder, and more devices than layers
def test_a_correct_split_passes_on_any_number_of_devices(devices: int, run_script: RunScript) -> None:
    need_virtual_devices()
    seen = run_script(PROGRAMS / DYNAMIC, devices=devices)
    _, verdicts = judge_as("hw3", PROGRAMS / DYNAMIC, seen)
    assert not any(rank.all("stumble") for rank in seen.ranks)
    assert named(verdicts, "fail") == set(), explain(verdicts)
    assert named(verdicts, "unknown") == {"warmup"}, explain(verdicts)  # four steps are no warm-up
