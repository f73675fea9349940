"""A study written down in TOML: every mistake is found at once and shown where it stands.

In: the path of a file. Out: a `Study`, or a ValueError with file, line, column and the nearest thing
that works for each mistake. The format is described in docs/study-files.md.
Exercise: `pytest tests/unit/test_study_file.py`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from paceline import study
from paceline.nearest import find_program, nearest_of
from paceline.quantity import parse_bytes, parse_duration_s, parse_link, parse_share
from paceline.toml_positions import Positions, Span, locate

# Names of the command line and of torchrun that people carry over; too different to be guessed.
_OTHER_NAMES = {
    "nproc": "worlds",
    "script": "program",
    "args": "arguments",
    "study": "name",
    "sweeps": "sweep",
}


def _as_list(value: object) -> object:
    return value if isinstance(value, list | dict) else [value]


def _as_text(value: object) -> object:
    """A value of a sweep as it will stand on the script's command line."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"a sweep's values are numbers or texts, found {_describe(value)}")
    return str(value)


def _as_seconds(value: object) -> object:
    return parse_duration_s(value) if isinstance(value, str) else value


def _as_share(value: object) -> object:
    return parse_share(value if isinstance(value, str) else f"{value}") if _is_scalar(value) else value


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _as_nnodes(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check_values(values: list[str]) -> list[str]:
    if not values:
        raise ValueError("a sweep needs at least one value, such as [4, 8]")
    return values


def _check_worlds(worlds: list[int]) -> list[int]:
    if not worlds:
        raise ValueError("a study needs at least one world, such as [1, 2]")
    return worlds


def _check_placements(placements: list[str]) -> list[str]:
    if not placements:
        raise ValueError('a study needs at least one placement, such as ["tuned"]')
    return placements


def _check_size(text: str) -> str:
    parse_bytes(text)
    return text


def _check_link(text: str) -> str:
    parse_link(text)
    return text


_Count = Annotated[int, AfterValidator(study.check_count)]
_Duration = Annotated[float, BeforeValidator(_as_seconds), AfterValidator(study.check_duration)]
_Values = Annotated[
    list[Annotated[str, BeforeValidator(_as_text)]], BeforeValidator(_as_list), AfterValidator(_check_values)
]
_Worlds = Annotated[
    list[Annotated[int, AfterValidator(study.check_world)]],
    BeforeValidator(_as_list),
    AfterValidator(_check_worlds),
]
_Placements = Annotated[
    list[Annotated[str, AfterValidator(study.check_placement)]],
    BeforeValidator(_as_list),
    AfterValidator(_check_placements),
]


class _OptionKeys(BaseModel):
    """The keys that become `Options`; each is named as on the command line."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=study.option_name)

    steps: Annotated[int, AfterValidator(study.check_steps)] | None = None
    warmup: Annotated[int, AfterValidator(study.check_warmup)] | None = None
    sampled: _Count | None = None
    to_end: bool | None = None
    step_marker: Annotated[str, AfterValidator(study.check_step_marker)] | None = None
    timeout_s: _Duration | None = None
    device: Annotated[str, AfterValidator(study.check_device)] | None = None
    virtual_devices: _Count | None = None
    virtual_memory: Annotated[str, AfterValidator(_check_size)] | None = None
    virtual_link: Annotated[str, AfterValidator(_check_link)] | None = None
    virtual_as_cuda: bool | None = None
    nnodes: Annotated[str, BeforeValidator(_as_nnodes), AfterValidator(study.check_nnodes)] | None = None
    node_rank: _Count | None = None
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: str | None = None
    local_addr: str | None = None


class _StudyKeys(_OptionKeys):
    """All keys of a study file."""

    program: str
    arguments: list[Annotated[str, BeforeValidator(_as_text)]] = []
    worlds: _Worlds = [1]
    placement: _Placements = ["tuned"]
    sweep: dict[str, _Values] = {}
    name: Annotated[str, AfterValidator(study.check_name)] | None = None
    rounds: Annotated[int, AfterValidator(study.check_rounds)] | None = None
    until: Annotated[float, BeforeValidator(_as_share)] | None = None
    budget_s: _Duration | None = None


@dataclass(frozen=True)
class _Mistake:
    span: Span
    text: str

    def show(self, path: Path, lines: list[str]) -> str:
        head = f"{path}:{self.span.line}:{self.span.column}: {self.text}"
        if self.span.line > len(lines):
            return head
        source = lines[self.span.line - 1].replace("\t", " ")
        margin = f"{self.span.line:>5}"
        caret = " " * (self.span.column - 1) + "^" * self.span.width
        return f"{head}\n{margin} | {source}\n{'':>5} | {caret}"


def load_study(path: str | Path) -> study.Study:
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            "is not UTF-8 text"
            if isinstance(error, UnicodeDecodeError)
            else f"cannot be read: {error.strerror}"
        )
        raise ValueError(f"the study file {path} {reason}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _report(path, text, [_of_syntax(str(error), text)]) from error
    positions = locate(text)
    mistakes = [
        _Mistake(positions.of_key((study.option_name(name),)), message)
        for name, message in study.find_conflicts(_given(document))
    ]
    keys = None
    try:
        keys = _StudyKeys.model_validate(document)
    except ValidationError as error:
        mistakes += [_of_pydantic(details, positions) for details in error.errors()]
    program = str(path.parent / str(document.get("program", "")))
    if isinstance(document.get("program"), str):
        try:
            find_program(program)
        except ValueError as error:
            mistakes.append(_Mistake(positions.of_value(("program",)), str(error)))
    if mistakes or keys is None:
        raise _report(path, text, mistakes)
    return study.build_study(
        study.expand(program, keys.arguments, keys.worlds, keys.sweep, keys.placement),
        name=keys.name or study.default_name(str(path)),
        rounds=keys.rounds,
        until=keys.until,
        budget_s=keys.budget_s,
        options=study.Options(**keys.model_dump(include=set(_OptionKeys.model_fields), exclude_unset=True)),
    )


def _given(document: dict[str, Any]) -> set[str]:
    fields = {study.option_name(name): name for name in _StudyKeys.model_fields}
    # What is switched off cannot conflict, and one node needs no meeting point.
    return {
        fields[key]
        for key, value in document.items()
        if key in fields and value and not (key == "nnodes" and str(value) == "1")
    }


def _report(path: Path, text: str, mistakes: Iterable[_Mistake]) -> ValueError:
    lines = text.splitlines()
    shown = [
        mistake.show(path, lines) for mistake in sorted(mistakes, key=lambda m: (m.span.line, m.span.column))
    ]
    count = "one mistake" if len(shown) == 1 else f"{len(shown)} mistakes"
    return ValueError("\n\n".join([f"{path} has {count}", *shown]))


def _of_syntax(message: str, text: str) -> _Mistake:
    """tomllib says where only in words."""
    place = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    what = re.sub(r" \(at [^)]*\)$", "", message)
    if place:
        return _Mistake(Span(int(place[1]), int(place[2]), 1), what)
    lines = text.splitlines() or [""]
    return _Mistake(Span(len(lines), len(lines[-1]) + 1, 1), f"{what} at the end of the file")


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "list_type": "a list",
    "dict_type": "a table",
}


def _describe(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    kinds = {str: "the text", list: "a list", dict: "a table"}
    kind = next((name for of, name in kinds.items() if isinstance(value, of)), "")
    if isinstance(value, str):
        return f'{kind} "{value}"'
    return kind or str(value)


def _of_pydantic(details: ErrorDetails, positions: Positions) -> _Mistake:
    path = tuple(details["loc"])
    kind, found = details["type"], details["input"]
    if kind == "missing":
        return _Mistake(Span(1, 1, 1), f'the key {path[-1]} is missing, such as {path[-1]} = "train.py"')
    if kind == "extra_forbidden":
        return _Mistake(positions.of_key(path), _unknown(str(path[-1])))
    if kind == "value_error":
        return _Mistake(positions.of_value(path), str(details["ctx"]["error"]))
    wanted = _WANTED.get(kind, details["msg"])
    name = next(str(part) for part in reversed(path) if isinstance(part, str))
    unquoted = isinstance(found, str) and kind in ("int_type", "float_type") and re.fullmatch(r"-?\d+", found)
    text = f"{name} must be {wanted}, found {_describe(found)}" + (f"; write {found}" if unquoted else "")
    return _Mistake(positions.of_value(path), text)


def _unknown(key: str) -> str:
    valid = [study.option_name(name) for name in _StudyKeys.model_fields]
    # An exact word for another word first, then `to_end` for `to-end`, then a slip of the fingers.
    other = _OTHER_NAMES.get(key) or next((name for name in valid if name == key.replace("_", "-")), None)
    return f"unknown key {key!r}; " + (f"did you mean {other!r}?" if other else nearest_of(key, valid))
