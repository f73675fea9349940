"""Where in a TOML text each key and each value stands, which `tomllib` does not tell.

In: a text that `tomllib` has accepted; so this reader may be lenient. Out: line and column per path.
Exercise: `pytest tests/unit/test_study_file.py -k position`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field

Path = tuple[str | int, ...]

# A string of one of four kinds, the long ones first; escapes end no string.
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'", re.DOTALL
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]+")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


@dataclass(frozen=True)
class Span:
    """A stretch of one line; line and column count from 1."""

    line: int
    column: int
    width: int


@dataclass
class Positions:
    """Of every path: the last part of its key, and its value (for a table: its header)."""

    keys: dict[Path, Span] = field(default_factory=dict)
    values: dict[Path, Span] = field(default_factory=dict)

    def of_key(self, path: Path) -> Span:
        return self._nearest(path, (self.keys, self.values))

    def of_value(self, path: Path) -> Span:
        return self._nearest(path, (self.values, self.keys))

    def _nearest(self, path: Path, tables: tuple[dict[Path, Span], ...]) -> Span:
        """A missing key has no place of its own: the table that lacks it has."""
        for length in range(len(path), 0, -1):
            for table in tables:
                if path[:length] in table:
                    return table[path[:length]]
        return Span(1, 1, 1)


def locate(text: str) -> Positions:
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.found = Positions()
        self.num_tables: dict[Path, int] = {}  # per array of tables, how many were opened

    def read(self) -> Positions:
        table: Path = ()
        self.skip_blank()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self.read_header()
            else:
                self.read_pair(table)
            self.skip_blank()
        return self.found

    def skip_blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def span(self, start: int, end: int) -> Span:
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", start)
        end = min(end, line_end if line_end >= 0 else len(self.text))
        return Span(self.text.count("\n", 0, start) + 1, start - line_start + 1, max(1, end - start))

    def read_header(self) -> Path:
        start = self.at
        is_array = self.text.startswith("[[", start)
        self.at += 1 + is_array
        path: Path = ()
        for name, _, _ in self.read_key():
            path = self.in_last_table((*path, name))
        self.at += 1 + is_array
        if is_array:
            # `read_key` led into the last table of this array; a new one opens beside it.
            array = path[:-1] if path and isinstance(path[-1], int) else path
            self.found.keys.setdefault(array, self.span(start, self.at))
            path = (*array, self.num_tables.get(array, 0))
            self.num_tables[array] = self.num_tables.get(array, 0) + 1
        self.found.keys[path] = self.found.values[path] = self.span(start, self.at)
        return path

    def in_last_table(self, path: Path) -> Path:
        return (*path, self.num_tables[path] - 1) if path in self.num_tables else path

    def read_key(self) -> list[tuple[str, int, int]]:
        """A key, dotted or not: each part with where it starts and ends."""
        parts = []
        while True:
            self.skip_blank()
            start = self.at
            if quoted := _STRING.match(self.text, start):
                self.at = quoted.end()
                parts.append((str(tomllib.loads(f"key = {quoted[0]}")["key"]), start, self.at))
            else:
                bare = _BARE_KEY.match(self.text, start)
                assert bare is not None, f"no key at {start}"
                self.at = bare.end()
                parts.append((bare[0], start, self.at))
            self.skip_blank()
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def read_pair(self, table: Path) -> None:
        path = table
        for name, start, end in self.read_key():
            path = (*path, name)
            self.found.keys.setdefault(path, self.span(start, end))
        self.at += 1  # the equals sign
        self.read_value(path)

    def read_value(self, path: Path) -> None:
        self.skip_blank()
        start = self.at
        if self.text[start] == "[":
            self.read_list("]", path)
        elif self.text[start] == "{":
            self.read_list("}", path)
        else:
            scalar = _STRING.match(self.text, start) or _BARE_VALUE.match(self.text, start)
            assert scalar is not None, f"no value at {start}"
            self.at = start + len(scalar[0].rstrip())
        self.found.values[path] = self.span(start, self.at)

    def read_list(self, closing: str, path: Path) -> None:
        """The elements of an array, or the pairs of an inline table."""
        self.at += 1
        index = 0
        self.skip_blank()
        while self.text[self.at] != closing:
            if closing == "]":
                self.read_value((*path, index))
            else:
                self.read_pair(path)
            index += 1
            self.skip_blank()
            if self.text[self.at] == ",":
                self.at += 1
                self.skip_blank()
        self.at += 1
