# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds the caches of a kernel's slab table that the allocations of a trace went to.

Names that the trace lacks are found by size and place of the call (traces/sites.csv); kmalloc's
flavour by the flags of the call.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kmem.traces import file as tr
from kmem.traces.slabinfo import CacheLine

SITES = Path(tr.__file__).parent / "sites.csv"

# gfp bits of 6.1 that choose the flavour of kmalloc's caches.
GFP_DMA, GFP_RECLAIMABLE, GFP_ACCOUNT = 0x1, 0x10, 0x400000


@dataclass(frozen=True)
class Mapped:
    """A group of equal allocations of the trace, and the cache that they went to."""

    name: str  # in the trace
    size: int  # of an object with padding
    asked: int  # bytes; 0: any, for kmalloc
    allocations: int
    live: int  # objects that are left at the end of the trace
    cache: str  # name in the table, or a name of its own
    why: str


# A cache and how many objects of a group go there; the last cache of a group takes all others.
Shares = list[tuple[str, int]]


def read_sites() -> dict[str, list[str]]:
    with SITES.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["function"]: row["caches"].split() for row in rows}


def kmalloc_cache(size: int, flags: int, table: Mapping[str, CacheLine]) -> str | None:
    """The kernel's cache for a kmalloc of this class; None if the table has none of the size."""
    number = f"{size // 1024}k" if size >= 1024 and size % 1024 == 0 else str(size)
    flavours = []
    if flags & GFP_DMA:
        flavours.append("dma-kmalloc-")
    elif flags & GFP_RECLAIMABLE:
        flavours.append("kmalloc-rcl-")
    elif flags & GFP_ACCOUNT:
        flavours.append("kmalloc-cg-")
    for flavour in [*flavours, "kmalloc-"]:
        if flavour + number in table:
            return flavour + number
    return None


def allocations(trace: tr.Trace) -> pl.DataFrame:
    """Every allocation with `lives`: whether its object is there at the end."""
    operation = pl.col("operation") & tr.OPERATION_MASK
    freed = trace.records.filter(operation.is_in([tr.FREE, tr.IMPLIED])).get_column("object")
    flags = pl.col("flags") & (GFP_DMA | GFP_RECLAIMABLE | GFP_ACCOUNT)
    kmalloc = pl.col("cache") == tr.CACHE_KMALLOC
    return trace.records.filter(operation == tr.ALLOC).with_columns(
        lives=~pl.col("object").is_in(freed.implode()),
        # Groups differ in the flags for kmalloc, and in the requested bytes with other caches.
        flavour=pl.when(kmalloc).then(flags).otherwise(0),
        asked=pl.when(kmalloc).then(0).otherwise(pl.col("requested")),
    )


GROUP = ["cache", "given", "flavour", "asked"]


class Mapper:
    """Finds the caches of the table for each group of allocations."""

    def __init__(self, table: Mapping[str, CacheLine]) -> None:
        self.table = table
        self.sites = read_sites()
        # Objects that the table counts and that no group has explained yet.
        self.unexplained = {name: cache.active_objects for name, cache in table.items()}

    def of_site(self, name: str, asked: int, fitting: Sequence[str]) -> list[str]:
        # "?function.constprop.0:size"
        function = name.removeprefix("?").partition(":")[0].partition(".")[0]
        known = [cache.replace("BYTES", str(asked)) for cache in self.sites.get(function, [])]
        return [cache for cache in known if cache in fitting]

    def find(self, name: str, size: int, asked: int) -> tuple[list[str], str]:
        """Caches that are possible, the first cache first, and the reason; none if no size fits."""
        same = self.table.get(name)
        if same and same.object_size == size:
            return [name], "name"
        fitting = [
            cache.name
            for cache in self.table.values()
            if cache.object_size == size and cache.objects and "kmalloc-" not in cache.name
        ]
        if known := self.of_site(name, asked, fitting):
            return known, "site and size"
        if len(fitting) <= 1:
            return fitting, "only one of the size"
        most = max(fitting, key=lambda cache: self.unexplained[cache])
        return [most], "size, most objects unexplained"

    def share(self, caches: Sequence[str], live: int) -> Shares:
        """How many of the objects each cache gets: as many as its table still counts."""
        shares: Shares = []
        for cache in caches[:-1]:
            part = min(live, max(0, self.unexplained[cache]))
            if part:
                shares.append((cache, part))
            live -= part
        if live or not shares:
            shares.append((caches[-1], live))
        for cache, part in shares:
            self.unexplained[cache] -= part
        return shares

    def map_group(self, name: str, row: Mapping[str, int]) -> tuple[Shares, str]:
        size = row["given"]
        if name == "kmalloc":
            found = kmalloc_cache(size, row["flavour"], self.table)
            caches, why = [found] if found else [], "size and flags"
        else:
            caches, why = self.find(name, size, row["asked"])
        if not caches:
            return [("kmalloc" if name == "kmalloc" else f"{name}:{size}", row["live"])], "no cache"
        # It is not known which objects of a cache were freed, so a group with frees is not divided.
        whole = row["live"] == row["len"]
        return self.share(caches if whole else caches[:1], row["live"]), why


GroupKey = tuple[int, ...]


def map_groups(
    trace: tr.Trace, table: Mapping[str, CacheLine], born: pl.DataFrame
) -> tuple[list[Mapped], dict[GroupKey, Shares]]:
    mapper = Mapper(table)
    groups = born.group_by(GROUP).agg(pl.len(), pl.col("lives").sum().alias("live"))
    mapped: list[Mapped] = []
    shares = {}
    # Groups with names come first, so that the others see only the objects that are left.
    for row in sorted(
        groups.iter_rows(named=True),
        key=lambda row: (trace.caches[row["cache"]].startswith("?"), *row.values()),
    ):
        name = trace.caches[row["cache"]]
        shared, why = mapper.map_group(name, row)
        shares[tuple(row[key] for key in GROUP)] = shared
        for cache, part in shared:
            count = part if len(shared) > 1 else row["len"]
            mapped.append(Mapped(name, row["given"], row["asked"], count, part, cache, why))
    return mapped, shares


def missing_objects(table: Mapping[str, CacheLine], mapped: Sequence[Mapped]) -> dict[str, int]:
    """For each cache the objects that the table counts and the trace does not hold at its end."""
    live = dict.fromkeys(table, 0)
    for group in mapped:
        live[group.cache] = live.get(group.cache, 0) + group.live
    return {
        name: cache.active_objects - live[name]
        for name, cache in table.items()
        if cache.active_objects > live[name]
    }
