"""Where a line may break: not between a number and its unit, but within a name that no line holds.

In: a text. Out: the same with no-break spaces and zero-width spaces, which a reader does not see.
Exercise: `pytest tests/unit/test_report_words.py`.
"""

from __future__ import annotations

import re

BREAK, NO_BREAK = "\u200b", "\u00a0"
# Longer words are names, paths or remains of an error message; a column of a table may be as narrow.
LONG = 16

_LONG_WORD = re.compile(rf"[^\s{BREAK}]{{{LONG + 1},}}")
_PIECE = re.compile(rf"[^_/.=:,+-]{{0,{LONG - 1}}}[_/.=:,+-]+|[^_/.=:,+-]{{1,{LONG}}}")
_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]i?B|[nµm]?s|GB/s|[KMGT]iB/s|%|×)(?![^\W_]))")


def may_break(text: str) -> str:
    """After the joints of a long word, and where it has none, after every LONG letters."""
    return _LONG_WORD.sub(lambda word: BREAK.join(_PIECE.findall(word[0])), text)


def keep_units(text: str) -> str:
    """`27.0 ms` stays on one line."""
    return _UNIT.sub(NO_BREAK, text)
