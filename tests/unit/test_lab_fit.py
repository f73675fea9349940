"""What does not fit is refused before it starts, with the sum that is too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.labs.fit import estimate_rank_bytes, read_constants, refuse_too_large
from paceline.labs.plan import Host, plan, studies_for
from paceline.labs.spec import find_lab, find_labs
from paceline.study import Config

GIB = 1 << 30
SCRIPT = "DIM = 8192  # width\nDEPTH: int = 3\nDEPTH = 8\nBATCH = 64\nSAMPLES = 1024\nNAME = 'x'\n"


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def config(program: str, *arguments: str, world: int = 2) -> Config:
    return Config(program, arguments, world, "tuned")


def test_constants_are_read_from_the_script_without_running_it(program: str) -> None:
    assert read_constants(Path(program)) == {"DIM": 8192, "DEPTH": 8, "BATCH": 64, "SAMPLES": 1024}


def test_the_sum_is_that_of_the_course_model() -> None:
    parts = estimate_rank_bytes({"DIM": 1024, "DEPTH": 2, "BATCH": 32, "SAMPLES": 1024}, synchronises=True)
    weights = 2 * (1024 * 1024 + 1024) * 4
    assert parts["parameters"] == parts["gradients"] == parts["DDP's buckets"] == weights
    assert parts["activations"] == 2 * 2 * 32 * 1024 * 4
    assert parts["optimizer state"] == 0
    alone = estimate_rank_bytes({"DIM": 1024, "DEPTH": 2, "BATCH": 32}, synchronises=False)
    assert alone["DDP's buckets"] == 0


def test_a_refusal_shows_the_arithmetic(program: str) -> None:
    said = refuse_too_large(config(program, world=4), 4, 16 * GIB, on_devices=False)
    assert said is not None
    for part in (
        "4 ranks × (2.00 GiB of parameters + 2.00 GiB of gradients",
        "400 MiB for torch",
        "has 16.0 GiB",
    ):
        assert part in said
    assert refuse_too_large(config(program, world=4), 4, 64 * GIB, on_devices=False) is None


def test_arguments_count_before_constants(program: str) -> None:
    small = config(program, "--dim", "256", "--depth", "2")
    assert refuse_too_large(small, 2, 1 * GIB, on_devices=False) is None


def test_layers_that_are_spread_over_devices_share_the_memory(program: str) -> None:
    alone = config(program, world=1)
    assert refuse_too_large(alone, 1, 3 * GIB, on_devices=True) is not None
    assert refuse_too_large(alone, 2, 3 * GIB, on_devices=True) is None


def test_a_script_of_another_kind_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text("print('no constants')\n")
    assert refuse_too_large(config(str(path)), 2, 1, on_devices=False) is None


def test_a_lab_leaves_out_what_does_not_fit_and_keeps_the_rest() -> None:
    host = Host(memory_bytes=23 * GIB)
    lab = find_lab("hw1")
    refused = {
        (p.experiment.id, p.config.world) for p in plan(lab, "handout", host=host) if p.refusal is not None
    }
    assert refused == {("large", 4), ("large-batch", 4)}
    assert {config.world for study in studies_for(lab, "handout", host=host) for config in study.configs} == {
        1,
        2,
        4,
    }
    small = Host(memory_bytes=2 * GIB)
    assert all(p.refusal is None for name in find_labs() for p in plan(find_lab(name), "tiny", host=small))


def test_without_a_compiler_only_virtual_devices_are_refused() -> None:
    host = Host(no_virtual="no compiler")
    reasons = {p.experiment.id: p.refusal for p in plan(find_lab("hw1"), "tiny", host=host)}
    assert reasons["ddp-on-devices"] == "no compiler"
    assert reasons["strong"] is None
