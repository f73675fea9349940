"""From a chart's specification to SVG, and from any SVG to PNG; without a browser.

In: a Vega-Lite specification as a plain dict, a width. Out: text or bytes, the same on every repeat. Only
this file imports vl-convert, and only when something is drawn.
Exercise: `pytest tests/unit/test_report_charts.py`.
"""

from __future__ import annotations

import functools
import html
import math
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.report.palette import FONT, PAPER

ASSETS = Path(__file__).parent / "assets"
# The newest that every vl-convert from 1.7 on carries.
VEGA_LITE = "5.21"
# A letter of a legend on average, its symbol with the gaps around it, and the axis beside the plot.
LETTER_PX, SYMBOL_PX, AXIS_PX = 5.8, 34, 46
EDGE_PX = 4
# Of the width, the most that names beside the plot take.
LEFT_SHARE = 0.45
# A page is shown in the reader's own font: where none has Arial's widths, letters are this much wider.
WIDER_SHARE = 0.16
VALUE_WIDER_PX = 10  # of the value behind the longest bar
LEGEND_ROW_PX, NOTE_ROW_PX = 18, 16
# A chart is made no lower than this, axes included: nothing can be read off a flatter one.
LOWEST_PX = 105

_LABELLED = re.compile(r'<path aria-label="([^"]*)"([^>]*)/>')
_ACCESSIBILITY = re.compile(r' (?:aria-[a-z]+|role|class)="[^"]*"')


class MissingPackage(ValueError):
    """An optional package is not installed; the message says which command installs it."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install 'paceline[report]'")


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification whose size is decided when it is drawn; `names` stand in its legend."""

    spec: dict[str, Any]
    names: tuple[str, ...] = ()
    left_letters: int = 0  # of the longest label beside the plot, where these are names

    def draw(self, width_px: int, height_scale: float = 1.0) -> str:
        columns = self._legend_columns(width_px)
        full_px = self.spec["height"]
        # Only the plot gives way: what is written around it needs its room at every scale.
        legend_px = LEGEND_ROW_PX * math.ceil(len(self.names) / columns) if len(self.names) > 1 else 0
        notes_px = NOTE_ROW_PX * len(self.spec.get("title", {}).get("text", ()))
        height_px = round(max(full_px * height_scale, min(full_px, LOWEST_PX)) + legend_px + notes_px)
        legend_width_px = width_px - self._left_px(width_px) - SYMBOL_PX
        config = self.spec["config"]
        config = {
            **config,
            "legend": {**config["legend"], "columns": columns, "labelLimit": legend_width_px},
            "axis": {**config["axis"], "labelLimit": width_px * LEFT_SHARE - 10},
        }
        wider_px = WIDER_SHARE * self._left_px(width_px) if self.left_letters else 0.0
        room = dict.fromkeys(("top", "bottom"), EDGE_PX)
        room |= {"left": round(EDGE_PX + wider_px), "right": EDGE_PX + VALUE_WIDER_PX}
        sized = {**self.spec, "width": width_px, "height": height_px, "config": config, "padding": room}
        return _accessible(_vl_convert().vegalite_to_svg(sized, vl_version=VEGA_LITE))

    def _left_px(self, width_px: int) -> float:
        return max(AXIS_PX, min(self.left_letters * LETTER_PX + 10, width_px * LEFT_SHARE))

    def _legend_columns(self, width_px: int) -> int:
        """As many as fit: Vega-Lite cuts off what does not."""
        widths = [len(name) * LETTER_PX + SYMBOL_PX for name in self.names]
        room = width_px - self._left_px(width_px)
        return len(widths) if sum(widths) <= room else max(int(room / max(widths)), 1)


@functools.cache
def _vl_convert() -> ModuleType:
    try:
        import vl_convert
    except ImportError:
        raise MissingPackage("vl-convert-python", "drawing charts") from None
    vl_convert.register_font_directory(str(ASSETS))
    module: ModuleType = vl_convert
    return module


def rasterise(svg: str, scale: float = 2.0) -> bytes:
    """PNG on white; `scale` is pixels of the image per pixel of the SVG."""
    opening = svg.index(">") + 1
    on_paper = f'{svg[:opening]}<rect width="100%" height="100%" fill="{PAPER}"/>{svg[opening:]}'
    image: bytes = _vl_convert().svg_to_png(on_paper, scale=scale)
    return image


def _accessible(svg: str) -> str:
    """Marks that were described get a tooltip; the figure as a whole has its alternative text."""
    svg = _LABELLED.sub(lambda mark: f"<path{mark[2]}><title>{mark[1]}</title></path>", svg)
    return _ACCESSIBILITY.sub("", svg)


def open_svg(width_px: float, height_px: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_px:g}" height="{height_px:g}" '
        f'viewBox="0 0 {width_px:g} {height_px:g}">'
    )


def svg_text(
    x: float, y: float, text: str, fill: str, *, size: float = 11, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="{FONT}" font-size="{size:g}" text-anchor="{anchor}"'
        f'{weight} fill="{fill}">{html.escape(text)}</text>'
    )
