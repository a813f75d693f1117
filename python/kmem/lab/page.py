# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The page of reports of the laboratory: tables that can be sorted, and plots as SVG inside.

A page loads nothing and needs no other file. Equal reports give equal pages. page.css makes it
follow the reader's choice of a light or a dark screen: so plots have no colour of their own for
paper and ink. page.js sorts tables; without it they are read as they are.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kmem.common.files import write_result
from kmem.lab.mails import mails_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kmem.lab.report import Plot, Report

PLOT_INCHES = (11.0, 4.2)
MANY_PANELS = 3  # with more, numbers along the axes need smaller letters
FOLDER = Path(__file__).parent

# Matplotlib's paper and ink.
COLOURS = {"#ffffff": "var(--paper)", "#000000": "currentColor"}


@dataclass(frozen=True)
class Drawing:
    """A part of a report that only the page shows: SVG with the colours of page.css."""

    title: str
    svg: str


def plain_logarithmic(axes: Axes) -> None:
    """Numbers at the ticks of logarithmic axes; Matplotlib's own labels are formulas of TeX."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    def number(value: float, _: object = None) -> str:
        return f"{value:,.0f}" if value >= 1 or value == 0 else f"{value:g}"

    class FewNumbers(LogFormatter):
        """Between the powers: numbers where Matplotlib would have any."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return number(x) if super().__call__(x, pos) else ""

    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() in ("log", "symlog"):
            axis.set_major_formatter(FuncFormatter(number))
            axis.set_minor_formatter(FewNumbers(minor_thresholds=(1, 0.4)))


def as_svg(plot: Plot) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, also with dollar signs, and ids do not differ from run to run.
    with matplotlib.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": f"kmem {plot.title}",
            "text.parse_math": False,
            "font.size": 8 if plot.panels > MANY_PANELS else 10,
        }
    ):
        figure = Figure(figsize=PLOT_INCHES, layout="constrained")
        panels = list(figure.subplots(1, plot.panels, squeeze=False)[0])
        plot.draw(panels)
        for axes in panels:
            plain_logarithmic(axes)
        figure.suptitle(plot.title)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    # No reference leads to these groups, and with ids every plot of a page would be a figure_1.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index("<svg") :])
    for colour, ours in COLOURS.items():
        svg = svg.replace(f": {colour}", f": {ours}")
    name = html.escape(plot.title)
    return svg.replace("<svg", f'<svg role="img" aria-label="{name}"', 1)


def plain(content: RenderableType) -> str:
    """The text of a heading, a title or a cell."""
    return content.plain if isinstance(content, Text) else str(content)


def as_table(table: Table) -> str:
    """A first cell that is empty stands for the label above it, which a sorted row needs."""
    columns = table.columns
    classes = [' class="figure"' if column.justify == "right" else "" for column in columns]
    heads = "".join(
        f'<th scope="col"{style}>{html.escape(plain(column.header).strip())}</th>'
        for column, style in zip(columns, classes, strict=True)
    )
    cells = [[plain(cell) for cell in column.cells] for column in columns]
    rows = []
    label = ""
    for number, row in enumerate(table.rows):
        again = not cells[0][number] and label != ""
        label = cells[0][number] or label
        first = f'<td class="again">{html.escape(label)}</td>' if again else ""
        texts = "".join(
            f"<td{style}>{html.escape(column[number])}</td>"
            for column, style in list(zip(cells, classes, strict=True))[again:]
        )
        end = ' class="end"' if row.end_section else ""
        rows.append(f"<tr{end}>{first}{texts}</tr>\n")
    title = html.escape(plain(table.title or "table"))
    caption = f"<caption>{title}</caption>" if table.title else ""
    return (
        f'<div class="box" role="region" tabindex="0" aria-label="{title}"><table>{caption}\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody></table></div>\n"
    )


def as_part(part: Any) -> str:
    if isinstance(part, Table):
        return as_table(part)
    if isinstance(part, Drawing):
        caption = f"<figcaption>{html.escape(part.title)}</figcaption>"
        return f'<figure role="group" tabindex="0">{part.svg}{caption}</figure>\n'
    return f'<p class="text">{html.escape(str(part))}</p>\n' if str(part) else ""


def as_links(experiment: str) -> str:
    return "".join(
        f'<p>The mail: <a href="{html.escape(mail.address)}">{html.escape(mail.subject)}</a>,'
        f" {html.escape(mail.author)}, {mail.date}</p>\n"
        for mail in mails_of(experiment)
    )


def as_section(report: Report) -> str:
    name = html.escape(report.name)
    figures = "".join(
        f'<figure role="group" tabindex="0">{as_svg(plot)}</figure>\n' for plot in report.plots
    )
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in report.notes)
    return (
        f'<section id="{name}"><h2>{name}</h2>\n<p>{html.escape(report.title)}</p>\n'
        f"{as_links(report.name)}{figures}{''.join(map(as_part, report.parts))}{notes}</section>\n"
    )


def as_html(title: str, reports: Sequence[Report]) -> str:
    names = [html.escape(report.name) for report in reports]
    links = "".join(f'<a href="#{name}">{name}</a>' for name in names)
    style, script = ((FOLDER / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # A browser asks the server for an icon if the page does not have one.
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>\n{style}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n<nav>{links}</nav>\n"
        f"{''.join(map(as_section, reports))}<script>\n{script}</script></body></html>\n"
    )


def write_page(file: Path | None, title: str, reports: Sequence[Report]) -> None:
    if file is not None:
        write_result(file, "--html", as_html(title, reports))
