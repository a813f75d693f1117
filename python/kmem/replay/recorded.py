# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trace of a booting kernel beside the kernel's own slab table at the end of it.

The trace misses what was allocated before tracing began and by calls without a tracepoint. So for
each cache the objects that the table counts and the trace does not hold at its end are allocated
first, all on CPU 0. Names that the trace lacks are found by size and place of the call
(traces/sites.csv); kmalloc's flavour by the flags of the call. The result is another trace, whose
caches are those of the table.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import polars as pl
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.common.errors import KmemError
from kmem.common.files import read_text
from kmem.traces import file as tr
from kmem.traces.slabinfo import CacheLine, SlabinfoError, parse_slabinfo

SITES = Path(tr.__file__).parent / "sites.csv"

# What the replay has to be like to be comparable: a kernel of 6.1 has no sheaves, and sizes beyond
# 8 KiB are pages.
OPTIONS = ("classes=kernel", "sheaf_capacity=0", "order_rule=5.10")

# gfp bits of 6.1 that choose the flavour of kmalloc's caches.
GFP_DMA, GFP_RECLAIMABLE, GFP_ACCOUNT = 0x1, 0x10, 0x400000

TOTAL_PERCENT, CACHE_PERCENT = 5, 10
LARGE_CACHE_PAGES = 5  # caches of more pages are judged
CORRECTIONS_MOST = 16
FIRST_BYTES = 384  # memory for an object that is allocated first: its record here and in the replay
KMALLOC = re.compile(r"kmalloc-(?:(?:cg|rcl)-)?(?P<size>\d+)(?P<kilo>k?)")


@dataclass(frozen=True)
class Mapped:
    """Allocations of the trace that are alike, and the cache that they went to."""

    name: str  # in the trace
    size: int  # from one object to the next
    asked: int  # bytes; 0: any, for kmalloc
    allocations: int
    live: int  # of those, at the end of the trace
    cache: str  # in the table, or a name of its own
    why: str


# A cache and how many objects of a group go there; the last of a group takes all that follow.
Shares = list[tuple[str, int]]


def read_sites() -> dict[str, list[str]]:
    with SITES.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["function"]: row["caches"].split() for row in rows}


def read_table(file: Path) -> dict[str, CacheLine]:
    text = read_text(file, "replay: --slabinfo")
    try:
        table = {cache.name: cache for cache in parse_slabinfo(text)}
    except SlabinfoError as error:
        raise KmemError(f"replay: --slabinfo {file}: {error}") from None
    if not any(map(pages, table.values())):
        raise KmemError(f"replay: --slabinfo {file}: no cache in it has a slab")
    return table


def pages(cache: CacheLine) -> int:
    return cache.slabs * cache.pages_per_slab


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
        # What tells groups apart: flags for kmalloc, the bytes asked for with other caches.
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
        """Caches that may be meant, the first one first, and why; none if no size fits."""
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
        # Which of some objects were freed is not known of each, so such groups stay together.
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
    # Those with names first, so that the others see what is left.
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


