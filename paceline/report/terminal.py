"""A study on a terminal: the table, what failed, what was found, and where things are.

In: rows of `analyse` with the findings of `explain`. Out: text through a rich console, readable at 80
columns and without colour. Exercise: `paceline show STUDY`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from paceline.quantity import format_bytes, format_duration
from paceline.record import Finding, Metric, Row
from paceline.report.labels import Labels

# Below this the interval stands under its median instead of beside it.
WIDE_COLUMNS = 110

NOT_KNOWN = "–"

Format = Callable[[float], str]


def _times(value: float) -> str:
    return f"{value:.2f} ×"


def _percent(value: float) -> str:
    return f"{value * 100:.0f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


_BY_UNIT: dict[str, Format] = {"s": format_duration, "bytes": format_bytes, "ratio": _times}
# Ratios that people read in per cent.
_SHARES = ("efficiency", "share", "spread")

# Heading and metric; all of them have an interval.
_MAIN_COLUMNS = (
    ("step time", "step_time_s"),
    ("speedup", "speedup"),
    ("efficiency", "efficiency"),
    ("exposed comm.", "exposed_comm_s"),
    ("peak memory", "peak_memory_bytes"),
)
# No interval where it follows from the column before, or where the value is exact.
_WITHOUT_INTERVAL = ("efficiency", "peak_memory_bytes")


def format_metric(name: str, value: float, unit: str) -> str:
    if name.endswith(_SHARES):
        return _percent(value)
    return _BY_UNIT.get(unit, _number)(value)


def _cell(name: str, metric: Metric | None, *, wide: bool, interval: bool = True) -> Text:
    if metric is None or metric.median != metric.median:
        return Text(NOT_KNOWN, style="dim")
    cell = Text(format_metric(name, metric.median, metric.unit))
    if interval and metric.low < metric.high:
        low, high = (format_metric(name, bound, metric.unit) for bound in (metric.low, metric.high))
        # `10.1–10.9 ms` says the unit once where both ends have the same.
        number, _, unit = low.rpartition(" ")
        low = number if number and high.endswith(f" {unit}") else low
        cell.append(f"{' ' if wide else chr(10)}{low}–{high}", style="dim")
    return cell


def _status(row: Row) -> Text:
    if row.status != "ok":
        return Text(row.status, style="bold red")
    if row.oversubscribed:
        return Text("oversubscribed", style="yellow")
    return Text("ok", style="green")


def build_table(rows: Sequence[Row], width: int) -> Table:
    """One line per configuration; what does not vary or is not known anywhere has no column."""
    labels = Labels(rows)
    wide = width >= WIDE_COLUMNS
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for heading in labels.columns():
        table.add_column(heading, overflow="fold", justify="right" if heading == "ranks" else "left")
    shown = [(heading, name) for heading, name in _MAIN_COLUMNS if any(name in row.metrics for row in rows)]
    for heading, _ in shown:
        table.add_column(heading, justify="right", no_wrap=wide)
    table.add_column("status", no_wrap=True)
    for row in rows:
        metrics = (
            _cell(name, row.metrics.get(name), wide=wide, interval=name not in _WITHOUT_INTERVAL)
            for _, name in shown
        )
        table.add_row(*(escape(cell) for cell in labels.cells(row)), *metrics, _status(row))
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


def print_failures(rows: Sequence[Row], console: Console) -> None:
    labels = Labels(rows)
    for row in rows:
        if row.status != "ok":
            text = Text(f"{labels.name(row)}: ", style="bold red")
            text.append(f"{row.status}: {row.cause or 'no cause known'}", style="default not bold")
            console.print(_indented(text))


def collect_findings(rows: Sequence[Row]) -> list[tuple[Finding, list[Row]]]:
    """One entry per code with the rows it was found in: warnings first, then in the order of `explain`."""
    by_code: dict[str, tuple[Finding, list[Row]]] = {}
    for row in rows:
        for finding in row.findings:
            by_code.setdefault(finding.code, (finding, []))[1].append(row)
    return sorted(by_code.values(), key=lambda entry: entry[0].severity != "warning")


def print_findings(rows: Sequence[Row], console: Console) -> None:
    labels = Labels(rows)
    for finding, where in collect_findings(rows):
        is_warning = finding.severity == "warning"
        text = Text("! " if is_warning else "· ", style="bold yellow" if is_warning else "bold cyan")
        text.append(f"{labels.name(where[0])}: ", style="bold default")
        text.append(finding.text, style="default not bold")
        if len(where) > 1:
            text.append(f" Also: {', '.join(labels.name(row) for row in where[1:])}.", style="dim")
        text.append(f"  [{finding.code}]", style="dim")
        console.print(_indented(text))


def print_study(name: str, rows: Sequence[Row], console: Console) -> None:
    """Table, failures and findings."""
    console.print(describe_study(name, rows))
    console.print()
    console.print(build_table(rows, console.width))
    console.print()
    if any(row.status != "ok" for row in rows):
        print_failures(rows, console)
        console.print()
    if any(row.findings for row in rows):
        print_findings(rows, console)
        console.print()
