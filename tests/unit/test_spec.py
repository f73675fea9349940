"""What ranks and their torchrun are told."""

import json
import os

import pytest

from paceline.placement import ALLOCATOR
from paceline.spec import build_arguments, write_specs
from paceline.study import Config, Options


def write(tmp_path, world=1, placement="tuned", **options):
    agent = write_specs(
        Config("train.py", ("--lr", "1"), world, placement), Options(**options), 1, tmp_path, True
    )
    return agent, json.loads((tmp_path / "spec.json").read_text())


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in ("OMP_NUM_THREADS", *ALLOCATOR):
        monkeypatch.delenv(name, raising=False)


def test_plain_adds_nothing_but_the_spec(tmp_path):
    agent, spec = write(tmp_path, placement="plain")
    assert (spec["cores"], spec["added_environment"]) == ([], [])
    assert not agent["environment"].keys() & {"OMP_NUM_THREADS", *ALLOCATOR}
    assert agent["environment"]["PACELINE_SPEC"] == str(tmp_path / "spec.json")


def test_a_script_does_not_see_what_tuning_added(tmp_path):
    agent, spec = write(tmp_path)
    assert spec["added_environment"] == sorted(["OMP_NUM_THREADS", *ALLOCATOR])
    assert agent["environment"]["OMP_NUM_THREADS"] == "1"
    # torchrun would set the threads of several ranks, so they may be seen then.
    assert write(tmp_path, world=2)[1]["added_environment"] == sorted(ALLOCATOR)


def test_what_the_user_set_is_not_taken_from_the_script(tmp_path, monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    agent, spec = write(tmp_path)
    assert agent["environment"]["MALLOC_MMAP_MAX_"] == "7"
    assert agent["environment"]["OMP_NUM_THREADS"] == "1"  # as many as the rank has cores
    assert not {"MALLOC_MMAP_MAX_", "OMP_NUM_THREADS"} & set(spec["added_environment"])


def test_virtual_devices_are_passed_on(tmp_path):
    assert write(tmp_path)[1]["virtual"] is None
    spec = write(tmp_path, virtual_devices=4, virtual_memory="8GiB")[1]
    assert spec["virtual"] == {"devices": 4, "memory": "8GiB", "link": None, "as_cuda": False}


def test_one_machine_stands_alone_several_meet(tmp_path):
    config = Config("train.py", ("--lr", "1"), 2, "plain")
    alone = build_arguments(config, Options(), tmp_path, True)
    assert alone[0] == "--standalone"
    assert alone[-6:] == ["-m", "--", "paceline.worker", "train.py", "--lr", "1"]
    two = Options(nnodes="2", rdzv_endpoint="a:29400", rdzv_conf="is_host=true", local_addr="10.0.0.1")
    several = build_arguments(config, two, tmp_path, False)
    assert several[:4] == ["--nnodes", "2", "--rdzv-backend", "c10d"]
    assert several[several.index("--rdzv-endpoint") + 1] == "a:29400"
    assert several[several.index("--rdzv-conf") + 1] == "is_host=true"
    assert "paceline.worker" not in several


def test_only_nodes_that_do_the_same_run_meet(tmp_path):
    def meeting(world, round, **options):
        config = Config("train.py", ("--lr", "1"), world, "plain")
        options = Options(nnodes="2", rdzv_endpoint="a:29400", **options)
        arguments = build_arguments(config, options, tmp_path, True, round)
        return arguments[arguments.index("--rdzv-id") + 1]

    assert meeting(1, 1) == meeting(1, 1, timeout_s=20)
    assert len({meeting(1, 1), meeting(2, 1), meeting(1, 2)}) == 3
    assert meeting(1, 1, rdzv_id="job7").startswith("job7-")


def test_hidden_accelerators_stay_hidden_from_the_script(tmp_path):
    for hiding in ({"device": "cpu"}, {"virtual_devices": 2}):
        agent, spec = write(tmp_path, **hiding)
        assert agent["environment"]["CUDA_VISIBLE_DEVICES"] == ""
        assert "CUDA_VISIBLE_DEVICES" not in spec["added_environment"]  # torch may ask at any later time
    assert "CUDA_VISIBLE_DEVICES" not in write(tmp_path)[0]["environment"].keys() - set(os.environ)
