"""docs/check.md names every check, script and observation, and nothing that is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from paceline.check.check import FileReport, as_json
from paceline.check.scripts import CHECKS, LABS, SCRIPTS
from paceline.check.verdicts.verdict import Verdict

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "check.md").read_text()


def section(title: str) -> str:
    return DOC.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_check_has_its_row() -> None:
    assert re.findall(r"^\| `(\w+)` \|", section("The checks"), re.MULTILINE) == list(CHECKS)


def test_every_script_of_every_lab_is_named() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", section("What runs, and how"), re.MULTILINE)
    named = {lab: set[str]() for lab in LABS}
    for lab, scripts in rows:
        named[lab] |= set(re.findall(r"`(\w+)`", scripts))
    assert named == {lab: set(scripts) for lab, scripts in LABS.items()}
    assert set(SCRIPTS) == set.union(*named.values())


def test_every_observation_is_listed() -> None:
    written = set()
    for path in (ROOT / "paceline" / "check").rglob("*.py"):
        source = path.read_text()
        written |= set(re.findall(r'(?:write|write_last|noted)\(\s*"(\w+)"', source))
    written |= {"group", "wrapped"}  # named in a table
    assert written == set(re.findall(r"`(\w+)`", section("Observations")))


def test_the_json_example_has_the_keys_that_are_written() -> None:
    example = json.loads(section("JSON").partition("```json\n")[2].partition("```")[0])
    real = as_json([FileReport("a.py", "hw2", SCRIPTS["both"], {"run": Verdict("pass", "")}, 1.0)])
    assert example.keys() == real.keys()
    assert example["files"][0].keys() == real["files"][0].keys()
    assert example["files"][0]["checks"][0].keys() == real["files"][0]["checks"][0].keys()
