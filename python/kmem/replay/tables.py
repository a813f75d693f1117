# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The figures of a replay as tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.text import printable

TABLE_WIDTH = 110  # columns; a narrower terminal wraps lines, a cut figure is worse
CACHES_SHOWN = 12

NOTES = (
    "optimum: allocated bytes in whole pages, and the pages of large blocks; overhead: pages beyond"
    " it. Allocated are the bytes asked for; with engine slob its headers and units, as in the mail"
    " that split its list.",
    "waste: rounding to strides, behind the last object of slabs, free objects in slabs on lists of"
    " nodes, free objects that CPUs keep (sheaves, CPU slabs and CPU partial slabs, arrays), and"
    " the allocator's own records with 34 bytes for each page.",
)


def state_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Slabs by state and waste by kind, at the end."""
    return [
        (f"slabs: {name.replace('_', ' ')}", f"{count:,}")
        for name, count in document["slabs"].items()
    ] + [
        (f"waste: {name.replace('_', ' ')}", f"{count / 1024:,.1f} KiB")
        for name, count in document["waste_bytes"].items()
    ]


def figures(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The lines of the table, name and value."""
    end, peak, counts = document["end"], document["peak"], document["counts"]
    rows = [
        (f"pages at the {name}", f"{state['pages']:,}  ({state['slab_pages']:,} in slabs)")
        for name, state in (("peak", peak), ("end", end))
    ]
    for name, state in (("peak", peak), ("end", end)):
        overhead = state["overhead_percent"]
        percent = "-" if overhead is None else f"{overhead:.2f}%"
        rows.append((f"over the optimum at the {name}", f"{percent} of {state['optimum_pages']:,}"))
    rows += state_rows(document)
    share = document["fast_path_share"]
    modelled = document["modelled"]
    rows += [
        ("calls", f"{counts['calls']:,}"),
        ("on the fast path", "-" if share is None else f"{100 * share:.2f}%"),
        *(
            [("on the fast path of SLUB itself", f"{100 * slub_share:.2f}%")]
            if (slub_share := document.get("slub_fast_path_share")) is not None
            else []
        ),
        ("compare-and-swaps", f"{counts['compare_swaps']:,}"),
        ("list_lock taken", f"{counts['list_locks']:,}"),
        ("list_lock handed over", f"{counts['list_handed_over']:,}"),
        ("modelled time", f"{modelled['ns'] / 1e6:,.2f} ms  ({modelled['costs']} costs)"),
        ("modelled time of a call", f"{modelled['ns_per_call'] or 0:.1f} ns"),
    ]
    if orphans := document["trace"]["orphans_left_out"]:
        rows.append(("frees of older objects, left out", f"{orphans:,}"))
    return rows


def as_table(document: Mapping[str, Any]) -> Table:
    output = Table(box=SIMPLE, show_header=False)
    output.add_column("", no_wrap=True)
    output.add_column("", justify="right", no_wrap=True)
    for name, value in figures(document):
        output.add_row(name, value)
    return output


def cache_table(caches: Sequence[Mapping[str, Any]]) -> Table:
    """The caches with the most pages."""
    output = Table(title="caches with the most pages", title_justify="left", box=SIMPLE)
    output.add_column("cache", no_wrap=True)
    for heading in ("stride", "order", "in use", "objects", "slabs", "pages"):
        output.add_column(heading, justify="right", no_wrap=True)
    names = ("stride_bytes", "order", "inuse", "objects", "slabs", "pages")
    most = sorted(caches, key=lambda cache: (-cache["pages"], cache["name"]))
    for cache in [cache for cache in most if cache["pages"]][:CACHES_SHOWN]:
        output.add_row(printable(cache["name"]), *(str(cache[name]) for name in names))
    return output


def show_table(document: Mapping[str, Any], title: str) -> Console:
    output = wide_console(TABLE_WIDTH)
    output.print(title, highlight=False, markup=False, soft_wrap=True)
    output.print(as_table(document))
    if any(cache["pages"] for cache in document["caches"]):
        output.print(cache_table(document["caches"]))
    for note in NOTES:
        output.print(note, highlight=False, markup=False, soft_wrap=True)
    return output


def title_of(trace: Path, machine: Mapping[str, Any]) -> str:
    counts = [
        f"{machine[name]} {what}{'' if machine[name] == 1 else 's'}"
        for name, what in (("cpus", "CPU"), ("nodes", "node"))
    ]
    copies = f", {machine['repeat']} copies" if machine["repeat"] > 1 else ""
    return f"{trace.name} on {', '.join(counts)}{copies}; {machine['options'] or 'default options'}"
