# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What call sites hold by its age, which of them look like leaks, and what threads hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table as TextTable

from kmem.common.text import printable
from kmem.explain.document import number
from kmem.explain.show import cell
from kmem.explain.table import Figure
from kmem.lab.report import table
from kmem.live.ages import BANDS, NO_BANDS, Ages, bytes_by_age, suspects, thread_rows, top_threads
from kmem.live.pprof import Row
from kmem.live.sites import Calls, top_sites

BYTES = 3  # column of a profile's rows: in use
CALLS = 4  # shown of a site
KIB = 1024.0


def modelled(value: float) -> Figure:
    return Figure(value, "modelled")


def text(calls: Calls) -> str:
    return printable(" < ".join(calls[:CALLS]))


def wide(output: TextTable, column: int) -> TextTable:
    """The table, with this column as text that may take several lines."""
    output.columns[column].justify = "left"
    output.columns[column].no_wrap = False
    return output


def ages_table(rows: Sequence[Row], ages: Ages, top: int) -> TextTable:
    heads = ("call site, and its callers", "KiB held", *(name for _, name in BANDS))
    output = wide(table("what call sites hold, by its age, in KiB", heads), 0)
    by_age = bytes_by_age(ages)
    for size, _, calls in top_sites(rows, BYTES)[:top]:
        if size > 0:
            bands = by_age.get(calls[0], NO_BANDS)
            cells = (cell(modelled(band), KIB) if band else "" for band in bands)
            output.add_row(text(calls), cell(modelled(size), KIB), *cells)
    return output


def suspects_table(ages: Ages, top: int) -> TextTable:
    old = f"older than {ages.old_ms / 1000:g} s"
    heads = ("call site, and its callers", "KiB a minute", old, "kept %")
    output = wide(table("leak suspects: old bytes that grow and stay", heads), 0)
    for one in suspects(ages)[:top]:
        output.add_row(
            text(one.calls),
            cell(modelled(one.per_minute), KIB),
            cell(modelled(one.old), KIB),
            f"{100 * one.kept:.0f} m",
        )
    return output


def threads_table(ages: Ages, top: int) -> TextTable:
    heads = ("thread", "KiB held", "objects", "call site of most of it")
    output = wide(table("what threads have allocated that is in use", heads), 3)
    output.columns[0].justify = "left"
    for size, objects, name, calls in top_threads(thread_rows(ages), BYTES)[:top]:
        cells = cell(modelled(size), KIB), cell(modelled(objects))
        output.add_row(printable(name), *cells, text(calls))
    return output


def aged_tables(rows: Sequence[Row], ages: Ages, top: int) -> list[TextTable | str]:
    """Tables of what is known; a sentence in place of suspects that cannot be told yet."""
    if not ages.held:
        return []
    parts: list[TextTable | str] = [ages_table(rows, ages, top)]
    if suspects(ages):
        parts.append(suspects_table(ages, top))
    elif not ages.can_tell:
        parts.append(
            f"no leak suspects: they need samples of {2 * ages.old_ms / 1000:g} s, and there are"
            f" samples of {ages.sampled_ms // 1000} s"
        )
    return [*parts, threads_table(ages, top)]


def aged_document(rows: Sequence[Row], ages: Ages | None) -> dict[str, Any]:
    if ages is None:
        return {"ages": None, "leak_suspects": None, "threads": None}
    by_age = bytes_by_age(ages)
    names = [name for _, name in BANDS]
    return {
        "ages": [
            {
                "calls": list(calls),
                "bytes": number(modelled(size)),
                "by_age": {
                    name: number(modelled(band))
                    for name, band in zip(names, by_age.get(calls[0], NO_BANDS), strict=True)
                },
            }
            for size, _, calls in top_sites(rows, BYTES)
            if size > 0
        ],
        "leak_suspects": [
            {
                "calls": list(one.calls),
                "bytes_a_minute": number(modelled(one.per_minute)),
                "old_bytes": number(modelled(one.old)),
                "kept": number(modelled(one.kept)),
            }
            for one in suspects(ages)
        ],
        "threads": [
            {
                "thread": name,
                "bytes": number(modelled(size)),
                "objects": number(modelled(objects)),
                "calls": list(calls),
            }
            for size, objects, name, calls in top_threads(thread_rows(ages), BYTES)
        ],
    }
