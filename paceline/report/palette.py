"""Colours of every figure: for white paper, for a dark screen, and told apart in grey.

In: an SVG painted with the colours for paper. Out: the same with hatching, or with CSS variables that follow
the reader's theme. Lightness and hatching carry the meaning, hue only helps.
Exercise: `pytest tests/unit/test_report_charts.py`.
"""

from __future__ import annotations

import re

# Metric-compatible with Arial and Helvetica, so labels are as wide in a browser that has not got it.
FONT = "Arimo, Arial, Helvetica, sans-serif"

PAPER, INK, FAINT, GRID, SHADE = "#ffffff", "#1f2329", "#5a6472", "#e1e4e8", "#f2f4f6"
# In this order of use; each has its own shape and dash as well, see charts.py.
SERIES = ("#17508f", "#c76a14", "#0d3b33", "#a2509a", "#6f7d0e", "#7a2020")
SOLID_BLUE, SOLID_TEAL, SOLID_GREY, SOLID_PALE = "#2b62a0", "#6fae9f", "#757d87", "#c9ced4"
HATCHED_ORANGE, HATCHED_VIOLET, DOTTED_SAND, HATCHED_BLUE = "#d07b2b", "#8f5aa8", "#b08d4a", "#7ea3cc"

# Colour for paper → name of its CSS variable, colour on a dark screen.
_THEME = {
    PAPER: ("paper", "#15181c"),
    INK: ("ink", "#e6e9ed"),
    FAINT: ("faint", "#a4adb8"),
    GRID: ("grid", "#343a42"),
    SHADE: ("shade", "#20252b"),
    SERIES[0]: ("series-1", "#7fb4f2"),
    SERIES[1]: ("series-2", "#f0a052"),
    SERIES[2]: ("series-3", "#d4efe8"),
    SERIES[3]: ("series-4", "#d48fcd"),
    SERIES[4]: ("series-5", "#c3cf5e"),
    SERIES[5]: ("series-6", "#ef8a80"),
    SOLID_BLUE: ("solid-blue", "#5d94d6"),
    SOLID_TEAL: ("solid-teal", "#4d9484"),
    SOLID_GREY: ("solid-grey", "#7d8590"),
    SOLID_PALE: ("solid-pale", "#4a525c"),
    HATCHED_ORANGE: ("hatched-orange", "#f0a052"),
    HATCHED_VIOLET: ("hatched-violet", "#c58fdc"),
    DOTTED_SAND: ("dotted-sand", "#dcbc7c"),
    HATCHED_BLUE: ("hatched-blue", "#7ea3cc"),
}
# What is drawn in a tile of 6 × 6 in place of a flat fill.
_HATCHES = {
    HATCHED_ORANGE: "M-1.5,1.5l3,-3M0,6l6,-6M4.5,7.5l3,-3",
    HATCHED_VIOLET: "M0,0l6,6M6,0l-6,6",
    DOTTED_SAND: "M0,1.5h2M3,4.5h2",
    HATCHED_BLUE: "M0,3h6",
}
_TILE = 6

_COLOUR = re.compile("|".join(_THEME))


def hatch(svg: str, prefix: str) -> str:
    """Replace the fills that stand for a hatching. `prefix` keeps the ids of one page's figures apart."""
    patterns = []
    for colour, path in _HATCHES.items():
        if f'fill="{colour}"' not in svg:
            continue
        name = f"{prefix}-{_THEME[colour][0]}"
        svg = svg.replace(f'fill="{colour}"', f'fill="url(#{name})"')
        patterns.append(
            f'<pattern id="{name}" width="{_TILE}" height="{_TILE}" patternUnits="userSpaceOnUse">'
            f'<rect width="{_TILE}" height="{_TILE}" fill="{PAPER}"/>'
            f'<path d="{path}" stroke="{colour}" stroke-width="1.7" fill="none"/></pattern>'
        )
    if not patterns:
        return svg
    opening = svg.index(">") + 1
    return f"{svg[:opening]}<defs>{''.join(patterns)}</defs>{svg[opening:]}"


def follow_theme(svg: str) -> str:
    """Colours of paper → CSS variables of the page."""
    return _COLOUR.sub(lambda found: f"var(--{_THEME[found[0]][0]})", svg)


def css_variables(*, dark: bool) -> str:
    """`--paper: #ffffff; …`: the declarations that `follow_theme` relies on."""
    return " ".join(f"--{name}: {on_dark if dark else light};" for light, (name, on_dark) in _THEME.items())
