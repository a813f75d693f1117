# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The report of an experiment of the laboratory, and how it is shown: as text, JSON and HTML.

A page has its plots as SVG inside and loads nothing. Equal reports give equal pages.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console, RenderableType
from rich.table import Table

from kmem.common.console import TEXT_WIDTH, wide_console
from kmem.common.errors import KmemError
from kmem.common.files import write_json, write_result
from kmem.common.tree import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOT_INCHES = (11.0, 4.2)

STYLE = """
body { font-family: sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
pre { font-size: 12px; line-height: 1.25; overflow-x: auto; }
svg { height: auto; max-width: 100%; }
nav a { margin-right: 1em; }
section { border-top: 1px solid #bbb; margin-top: 3em; }
"""


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
    parts: list[RenderableType] = field(default_factory=list)  # tables and lines, in order
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


def print_report(report: Report, console: Console) -> None:
    say(console, report.title)
    for part in report.parts:
        if isinstance(part, str):
            say(console, part)
        else:
            console.print(part)
    for note in report.notes:
        say(console, note)


def as_svg(plot: Plot) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, also with dollar signs, and ids do not differ from run to run.
    with matplotlib.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": f"kmem {plot.title}",
            "text.parse_math": False,
        }
    ):
        figure = Figure(figsize=PLOT_INCHES, layout="constrained")
        plot.draw(list(figure.subplots(1, plot.panels, squeeze=False)[0]))
        figure.suptitle(plot.title)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    # No reference leads to these groups, and with ids every plot of a page would be a figure_1.
    return re.sub(r'<g id="[^"]*"', "<g", svg[svg.index("<svg") :])


def as_section(report: Report) -> str:
    recorder = Console(record=True, width=TEXT_WIDTH, file=io.StringIO(), markup=False, emoji=False)
    for part in report.parts:
        if isinstance(part, str):
            say(recorder, part)
        else:
            recorder.print(part)
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in report.notes)
    figures = "".join(f"<figure>{as_svg(plot)}</figure>\n" for plot in report.plots)
    return (
        f'<section id="{html.escape(report.name)}"><h2>{html.escape(report.name)}</h2>\n'
        f"<p>{html.escape(report.title)}</p>\n{figures}"
        f"<pre>{html.escape(recorder.export_text())}</pre>\n{notes}</section>\n"
    )


def as_html(title: str, reports: Sequence[Report]) -> str:
    """A page that needs no other file."""
    names = [html.escape(report.name) for report in reports]
    links = "".join(f'<a href="#{name}">{name}</a>' for name in names)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        # A browser asks the server for an icon if the page does not have one.
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n<nav>{links}</nav>\n"
        f"{''.join(map(as_section, reports))}</body></html>\n"
    )


def write_page(file: Path | None, title: str, reports: Sequence[Report]) -> None:
    if file is not None:
        write_result(file, "--html", as_html(title, reports))


def show_experiment(
    make: Callable[[], Report], json_file: Path | None, html_file: Path | None
) -> None:
    """Build, run an experiment, write the wanted files and print the report."""
    build()
    report = make()
    write_json(json_file, report.document)
    write_page(html_file, f"kmem lab {report.name}", [report])
    print_report(report, wide_console())
    if report.failure:
        raise KmemError(report.failure)
