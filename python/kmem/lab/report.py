# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The report of an experiment of the laboratory, and how it is shown: as text, JSON and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.errors import KmemError
from kmem.common.files import write_json
from kmem.common.tree import build
from kmem.lab.page import Drawing, write_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDEST = 1000  # columns of a table; names are the longest words


@dataclass(frozen=True)
class Plot:
    """A chart with panels side by side; `draw` gets the axes of each, from left to right."""

    title: str
    draw: Callable[[Sequence[Axes]], None]
    panels: int = 1


@dataclass
class Report:
    """A finished experiment. Nothing in it depends on when or where it ran, unless it says so."""

    name: str  # of the command
    title: str
    document: dict[str, Any]  # content of the file for --json
    parts: list[RenderableType | Drawing] = field(default_factory=list)  # in order
    notes: list[str] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    failure: str = ""  # if not empty, the command's error, after everything is written and printed


def table(title: str, headings: Sequence[str], texts: int = 1) -> Table:
    """A table; the first `texts` columns hold words, the others figures."""
    output = Table(title=title, title_justify="left", box=SIMPLE)
    for number, heading in enumerate(headings):
        justify = "left" if number < texts else "right"
        output.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return output


def cell(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,}{unit}" if isinstance(value, int) else f"{value:,.2f}{unit}"


def say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def print_table(console: Console, output: RenderableType) -> None:
    """All figures of a table, in a wider one if need be; columns of words wrap."""
    before = console.width
    if isinstance(output, Table) and all(column.no_wrap for column in output.columns):
        options = console.options.update(max_width=WIDEST)
        console.width = max(before, Measurement.get(console, options, output).maximum)
    console.print(output)
    console.width = before


def print_report(report: Report, console: Console) -> None:
    say(console, report.title)
    for part in report.parts:
        if isinstance(part, str):
            say(console, part)
        elif not isinstance(part, Drawing):
            print_table(console, part)
    for note in report.notes:
        say(console, note)


def show_experiment(
    make: Callable[[], Report], json_file: Path | None, html_file: Path | None
) -> None:
    """Build, run an experiment, write the wanted files and print the report."""
    build()
    report = make()
    try:
        write_json(json_file, report.document)
        write_page(html_file, f"kmem lab {report.name}", [report])
    finally:  # a full disk must not take the figures
        print_report(report, wide_console())
    if report.failure:
        raise KmemError(report.failure)
