# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables and plots of `kmem lab slob`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from kmem.lab.mails import read_mail
from kmem.lab.report import cell, table
from kmem.lab.slob_figures import LARGE_BELOW, LARGE_FROM, SCANS, SHORT_EVENTS
from kmem.lab.slob_runs import LISTS


def trace_table(name: str, trace: Mapping[str, Any]) -> Table:
    output = table(
        f"{name}: {trace['records']:,} records; the optimum at the end is"
        f" {trace['optimum_pages'][-1]:,} pages",
        (
            *("", "pages", "overhead", "mean", "worst", "at step", "full", "fragments"),
            *("average", "page scans", "block scans", "ns a call"),
        ),
    )
    for label, row in trace["rows"].items():
        output.add_row(
            label,
            cell(row["pages"]),
            *(cell(row[f"{which}overhead_percent"], "%") for which in ("", "mean_", "worst_")),
            *(
                cell(row.get(key))
                for key in (
                    *("worst_step", "full_pages", "fragments"),
                    *("average_fragment_bytes", *SCANS, "ns_per_call"),
                )
            ),
            end_section=label.startswith("SLOB, three"),
        )
    return output


def mail_table(churn: Mapping[str, Any]) -> Table:
    """The mail's statistics beside the figures of the made-up boot."""
    output = table(
        "the mail's statistics beside the made-up boot's, which has no large pages",
        ("", "mail, one", "one", "mail, two", "two", "three"),
    )
    keys = {
        "pages in use": "pages",
        "optimum": "optimum",
        "full pages": "full_pages",
        "unused bytes": "unused_bytes",
        "fragments": "fragments",
        "average fragment": "average_fragment_bytes",
        "page scans": "page_scans",
        "block scans": "block_scans",
    }
    rows = {name: churn["rows"][f"SLOB, {name}"] for name in LISTS}
    for said in read_mail("slob_statistics"):
        key = keys.get(said["figure"])
        if key is None:
            continue
        ours = {
            name: churn["optimum_pages"][-1] if key == "optimum" else row[key]
            for name, row in rows.items()
        }
        output.add_row(
            said["figure"],
            *(cell(int(said["one"])), cell(ours["one"])),
            *(cell(int(said["two"])), cell(ours["two"]), cell(ours["three"])),
        )
    return output


def conditions_table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    output = table(
        f"blocks of {LARGE_FROM} to {LARGE_BELOW - 1} bytes that are gone after {SHORT_EVENTS}"
        " events at most, and lasting objects: what one list needs to fail",
        (
            *("trace", "such blocks", "a lasting object made meanwhile", "share"),
            *("lasting bytes", "for each such object"),
        ),
    )
    for name, row in rows.items():
        share = row["overlapped_share"]
        output.add_row(
            name,
            cell(row["large_blocks"]),
            cell(row["overlapped_blocks"]),
            "-" if share is None else f"{100 * share:.1f}%",
            cell(row["lasting_bytes"]),
            cell(row["lasting_bytes_per_overlapped"]),
        )
    return output


def gains_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    output = table(
        "pages of split lists beside one list: less than 0 is where the split pays",
        ("trace", "lists", "at the end", "best moment", "worst moment", "moments with fewer pages"),
        texts=2,
    )
    for row in rows:
        share = row["fewer_pages_share"]
        output.add_row(
            row["trace"],
            row["lists"],
            *(cell(row[f"{which}_percent"], "%") for which in ("end", "best", "worst")),
            "-" if share is None else f"{100 * share:.0f}%",
        )
    return output


def pivot(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    across: str,
    down: Sequence[str],
    names: Sequence[str],
    figures: Sequence[str] = ("overhead_percent", "mean_overhead_percent"),
) -> Table:
    """Overhead at the end and, behind it, the mean of the moments; or a single figure of these."""
    columns = list(dict.fromkeys(row[across] for row in rows))
    output = table(title, (*names, *map(str, columns)), texts=len(names))
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for row in rows:
        key = tuple(row[name] for name in down)
        digits = 2 if len(figures) > 1 else 1
        text = " ".join(
            "     -" if row[figure] is None else f"{row[figure]:{digits + 4}.{digits}f}"
            for figure in figures
        )
        lines.setdefault(key, {})[row[across]] = text
    for key, cells in lines.items():
        output.add_row(*map(str, key), *(cells.get(name, "-") for name in columns))
    return output


def mail_spreads() -> dict[str, list[int]]:
    rows = read_mail("slob_memfree")
    return {name: [int(row[name]) for row in rows] for name in ("one", "two", "slub")}


def spread_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    seeds = len(rows[0]["seeds"])
    output = table(
        f"pages at the end of {seeds} runs of the same: least, most, mean, and the spread in kB",
        ("trace", "lists", "least", "most", "mean", "spread kB", "mail's spread kB"),
        texts=2,
    )
    said = {name: max(free) - min(free) for name, free in mail_spreads().items()}
    said = {"one": said["one"], "two": said["two"], "SLUB": said["slub"]}
    for number, row in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1]["trace"] != row["trace"]
        output.add_row(
            row["trace"],
            row["lists"],
            *(cell(row[name]) for name in ("min", "max", "mean", "spread_kib")),
            cell(said.get(row["lists"])),
            end_section=last,
        )
    return output
