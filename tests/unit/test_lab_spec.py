"""The labs' declarations: what each scale measures, and where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.labs.plan import Host, configs_of, plan, studies_for
from paceline.labs.spec import SCALES, find_lab, find_labs, load_lab

LAB = """
name = "mini"
title = "A lab"
page_limit = 1
scripts = ["train.py"]
scales.handout = { steps = 30, warmup = 5, rounds = 3 }
scales.laptop = { steps = 20, warmup = 5, rounds = 2 }
scales.tiny = { steps = 5, warmup = 2, sampled = 2, rounds = 1 }

[[tasks]]
id = "1"
title = "First"
questions = [{ id = "1.1", text = "Why?" }]

[[tasks.experiments]]
id = "scaling"
title = "scaling"
program = "train.py"
worlds = [1, 2]
arguments = { dim = 8192, no-seed = true, quiet = false }
sweep = { batch = [32, 64] }
scales.laptop = { arguments = { dim = 64 } }
scales.tiny = { arguments = { dim = 8 }, sweep = { batch = [4] }, worlds = [2] }

[[tasks.experiments]]
id = "twice"
title = "the same once more"
program = "train.py"
worlds = [1]
arguments = { no-seed = true, batch = 32, dim = 64 }
scales.tiny.skip = "too long"

[[tasks]]
id = "2"
title = "Second"

[[tasks.experiments]]
id = "devices"
title = "devices"
program = "train.py"
kind = "process"
devices = 8
option = "A"
sweep = { devices = [2, 8] }

[[tasks.experiments]]
id = "table"
title = "table"
program = "train.py"
kind = "table"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    (tmp_path / "lab.toml").write_text(LAB)
    return tmp_path / "lab.toml"


def words(path: Path, scale: str, experiment: int = 0) -> list[tuple[int, str]]:
    lab = load_lab(path)
    chosen = lab.tasks[0].experiments[experiment]
    return [(config.world, " ".join(config.arguments)) for config in configs_of(lab, scale, chosen)]  # type: ignore[arg-type]


def test_handout_is_what_the_experiment_says(path: Path) -> None:
    assert words(path, "handout") == [
        (world, f"--batch {batch} --dim 8192 --no-seed --steps 41") for batch in (32, 64) for world in (1, 2)
    ]


def test_a_scale_changes_what_it_names_and_nothing_else(path: Path) -> None:
    assert words(path, "laptop")[0] == (1, "--batch 32 --dim 64 --no-seed --steps 31")
    assert words(path, "tiny") == [(2, "--batch 4 --dim 8 --no-seed --steps 11")]
    assert words(path, "tiny", experiment=1) == []


def test_equal_configurations_of_two_experiments_run_once(path: Path) -> None:
    assert words(path, "laptop", experiment=1)[0] in words(path, "laptop")
    (study,) = studies_for(load_lab(path), "laptop", task="1")
    assert len(study.configs) == 4
    assert (study.name, study.rounds, study.options.steps) == ("mini-laptop", 2, 20)


def test_virtual_devices_stand_in_where_the_machine_has_too_few(path: Path) -> None:
    lab = load_lab(path)
    (study,) = studies_for(lab, "tiny", task="2")
    assert (study.name, study.options.virtual_devices) == ("mini-tiny-process-virtual", 8)
    # On a machine with four real ones, eight are refused: virtual times beside real ones compare nothing.
    (study,) = studies_for(lab, "tiny", task="2", host=Host(accelerators=4))
    assert study.options.virtual_devices == 0
    assert [config.arguments[:2] for config in study.configs] == [("--devices", "2")]
    refusals = [
        planned.refusal for planned in plan(lab, "tiny", "2", host=Host(accelerators=4)) if planned.refusal
    ]
    assert refusals == ["needs 8 accelerators, this machine has 4"]


