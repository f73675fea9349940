"""What the labs' scripts promise to their readers: stand-alone, short, and Code 3 is Code 1 and AMP."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

LABS = Path(__file__).parents[2] / "labs"
SCRIPTS = sorted(LABS.glob("*/*.py"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code_of(path: Path) -> list[str]:
    """The lines below the docstring, without indentation."""
    _, _, code = path.read_text().split('"""', 2)
    return [line.strip() for line in code.splitlines()]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_needs_torch_alone_and_says_how_to_launch_it(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    } | {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names | {"torch"}
    assert path.name in (ast.get_docstring(tree) or "")
    assert len(path.read_text().splitlines()) <= 132


def test_code_3_differs_from_code_1_by_the_amp_lines_alone() -> None:
    old, new = (
        code_of(LABS / "practical7" / "practical7_accumulation.py"),
        code_of(LABS / "hw2" / "practical5_single.py"),
    )
    changes = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
    assert [line[2:] for line in changes if line[0] == "-"] == ["loss.backward()", "optimizer.step()"]
    amp = ("precision", "PRECISION", "dtype", "mixed", "scaler")
    assert [line for line in changes if line[0] == "+" and not any(word in line for word in amp)] == []


def test_layers_are_spread_evenly_whatever_the_depth_and_the_count() -> None:
    split_layers = load(LABS / "hw3" / "model_parallel_dynamic.py").split_layers
    for depth in range(1, 41):
        for num_devices in range(1, 13):
            device_of_layer = split_layers(depth, num_devices)
            counts = [device_of_layer.count(device) for device in range(num_devices)]
            assert device_of_layer == sorted(device_of_layer), "neighbours share a device"
            assert sum(counts) == len(device_of_layer) == depth
            assert max(counts) - min(counts) <= 1
            assert counts == sorted(counts, reverse=True), "the first devices take the remainder"
    assert split_layers(20, 5) == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert split_layers(2, 3) == [0, 1]


def test_the_cut_model_computes_what_the_whole_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    cut = load(LABS / "hw3" / "model_parallel.py").LargeLinearModelMP
    torch.manual_seed(0)
    model = cut(8, 5, [torch.device("cpu"), torch.device("meta")])
    assert [device.type for device in model.layer_devices] == ["cpu"] * 2 + ["meta"] * 3
    model.trace = True
    assert model(torch.zeros(3, 8)).device.type == "meta"
    assert capsys.readouterr().out == "before layer 2: x (3, 8) moves from cpu to meta\n"

    model = cut(8, 5, [torch.device("cpu")] * 2)
    x = expected = torch.randn(3, 8)
    for layer in model.layers:
        expected = torch.relu(layer(expected))
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("name", ["hw1/dataparallel_benchmark.py", "hw3/model_parallel.py"])
@pytest.mark.skipif(torch.accelerator.is_available(), reason="there are accelerators here")
def test_without_accelerators_it_says_what_it_needs(name: str) -> None:
    done = subprocess.run([sys.executable, LABS / name], capture_output=True, text=True)
    assert done.returncode == 1
    assert "accelerators, the machine has 0" in done.stderr
    assert "paceline run --virtual" in done.stderr
    assert "Traceback" not in done.stderr


def test_loss_scaling_saves_gradients_from_zero_until_it_overflows(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    script = LABS / "practical7" / "practical7_underflow.py"
    subprocess.run([sys.executable, script, "--json-out", table], check=True, capture_output=True)
    by_scale = {row["scale"]: row for row in json.loads(table.read_text())}
    assert by_scale[1.0]["underflow_share"] > 0.2
    assert by_scale[65536.0]["underflow_share"] < 1e-4
    assert by_scale[65536.0]["overflow_share"] == 0
    assert by_scale[2.0**32]["overflow_share"] > 0.5


@pytest.mark.parametrize("path", [p for p in SCRIPTS if "start_rank" in p.read_text()], ids=lambda p: p.name)
def test_ranks_that_outnumber_the_accelerators_take_the_cpu(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun --nproc_per_node=2 on a laptop with one GPU: there is no second one to take."""
    only = torch.device("cuda", 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: only)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in (environment | {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}).items():
        monkeypatch.setenv(name, value)
    module = load(path)
    try:
        assert module.start_rank() == torch.device("cpu")
        assert torch.distributed.get_backend() == "gloo"
    finally:
        torch.distributed.destroy_process_group()
    assert getattr(module, "PRECISION", None) is None, "what precision is left open follows the device"
