"""What runs: combinations, what is impossible, and the key that resume rests on."""

import dataclasses
import math

import pytest

from paceline.nearest import nearest_of
from paceline.run_key import hash_script, run_key
from paceline.study import (
    Config,
    Options,
    Study,
    build_study,
    check_name,
    default_name,
    expand,
    parse_sweeps,
)


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    return "train.py"


def test_sweeps_multiply_and_are_appended(script):
    configs = expand(
        script, ["--dim", "8"], [1, 2], {"accum-steps": ["4", "8"], "lr": ["0.1", "0.2"]}, ["tuned"]
    )
    assert len(configs) == 8
    assert configs[0] == Config(script, ("--dim", "8", "--accum-steps", "4", "--lr", "0.1"), 1, "tuned")
    assert {config.arguments[3:] for config in configs} == {
        ("4", "--lr", "0.1"),
        ("4", "--lr", "0.2"),
        ("8", "--lr", "0.1"),
        ("8", "--lr", "0.2"),
    }


def test_placements_and_worlds_multiply_and_repeats_count_once(script):
    configs = expand(script, [], [1, 2, 2], {}, ["plain", "tuned"])
    assert [(c.placement, c.world) for c in configs] == [
        ("plain", 1),
        ("plain", 2),
        ("tuned", 1),
        ("tuned", 2),
    ]


@pytest.mark.parametrize(
    ("worlds", "sweeps", "placements", "said"),
    [
        ([0], {}, ["tuned"], "the least is 1"),
        ([1], {}, ["tunde"], "did you mean 'tuned'"),
        ([1], {"lr": []}, ["tuned"], "has no values; try lr=4,8"),
    ],
)
def test_impossible_combinations_name_the_nearest(script, worlds, sweeps, placements, said):
    with pytest.raises(ValueError, match=said):
        expand(script, [], worlds, sweeps, placements)


def test_a_missing_script_names_the_nearest(script):
    with pytest.raises(ValueError, match=r"there is no file trian.py; did you mean train.py\?"):
        expand("trian.py", [], [1], {}, ["tuned"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 2}, "at least 3"),
        ({"warmup": 0}, "the least is 1"),
        ({"sampled": -1}, "the least is 0"),
        ({"timeout_s": 0.0}, "try 300s"),
        ({"timeout_s": math.nan}, "try 300s"),
        ({"step_marker": ""}, "marks no step"),
        ({"device": "cuda"}, "did you mean 'cpu'"),
        ({"nnodes": "two"}, "not a number of nodes"),
        ({"nnodes": "2"}, "rdzv-endpoint"),
        ({"virtual_memory": "8GiB"}, "needs virtual N"),
        ({"virtual_devices": 2, "virtual_memory": "lots"}, "such as 8GiB"),
        ({"virtual_devices": 2, "virtual_link": "fast"}, "such as 12GB/s"),
    ],
)
def test_impossible_options_say_what_would_work(options, said):
    with pytest.raises(ValueError, match=said):
        Options(**options)


def test_rounds_and_until_exclude_each_other(script):
    configs = expand(script, [], [1], {}, ["tuned"])
    with pytest.raises(ValueError, match="exclude each other"):
        build_study(configs, rounds=2, until=0.03, options=Options())
    study = build_study(configs, until=0.03, options=Options())
    assert (study.rounds, study.budget_s) == (0, 600.0)
    with pytest.raises(ValueError, match="the least is 1"):
        Study("s", configs, rounds=0)


def test_several_nodes_do_a_fixed_number_of_rounds(script):
    configs = expand(script, [], [1], {}, ["tuned"])
    nodes = Options(nnodes="2", rdzv_endpoint="a:29400")
    assert build_study(configs, rounds=2, options=nodes).rounds == 2
    with pytest.raises(ValueError, match="until is for one node"):
        build_study(configs, until=0.03, options=nodes)
    with pytest.raises(ValueError, match="budget is for one node"):
        build_study(configs, rounds=2, budget_s=60, options=nodes)


def test_sweeps_are_read_from_the_command_line():
    assert parse_sweeps(["accum-steps=4,8", "--lr=0.1"]) == {"accum-steps": ["4", "8"], "lr": ["0.1"]}
    with pytest.raises(ValueError, match="NAME=VALUE,VALUE"):
        parse_sweeps(["accum-steps"])
    with pytest.raises(ValueError, match="swept twice"):
        parse_sweeps(["lr=1", "lr=2"])


def test_names_are_fit_for_paths():
    assert default_name("scripts/train me.py") == "train-me"
    with pytest.raises(ValueError, match="try 'b'"):
        check_name("a/b")


def test_the_key_is_stable_and_says_what_decides(script):
    config, options = Config(script, ("--lr", "0.1"), 2, "tuned"), Options()
    key = run_key(config, options, 1, "abc", cores_per_rank=1, torch_version="2.13")
    # Written out: a key that changes makes every store start again.
    assert key == "f5dd6d07e836ca73e62d9301a486202e"
    assert key == run_key(
        config, dataclasses.replace(options, timeout_s=10), 1, "abc", cores_per_rank=1, torch_version="2.13"
    )
    others = [
        run_key(
            dataclasses.replace(config, world=1), options, 1, "abc", cores_per_rank=1, torch_version="2.13"
        ),
        run_key(
            dataclasses.replace(config, arguments=("--lr", "0.2")),
            options,
            1,
            "abc",
            cores_per_rank=1,
            torch_version="2.13",
        ),
        run_key(
            dataclasses.replace(config, placement="plain"),
            options,
            1,
            "abc",
            cores_per_rank=1,
            torch_version="2.13",
        ),
        run_key(config, Options(steps=31), 1, "abc", cores_per_rank=1, torch_version="2.13"),
        run_key(config, options, 2, "abc", cores_per_rank=1, torch_version="2.13"),
        run_key(config, options, 1, "abd", cores_per_rank=1, torch_version="2.13"),
        run_key(config, options, 1, "abc", cores_per_rank=2, torch_version="2.13"),
        run_key(config, options, 1, "abc", cores_per_rank=1, torch_version="2.12"),
        run_key(config, options, 1, "abc", cores_per_rank=1, torch_version="2.13", machine="another"),
    ]
    assert len({key, *others}) == 10


def test_the_script_hash_follows_its_content(script, tmp_path):
    before = hash_script(script)
    (tmp_path / "train.py").write_text("print('other')\n")
    assert hash_script(script) != before


def test_nearest():
    assert nearest_of("stesp", ["steps", "warmup"]) == "did you mean 'steps'?"
    assert nearest_of("xyz", ["steps", "warmup"]) == "it is one of steps, warmup"