class Recorded:
    """A trace with the caches of a table, ready to be completed by first allocations."""

    def __init__(self, trace: tr.Trace, table: Mapping[str, CacheLine]) -> None:
        born = allocations(trace)
        self.table = table
        self.mapped, shares = map_groups(trace, table, born)
        self.missing = missing_objects(table, self.mapped)
        unknown = sorted({group.cache for group in self.mapped} - table.keys() - {"kmalloc"})
        self.names = ["kmalloc", "?", *table, *unknown]
        if len(self.names) > tr.CACHES_MOST:
            raise KmemError(
                f"replay: --slabinfo: {len(self.names):,} caches with those of the trace; expected"
                f" at most {tr.CACHES_MOST:,}"
            )
        self.ids = {name: number for number, name in enumerate(self.names)}
        self.trace = trace
        self.events = self.with_caches(born, shares)

    def with_caches(self, born: pl.DataFrame, shares: Mapping[GroupKey, Shares]) -> pl.DataFrame:
        """The records with the table's caches; frees of objects from before are left out."""
        sources: dict[GroupKey, Iterator[int]] = {}
        for key, shared in shares.items():
            *parts, (last, _) = [(self.ids[cache], count) for cache, count in shared]
            sources[key] = chain(*(repeat(cache, count) for cache, count in parts), repeat(last))
        cache_of = born.select(
            "object",
            pl.Series(
                "new_cache",
                [next(sources[key]) for key in born.select(GROUP).iter_rows()],
                dtype=tr.TYPES["cache"],
            ),
        )
        kept = self.trace.records.filter((pl.col("operation") & tr.OPERATION_MASK) != tr.ORPHAN)
        return (
            kept.join(cache_of, on="object", how="left", maintain_order="left")
            .with_columns(cache=pl.coalesce("new_cache", "cache"))
            .select(list(tr.COLUMNS))
        )

    def completed(self, first: Mapping[str, int]) -> tr.Trace:
        """The trace after @first objects of each cache."""
        before = first_allocations(first, self.table, self.ids, self.trace.objects)
        return tr.Trace(
            records=pl.concat([before, self.events]),
            caches=self.names,
            sites=self.trace.sites,
            objects=self.trace.objects + before.height,
            cpus=self.trace.cpus,
            page_bytes=self.trace.page_bytes,
            source=self.trace.source,
        )


def first_allocations(
    first: Mapping[str, int],
    table: Mapping[str, CacheLine],
    ids: Mapping[str, int],
    first_object: int,
) -> pl.DataFrame:
    names = [name for name, count in first.items() for _ in range(count)]
    columns: dict[str, Any] = {
        "time": 0,
        "requested": [table[name].object_size for name in names],
        "given": [table[name].object_size for name in names],
        "thread": 0,
        "object": list(range(first_object, first_object + len(names))),
        "site": tr.SITE_UNKNOWN,
        "flags": 0,
        "cpu": 0,
        "cache": [ids[name] for name in names],
        "operation": tr.ALLOC,
    }
    return pl.DataFrame(
        [
            pl.Series(name, value if isinstance(value, list) else [value] * len(names), kind)
            for (name, value), kind in zip(columns.items(), tr.TYPES.values(), strict=True)
        ]
    )


Replay = Callable[[tr.Trace], dict[str, Any]]


def counted_beyond(recorded: Recorded, document: Mapping[str, Any]) -> dict[str, int]:
    """Active objects of each cache as the replay's own table counts them, less the kernel's."""
    ours = {cache["name"]: cache["active"] for cache in document["caches"]}
    return {
        name: ours.get(name, 0) - cache.active_objects for name, cache in recorded.table.items()
    }


def complete(recorded: Recorded, replay: Replay) -> tuple[dict[str, Any], dict[str, Any]]:
    """Documents of the replay with the table's counts as they are, and with fewer objects first.

    A table counts free objects of CPU slabs and of CPU partial slabs as active (S9-11), so not all
    objects that it counts were in use. They are taken back until the replay's own table counts as
    many as the kernel's does, or as near to that as it comes.
    """
    first = dict(recorded.missing)
    plain = document = replay(recorded.completed(first))
    nearest = {name: (recorded.table[name].objects + count, count) for name, count in first.items()}
    for _ in range(CORRECTIONS_MOST):
        beyond = counted_beyond(recorded, document)
        for name, count in first.items():
            if abs(beyond[name]) < nearest[name][0]:
                nearest[name] = abs(beyond[name]), count
        fewer = {name: max(0, count - max(0, beyond[name])) for name, count in first.items()}
        if fewer == first:
            break
        first = fewer
        document = replay(recorded.completed(first))
    return plain, replay(recorded.completed({name: near[1] for name, near in nearest.items()}))


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
    recorded: Recorded, plain: Mapping[str, Any], document: Mapping[str, Any]
) -> dict[str, Any]:
    """What --slabinfo adds to the result."""
    counted = compare(recorded.table, plain)
    del counted["caches"]
    return {
        **compare(recorded.table, document),
        "as_counted": counted,
        "map": [asdict(group) for group in recorded.mapped if group.name != "kmalloc"],
        "objects_not_in_trace": sum(recorded.missing.values()),
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
