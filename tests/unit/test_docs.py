"""The documentation and the program say the same: commands, options, keys of study files, links."""

import re
from pathlib import Path

import pytest
import typer

from paceline.cli import app
from paceline.study import option_name
from paceline.study_file import _StudyKeys

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)(?![\w-])")


def flatten(group, prefix: str = "") -> dict:
    """`paceline lab run` is the command "lab run"."""
    return {
        name: command
        for first, below in group.commands.items()
        for name, command in (
            flatten(below, f"{prefix}{first} ") if hasattr(below, "commands") else {prefix + first: below}
        ).items()
    }


COMMANDS = flatten(typer.main.get_command(app))


def sections() -> dict[str, str]:
    """The text below each `## paceline NAME` of every page."""
    found = {}
    for page in DOCS.glob("*.md"):
        parts = re.split(r"^## paceline ([a-z ]+)$", page.read_text(), flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            found[name] = re.split(r"^## ", text, flags=re.MULTILINE)[0]
    return found


def options_of(command) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("-") and name != "--help"
    }


def options_in(text: str) -> set[str]:
    """Options in code: `--steps 30`; those of other programs stand in sentences that name them."""
    code = " ".join(re.findall(r"`([^`\n]+)`", text))
    return {name for name in OPTION.findall(code) if name not in ("--NAME",)}


def test_every_command_has_a_section_and_every_section_a_command():
    assert set(sections()) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_every_documented_option_exists(name):
    documented, existing = options_in(sections()[name]), options_of(COMMANDS[name])
    assert existing - documented == set(), "not documented"
    elsewhere = {option for command in COMMANDS.values() for option in options_of(command)}
    assert documented - elsewhere == set(), "no such option"
    in_tables = options_in(" ".join(re.findall(r"^\| (`.+?) \|", sections()[name], flags=re.MULTILINE)))
    assert in_tables - existing == set(), "options of another command"


def test_every_command_has_a_help_text_for_each_option():
    missing = [
        (name, parameter.name)
        for name, command in COMMANDS.items()
        for parameter in command.params
        if not getattr(parameter, "help", None) and parameter.name != "help"
    ]
    assert missing == []


def test_the_keys_of_study_files_are_documented():
    rows = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "study-files.md").read_text(), flags=re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == {option_name(name) for name in _StudyKeys.model_fields}


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), ROOT / "README.md"]), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_index_names_every_page():
    listed = re.findall(r"\]\(([^)]+\.md)\)", (DOCS / "index.md").read_text())
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md") if page.name != "index.md")


def test_commands_in_the_readme_exist():
    text = (ROOT / "README.md").read_text()
    used = set(re.findall(r"^\s*paceline ([a-z]+)", text, flags=re.MULTILINE))
    assert used <= {name.split()[0] for name in COMMANDS}
    assert options_in(text) <= {option for command in COMMANDS.values() for option in options_of(command)}
