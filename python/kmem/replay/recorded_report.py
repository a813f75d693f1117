# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A replay of a completed trace beside the kernel's own table: pages, caches and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.replay.recorded import Recorded, pages
from kmem.traces.slabinfo import CacheLine

TOTAL_PERCENT, CACHE_PERCENT = 5, 10
LARGE_CACHE_PAGES = 5  # caches of more pages are judged


def compare(table: Mapping[str, CacheLine], document: Mapping[str, Any]) -> dict[str, Any]:
    """Slab pages of the kernel and of the replay, in all and of each cache."""
    ours = {cache["name"]: cache for cache in document["caches"]}
    rows: list[dict[str, Any]] = []
    for name, kernel in table.items():
        cache = ours.pop(name, None)
        rows.append(
            {
                "cache": name,
                "stride_bytes": kernel.object_size,
                "kernel_objects_per_slab": kernel.objects_per_slab,
                "kernel_pages_per_slab": kernel.pages_per_slab,
                "objects_per_slab": cache["objects_per_slab"] if cache else None,
                "pages_per_slab": 1 << cache["order"] if cache else None,
                "kernel_active_objects": kernel.active_objects,
                "inuse": cache["inuse"] if cache else 0,
                "kernel_pages": pages(kernel),
                "pages": cache["pages"] if cache else 0,
            }
        )
    rows += [
        {"cache": name, "kernel_pages": 0, "pages": cache["pages"], "inuse": cache["inuse"]}
        for name, cache in ours.items()
    ]
    large = [row for row in rows if row["kernel_pages"] > LARGE_CACHE_PAGES]
    within = [
        row
        for row in large
        if abs(row["pages"] - row["kernel_pages"]) * 100 <= CACHE_PERCENT * row["kernel_pages"]
    ]
    totals = {key: sum(row[key] for row in rows) for key in ("kernel_pages", "pages")}
    difference = 100 * (totals["pages"] / totals["kernel_pages"] - 1)
    return {
        **totals,
        "difference_percent": round(difference, 2),
        "total_within": abs(difference) <= TOTAL_PERCENT,
        "large_caches": len(large),
        "large_caches_within": len(within),
        "caches_within": 10 * len(within) >= 9 * len(large),
        "other_layout": [
            row["cache"]
            for row in rows
            if row["inuse"]
            and row.get("kernel_objects_per_slab")
            and (row["objects_per_slab"], row["pages_per_slab"])
            != (row["kernel_objects_per_slab"], row["kernel_pages_per_slab"])
        ],
        "caches": [row for row in rows if row["kernel_pages"] or row["pages"]],
    }


def as_document(
    recorded: Recorded,
    plain: Mapping[str, Any],
    document: Mapping[str, Any],
    first: Mapping[str, int],
) -> dict[str, Any]:
    """The fields that --slabinfo adds to the result."""
    counted = compare(recorded.table, plain)
    del counted["caches"]
    return {
        **compare(recorded.table, document),
        "as_counted": counted,
        "map": [asdict(group) for group in recorded.mapped if group.name != "kmalloc"],
        "objects_not_in_trace": sum(recorded.missing.values()),
        "objects_first": {name: count for name, count in first.items() if count},
    }


def map_table(groups: Sequence[Mapping[str, Any]]) -> Table:
    output = Table(title="caches of the trace that have no name of the table", box=SIMPLE)
    output.title_justify = "left"
    output.add_column("in the trace", no_wrap=True)
    for heading in ("asked", "allocations", "live"):
        output.add_column(heading, justify="right", no_wrap=True)
    output.add_column("cache", no_wrap=True)
    output.add_column("by", no_wrap=True)
    for group in groups:
        if group["why"] != "name":
            figures = (group["asked"], group["allocations"], group["live"])
            output.add_row(group["name"], *map(str, figures), group["cache"], group["why"])
    return output


def page_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    output = Table(title=f"caches of more than {LARGE_CACHE_PAGES} pages", box=SIMPLE)
    output.title_justify = "left"
    output.add_column("cache", no_wrap=True)
    for heading in ("stride", "kernel's pages", "pages", ""):
        output.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        kernel, ours = row["kernel_pages"], row["pages"]
        if kernel > LARGE_CACHE_PAGES:
            off = f"{100 * (ours / kernel - 1):+.1f}%" if ours != kernel else "same"
            output.add_row(row["cache"], str(row["stride_bytes"]), str(kernel), str(ours), off)
    return output


def verdict(result: Mapping[str, Any]) -> str:
    return (
        f"{result['pages']:,} slab pages, the kernel has {result['kernel_pages']:,}:"
        f" {result['difference_percent']:+.2f}%; {result['large_caches_within']} of"
        f" {result['large_caches']} caches of more than {LARGE_CACHE_PAGES} pages within"
        f" {CACHE_PERCENT}%"
    )


def show(result: Mapping[str, Any], output: Console) -> None:
    output.print(map_table(result["map"]))
    output.print(page_table(result["caches"]))
    lines = [
        verdict(result),
        f"wanted: within {TOTAL_PERCENT}%: {'yes' if result['total_within'] else 'NO'}; 9 of 10"
        f" caches: {'yes' if result['caches_within'] else 'NO'}",
        f"with all {result['objects_not_in_trace']:,} objects first that the table counts and the"
        f" trace lacks, free ones of CPU slabs among them: {verdict(result['as_counted'])}",
    ]
    if result["other_layout"]:
        lines.append(
            f"slabs of another shape than the kernel's: {', '.join(result['other_layout'])}"
        )
    for line in lines:
        output.print(line, highlight=False, markup=False, soft_wrap=True)
