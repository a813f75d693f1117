# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A trace of a booting kernel beside the kernel's own slab table at the end of it.

The trace misses allocations from before tracing began, and calls without a tracepoint. So the
replay first allocates, for each cache, the objects that the table counts and the trace does not
hold at its end, all on CPU 0. The result is another trace, with the caches of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import polars as pl

from kmem.common.errors import KmemError
from kmem.common.files import read_text
from kmem.replay.mapping import GROUP, GroupKey, Shares, allocations, map_groups, missing_objects
from kmem.replay.tool import entries_of
from kmem.traces import file as tr
from kmem.traces.slabinfo import CacheLine, SlabinfoError, parse_slabinfo

# Options that make the replay comparable, in front of the user's. Without option kernel those of a
# kernel of 6.1, which has no sheaves; sizes beyond 8 KiB are pages. The caches of a table that
# others were merged into have one name of several, so the replay merges none.
OPTIONS = ("classes=kernel", "sheaf_capacity=0", "order_rule=5.10")
OPTIONS_OF_KERNEL = ("slab_merge=0",)

CORRECTIONS_MOST = 16
FIRST_BYTES = 384  # memory for an object that is allocated first: its record here and in the replay


def options_for(given: Sequence[str]) -> tuple[str, ...]:
    """The options of a replay: those of ours would win over the policies of option kernel."""
    of_kernel = any(entry.startswith("kernel=") for entry in entries_of(given))
    return (*(OPTIONS_OF_KERNEL if of_kernel else OPTIONS), *given)


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


class Recorded:
    """A trace with the caches of a table, to be completed by first allocations."""

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
        """The trace after `first` objects of each cache."""
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


def complete(
    recorded: Recorded, replay: Replay
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Documents of the replay with the table's counts as they are, and with fewer objects first;
    and how many of each cache these are.

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
    first = {name: count for name, (_, count) in nearest.items()}
    return plain, replay(recorded.completed(first)), first
