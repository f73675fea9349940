"""A formula as SVG, for pages: Typst sets it as in the PDF, and it takes the colour of the text around it.

In: Typst's notation for mathematics. Out: an inline SVG. Only this file and pdf.py import typst.
Exercise: `pytest tests/unit/test_report_html.py -k formula`.
"""

from __future__ import annotations

import re
from types import ModuleType

from paceline.report.drawing import ASSETS, MissingPackage


def load_typst() -> ModuleType:
    try:
        import typst
    except ImportError:
        raise MissingPackage("typst", "setting report.pdf") from None
    module: ModuleType = typst
    return module


def draw_formula(math: str) -> str:
    typst = load_typst()
    try:
        svg: str = typst.compile(
            ASSETS / "formula.typ",
            root=ASSETS,
            format="svg",
            sys_inputs={"math": math},
            ignore_system_fonts=True,
        ).decode()
    except RuntimeError as error:
        raise ValueError(f"the formula {math!r} is not in Typst's notation: {error}") from None
    return re.sub(r'(fill|stroke)="#000(?:000)?"', r'\1="currentColor"', svg)
