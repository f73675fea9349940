"""What the scripts themselves say: which device gets which layer, and the lines that do it.

In: a script of the lab. Out: pieces of its source, and its own rule applied; torch is not loaded, and no
other line of it is run. Exercise: `pytest tests/unit/test_lab_answers_hw3.py -k script`.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

MODEL = "LargeLinearModelMP"


def find_function(script: Path, name: str) -> tuple[str, int]:
    """The source of a function or of a method of the model, and the number of its first line."""
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text)
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == MODEL)
    for node in [*tree.body, *model.body]:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            source = ast.get_source_segment(text, node, padded=True) or ""
            return textwrap.dedent(source), node.lineno
    raise ValueError(f"{script} has no function {name}; the answers show it")


def find_line(script: Path, beginning: str) -> tuple[int, str]:
    """The first line that begins so: its number, and the code without its comment."""
    for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip().startswith(beginning):
            return number, line.split("#")[0].strip()
    raise ValueError(f"{script} has no line that begins with {beginning!r}; the answers point at it")


def split_in_two(script: Path, depth: int) -> list[int]:
    """The device of each layer, by the condition that stands in the model's __init__."""
    source, _ = find_function(script, "__init__")
    condition = next(node.test for node in ast.walk(ast.parse(source)) if isinstance(node, ast.If))
    first = compile(ast.Expression(condition), script.name, "eval")
    return [0 if eval(first, {"i": layer, "depth": depth}) else 1 for layer in range(depth)]


def split_layers(script: Path, depth: int, num_devices: int) -> list[int]:
    """The device of each layer, by the script's own function."""
    source, _ = find_function(script, "split_layers")
    names: dict[str, object] = {}
    exec(compile(source, script.name, "exec"), names)
    split = names["split_layers"]
    assert callable(split)
    return list(split(depth, num_devices))
