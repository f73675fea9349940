"""What was copied from which device to which: a matrix of counts and bytes. Needs no package.

In: (from, to) → (count, bytes). Out: a figure that is drawn when its width is known; a darker cell
holds more bytes.
Exercise: `pytest tests/unit/test_report_timeline.py -k transfers`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.quantity import format_bytes
from paceline.report.drawing import open_svg, svg_text
from paceline.report.palette import FAINT, GRID, INK, PAPER, SERIES

CELL_PX, MIN_CELL_PX, MAX_CELL_PX, LEFT_PX, TOP_PX = 40.0, 31.0, 84.0, 78.0, 38.0
LETTER_PX = 5.4
# The darkest cell; text in ink stays readable on it, in both themes.
DARKEST = 0.32


@dataclass(frozen=True)
class Transfers:
    """Copies between the named devices; the diagonal is no copy and stays empty."""

    devices: tuple[str, ...]
    copies: Mapping[tuple[str, str], tuple[int, int]]

    def draw(self, width_px: int, height_scale: float = 1.0) -> str:
        cell_px = min((width_px - LEFT_PX - 4) / len(self.devices), MAX_CELL_PX)
        height_px = max(CELL_PX * height_scale, MIN_CELL_PX)
        most = max((num_bytes for _, num_bytes in self.copies.values()), default=0) or 1
        middle = LEFT_PX + cell_px * len(self.devices) / 2
        # `device 0`, `device 1`, …: said once, or columns of eight devices would run into each other.
        kinds = {name.rpartition(" ")[0] for name in self.devices}
        kind = kinds.pop() if len(kinds) == 1 else ""
        parts = [svg_text(middle, 13, f"to {kind}".strip(), FAINT, anchor="middle")]
        for column, name in enumerate(self.devices):
            x = LEFT_PX + (column + 0.5) * cell_px
            parts.append(svg_text(x, TOP_PX - 8, name.removeprefix(f"{kind} "), INK, anchor="middle"))
        for row, source in enumerate(self.devices):
            y = TOP_PX + row * height_px
            label = f"from {source}" if row == 0 else source
            parts.append(svg_text(LEFT_PX - 8, y + height_px / 2 + 4, label, INK, anchor="end"))
            for column, target in enumerate(self.devices):
                copy = self.copies.get((source, target))
                parts.append(_cell(LEFT_PX + column * cell_px, y, cell_px, height_px, copy, most))
        return f"{open_svg(width_px, TOP_PX + height_px * len(self.devices) + 4)}{''.join(parts)}</svg>"


def _cell(x: float, y: float, width: float, height: float, copy: tuple[int, int] | None, most: int) -> str:
    frame = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    if copy is None:
        return f'{frame} fill="{PAPER}" stroke="{GRID}"/>'
    count, num_bytes = copy
    shade = DARKEST * (0.2 + 0.8 * num_bytes / most)
    title = html.escape(f"{count} copies, {format_bytes(num_bytes)}")
    middle, size = x + width / 2, format_bytes(num_bytes)
    fits = len(size) * LETTER_PX <= width
    above = 2 if fits else -4
    return (
        f'{frame} fill="{SERIES[0]}" fill-opacity="{shade:.2f}" stroke="{GRID}"><title>{title}</title></rect>'
        + svg_text(middle, y + height / 2 - above, f"{count} ×", INK, anchor="middle", bold=True)
        + (svg_text(middle, y + height / 2 + 10, size, INK, size=9.5, anchor="middle") if fits else "")
    )
