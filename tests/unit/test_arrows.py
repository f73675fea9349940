"""The imports of the package, read from its source, keep to the arrows of the design.

Ranks import torch and the standard library alone; what derives numbers never imports torch; nothing imports
what stands above it. Imports inside functions and under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "paceline"

# From the program's face down to the schema. A room imports only from rooms that stand below it.
FLOORS = (
    ("__main__",),
    ("cli",),
    ("labs",),
    ("report",),
    ("explain",),
    ("measure", "findings", "check"),
    ("launch", "analyse", "store", "selection"),
    ("outcome", "run_key", "spec", "torchrun", "agent", "worker", "store_file", "study_file"),
    ("world", "ingest", "placement", "probe", "study", "virtual"),
    ("machine", "processes", "step_file", "toml_positions"),
    ("record", "quantity", "nearest", "darwin", "stacks", "first_import", "__init__"),
)

TORCH_FREE = frozenset({
    "analyse", "explain", "findings", "ingest", "labs", "launch", "machine", "measure", "outcome",
    "record", "report", "run_key", "selection", "store", "store_file", "study", "study_file",
})  # fmt: skip

# What a rank imports, and what that may import besides torch and the standard library.
IN_RANKS = {
    "worker": {"first_import", "probe", "processes", "record", "stacks", "virtual", "__init__"},
    "virtual": {"record", "quantity", "__init__"},
    "probe": {"probe", "record", "step_file", "__init__"},
    "step_file": {"record"},
    "processes": set(),
    "record": set(),
    "stacks": set(),
    "first_import": set(),
    "__init__": set(),
}

# What turns runs into conclusions stands on the record alone: a store is enough to repeat it.
DERIVED = {
    "analyse": {"record"},
    "findings": {"analyse", "record", "quantity"},
    "explain": {"analyse", "findings", "record"},
    "store": {"store_file", "record", "nearest"},
}


def read_imports(package: Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Room → rooms of the package that it imports; room → other top-level modules that it imports."""
    inner: dict[str, set[str]] = defaultdict(set)
    outer: dict[str, set[str]] = defaultdict(set)
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports hide where an arrow points"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                first, _, rest = name.partition(".")
                if first != package.name:
                    outer[room].add(first)
                    continue
                second = rest.split(".")[0]
                places = (package / second, package / f"{second}.py")
                is_room = bool(second) and any(place.exists() for place in places)
                inner[room].add(second if is_room else "__init__")
    return inner, outer


INNER, OUTER = read_imports(PACKAGE)
ROOMS = sorted({*INNER, *OUTER})


@pytest.mark.parametrize("room", sorted(TORCH_FREE & set(ROOMS)))
def test_torch_is_not_imported_by_what_derives(room: str) -> None:
    seen, left = set(), [room]
    while left:
        current = left.pop()
        assert "torch" not in OUTER[current], f"{room} imports torch by way of {current}"
        seen.add(current)
        left += INNER[current] - seen


@pytest.mark.parametrize("room", sorted(set(IN_RANKS) & set(ROOMS)))
def test_ranks_import_torch_and_the_standard_library_alone(room: str) -> None:
    assert OUTER[room] <= {"torch", *sys.stdlib_module_names}
    assert INNER[room] <= IN_RANKS[room] | {room}


@pytest.mark.parametrize("room", sorted(DERIVED))
def test_conclusions_stand_on_the_record_alone(room: str) -> None:
    assert INNER[room] <= DERIVED[room] | {room}


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_imports_what_stands_above_it(room: str) -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    assert room in floor, f"say in FLOORS where paceline/{room} stands"
    upwards = {other for other in INNER[room] - {room} if floor[other] <= floor[room]}
    assert not upwards, f"{room} imports {upwards}, which stand above or beside it"


def test_the_reader_of_imports_sees_what_it_should(tmp_path: Path) -> None:
    package = tmp_path / "paceline"
    (package / "analyse").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "store.py").write_text("import numpy as np\nfrom paceline import analyse, mark_step\n")
    (package / "analyse" / "a.py").write_text(
        "def f():\n    from torch import nn\n    import paceline.store\n"
    )
    inner, outer = read_imports(package)
    assert inner == {"store": {"analyse", "__init__"}, "analyse": {"store"}}
    assert outer == {"store": {"numpy"}, "analyse": {"torch"}}
