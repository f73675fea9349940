"""A study on a terminal: the table, and what was found.

In: rows of `analyse` with the findings of `explain`. Out: text through a rich console, readable at 80
columns and without colour. Exercise: `paceline show STUDY`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from paceline.analyse.intervals import relative_half_width
from paceline.explain import order_of_gravity
from paceline.record import Finding, Metric, Row, Status
from paceline.report.labels import Labels
from paceline.report.units import Unit, choose_unit

NOT_KNOWN = "–"

# How an interval is written, the widest first; a table takes the first with which it fits.
Layout = Literal["beside", "below", "per cent"]
LAYOUTS: tuple[Layout, ...] = ("beside", "below", "per cent")

# Beyond this many times the median, the ends of an interval are figures without a meaning.
WIDEST = 3.0

# Heading and metric.
_MAIN_COLUMNS = (
    ("step\ntime", "step_time_s"),
    ("speedup", "speedup"),
    ("effi-\nciency", "efficiency"),
    ("gain over\nplain", "placement_gain"),
    ("exposed\ncomm.", "exposed_comm_s"),
    ("peak\nmemory", "peak_memory_bytes"),
)
# No interval where it follows from the column before, or where the value is exact.
_WITHOUT_INTERVAL = ("efficiency", "peak_memory_bytes")
# What a narrow terminal does without, the first first: `show` says it again below, or it follows from others.
_SPARED = ("efficiency", "peak_memory_bytes", "exposed_comm_s", "speedup", "placement_gain")
# Letters of a name that must be seen to tell rows apart.
_NAME_LETTERS = 14
# Ratios that people read in per cent.
_SHARES = ("efficiency", "spread", "share", "disturbed_steps")
_PER_CENT = Unit(0.01, "%")


def unit_of(names: Sequence[str], rows: Sequence[Row]) -> Unit:
    """One unit for all that is to be compared by eye."""
    metrics = [row.metrics[name] for row in rows for name in names if name in row.metrics]
    if names[0].endswith(_SHARES):
        return _PER_CENT
    kind, per_second, _ = metrics[0].unit.partition("/s") if metrics else ("", "", "")
    unit = choose_unit([metric.median for metric in metrics], kind)
    return replace(unit, name=unit.name + per_second)


def show_number(value: float, unit: Unit) -> str:
    """Without the unit, which stands in the heading."""
    if not math.isfinite(value):
        return NOT_KNOWN
    if unit == _PER_CENT:
        return f"{value / unit.size:.0f}"
    if unit.name == "×":
        return f"{value:.2f}"
    if unit.name in ("B", "count"):
        return f"{value:g}"
    return replace(unit, name="").show(value)


def show_interval(metric: Metric, unit: Unit) -> str:
    """`1.60–1.80`; nothing where it is narrower than the digits that are shown, or not known."""
    if not metric.low < metric.high:
        return ""
    if relative_half_width(metric) > WIDEST:
        return f">±{WIDEST:.0%}".replace("%", " %")
    low, middle, high = (show_number(value, unit) for value in (metric.low, metric.median, metric.high))
    return "" if low == middle == high else f"{low}–{high}"


def _cell(name: str, metric: Metric | None, unit: Unit, layout: Layout) -> Text:
    if metric is None or not math.isfinite(metric.median):
        return Text(NOT_KNOWN, style="dim")
    cell = Text(show_number(metric.median, unit))
    interval = "" if name in _WITHOUT_INTERVAL else show_interval(metric, unit)
    if interval and layout == "per cent" and not interval.startswith(">"):
        interval = f"±{relative_half_width(metric) * 100:.0f} %"
    if interval:
        cell.append(f"{' ' if layout == 'beside' else chr(10)}{interval}", style="dim")
    return cell


def _status(row: Row, layout: Layout) -> Text:
    if row.status != "ok":
        return Text(row.status, style="bold red")
    if row.oversubscribed:
        return Text("over-\nsubscribed" if layout == "per cent" else "oversubscribed", style="yellow")
    return Text("ok", style="green")


def make_table() -> Table:
    """A rule below the headings, two columns of air between the rest."""
    return Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)


def choose_table(rows: Sequence[Row], console: Console) -> Table:
    """The table in the first layout that fits; if none does, the last with as few columns as need be."""
    unlimited = console.options.update(max_width=1000)
    for layout in LAYOUTS:
        table = build_table(rows, layout)
        if Measurement.get(console, unlimited, table).maximum <= console.width:
            return table
    for num_spared in range(len(_SPARED) + 1):
        table = build_table(rows, LAYOUTS[-1], _SPARED[:num_spared])
        if Measurement.get(console, unlimited, table).minimum <= console.width:
            break
    return table


def build_table(rows: Sequence[Row], layout: Layout, spared: Sequence[str] = ()) -> Table:
    """One line per configuration; what does not vary or is not known anywhere has no column."""
    labels = Labels(rows)
    table = make_table()
    cells = [labels.cells(row) for row in rows]
    for place, column in enumerate(labels.columns()):
        heading = column if layout == "beside" else column.replace("-", "-\n").replace("_", "_\n")
        longest = max(map(len, [*heading.split("\n"), *(line[place] for line in cells)]))
        table.add_column(
            heading,
            overflow="fold",
            justify="right" if column == "ranks" else "left",
            min_width=min(longest, _NAME_LETTERS),
        )
    shown = [
        (heading, name)
        for heading, name in _MAIN_COLUMNS
        if name not in spared and any(name in row.metrics for row in rows)
    ]
    units = {name: unit_of([name], rows) for _, name in shown}
    for heading, name in shown:
        table.add_column(f"{heading}\n{units[name].name}", justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for row, line in zip(rows, cells, strict=True):
        metrics = (_cell(name, row.metrics.get(name), units[name], layout) for _, name in shown)
        table.add_row(*map(escape, line), *metrics, _status(row, layout))
    return table


def describe_study(name: str, rows: Sequence[Row]) -> Text:
    programs = ", ".join(dict.fromkeys(row.program for row in rows))
    rounds = max((row.rounds for row in rows), default=0)
    simulated = ", simulated" if any(row.source == "simulated" for row in rows) else ""
    text = Text(name, style="bold")
    text.append(f"  {programs}, {rounds} round{'s' * (rounds != 1)}{simulated}", style="dim not bold")
    return text


def _indented(text: RenderableType) -> Padding:
    return Padding(text, (0, 0, 0, 2))


def collect_findings(rows: Sequence[Row]) -> list[tuple[Finding, list[Row]]]:
    """One entry per code, with the rows it was found in: the gravest and largest first, in an entry too.

    Two causes of a failure are two entries: what ended one run does not explain another.
    """
    entries: dict[tuple[str, str], list[tuple[Finding, Row]]] = {}
    for row in rows:
        for finding in row.findings:
            cause = finding.text if finding.code in get_args(Status) else ""
            entries.setdefault((finding.code, cause), []).append((finding, row))
    for found in entries.values():
        found.sort(key=lambda one: order_of_gravity(one[0]))
    ordered = sorted(entries.values(), key=lambda found: order_of_gravity(found[0][0]))
    return [(found[0][0], [row for _, row in found]) for found in ordered]


def print_findings(rows: Sequence[Row], console: Console) -> None:
    labels = Labels(rows)
    for finding, where in collect_findings(rows):
        is_warning = finding.severity == "warning"
        text = Text("! " if is_warning else "· ", style="bold yellow" if is_warning else "bold cyan")
        text.append(f"{labels.name(where[0])}: ", style="bold default")
        text.append(finding.text, style="default not bold")
        others = [labels.name(row) for row in where[1:]]
        if others:
            # A long list would hide the finding.
            listed = f": {'; '.join(others)}" if len(others) <= 2 else f" in {len(others)} other rows"
            text.append(f" Also{listed}.", style="dim")
        text.append(f"  [{finding.code}]", style="dim")
        console.print(_indented(text))


def print_study(name: str, rows: Sequence[Row], console: Console) -> None:
    """Table and findings."""
    console.print(describe_study(name, rows))
    console.print()
    console.print(choose_table(rows, console))
    console.print()
    if any(row.findings for row in rows):
        print_findings(rows, console)
        console.print()