def test_homework_3_runs_on_two_real_accelerators_what_needs_two() -> None:
    planned = plan(find_lab("hw3"), "laptop", host=Host(accelerators=2))
    assert [one.refusal for one in planned if one.experiment.id in ("two-devices", "depth")] == [None] * 4
    reasons = [one.refusal for one in planned if one.experiment.id == "transfers"]
    assert reasons == [None, None, *(f"needs {n} accelerators, this machine has 2" for n in range(3, 9))]


def test_one_accelerator_is_left_alone_since_two_ranks_need_two(path: Path) -> None:
    devices = {n: studies_for(load_lab(path), "tiny", host=Host(n))[0].options.device for n in (0, 1, 2)}
    assert devices == {0: "auto", 1: "cpu", 2: "auto"}


def test_an_option_leaves_the_other_options_out(path: Path) -> None:
    assert [p.experiment.id for p in plan(load_lab(path), "tiny", "2", option="B")] == ["table"]
    assert studies_for(load_lab(path), "tiny", "2", option="B") == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "twice"', 'id = "scaling"', "two experiments have the id 'scaling'"),
        ("worlds = [1]\n", "wolrds = [1]\n", "tasks.0.experiments.1.wolrds"),
        ("scales.tiny = { steps", "scales.small = { steps", "scales.small"),
        ('kind = "process"', 'kind = "process"\nworlds = [2]', "its world is 1, found [2]"),
        ('scripts = ["train.py"]', 'scripts = ["tran.py"]', "did you mean"),
        ("page_limit = 1", "page_limit =", "lab.toml"),
    ],
)
def test_a_mistake_is_named(path: Path, old: str, new: str, message: str) -> None:
    assert old in LAB
    path.write_text(LAB.replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(message)):
        load_lab(path)


def test_an_unknown_lab_or_task_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'hw2'"):
        find_lab("hw22")
    with pytest.raises(ValueError, match="hw3 has no task '9'"):
        find_lab("hw3").task("9")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["practical7", "hw1", "hw2", "hw3"])
def test_every_lab_expands_at_every_scale(name: str, scale: str) -> None:
    assert set(find_labs()) == {"practical7", "hw1", "hw2", "hw3"}
    studies = studies_for(find_lab(name), scale)  # type: ignore[arg-type]
    assert studies
    assert len({study.name for study in studies}) == len(studies)
    for study in studies:
        if "process" in study.name:  # or its one process would get one rank's share of the cores
            assert {config.world for config in study.configs} == {1}


def test_launches_fit_the_time_that_is_promised() -> None:
    """About four seconds each at laptop and three at tiny, all four labs together."""
    launches = {
        scale: sum(
            len(study.configs) * study.rounds
            for name in find_labs()
            for study in studies_for(find_lab(name), scale)
        )
        for scale in SCALES
    }
    assert launches["laptop"] <= 180
    assert launches["tiny"] <= 56


def test_handout_has_the_constants_that_the_course_gives() -> None:
    def arguments(name: str, experiment: str) -> list[str]:
        lab = find_lab(name)
        (chosen,) = [e for task in lab.tasks for e in task.experiments if e.id == experiment]
        return [" ".join(config.arguments) for config in configs_of(lab, "handout", chosen)]

    assert all("--batch 64 --depth 2 --dim 1024" in text for text in arguments("hw1", "small"))
    assert all("--batch 64 --depth 8 --dim 8192" in text for text in arguments("hw1", "large"))
    assert all("--delay 0.01" in text for text in arguments("hw1", "delay"))
    assert all("--imbalance 0.02" in text for text in arguments("hw1", "imbalance"))
    assert [text.split()[1] for text in arguments("hw1", "batch")[::2]] == ["32", "64", "128", "256"]
    assert [text.split()[1] for text in arguments("hw2", "code1-sweep")] == ["4", "8", "16", "32"]
    assert [text.split()[3] for text in arguments("hw3", "depth")] == ["6", "12", "24"]
    assert len(arguments("hw3", "transfers")) == 8
