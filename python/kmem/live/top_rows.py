# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The text that `kmem top` shows: rows, their order, summaries and the details of a cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kmem.live.registry.caches import Cache
from kmem.live.registry.layout import FLAGS
from kmem.live.tables import table_row, word
from kmem.live.watch import (
    Figures,
    History,
    active_bytes,
    fast_share,
    short_bytes,
    sparkline,
    use_percent,
    waste_bytes,
)

MOMENTS = 60  # moments of history; growth is over these
TREND_WIDTH = 10

Row = tuple[int, list[str]]  # its key, its cells


@dataclass(frozen=True)
class Order:
    """A way to sort caches."""

    name: str
    key: Callable[[Cache, History], Any]
    falling: bool = True


# By key; slabtop's but for g and w.
ORDERS = {
    "c": Order("size", lambda cache, _: cache.slab_bytes),
    "g": Order("growth", lambda cache, history: history.growth(cache["birth"])),
    "w": Order("waste", lambda cache, _: waste_bytes(cache)),
    "o": Order("objects", lambda cache, _: cache.objects),
    "a": Order("active objects", lambda cache, _: cache.active),
    "u": Order("use", lambda cache, _: use_percent(cache)),
    "s": Order("object size", lambda cache, _: cache["slab_size"]),
    "l": Order("slabs", lambda cache, _: cache.total("slabs")),
    "v": Order("active slabs", lambda cache, _: table_row(cache)["active_slabs"]),
    "b": Order("objects per slab", lambda cache, _: cache["objs_per_slab"]),
    "p": Order("pages per slab", lambda cache, _: cache.pages_per_slab),
    "n": Order("name", lambda cache, _: cache.name, falling=False),
}

CACHE_COLUMNS = (
    ("SIZE", 6),
    ("GROWTH", 7),
    ("WASTE", 6),
    ("OBJS", 8),
    ("USE", 4),
    ("OBJSIZE", 7),
    ("SLABS", 6),
    ("TREND", TREND_WIDTH),
    ("NAME", 0),
)
PROCESS_COLUMNS = (
    ("PID", 7),
    ("SIZE", 6),
    ("GROWTH", 7),
    ("WASTE", 6),
    ("OBJS", 8),
    ("CACHES", 6),
    ("RSS", 6),
    ("TREND", TREND_WIDTH),
    ("COMMAND", 0),
)
Columns = tuple[tuple[str, int], ...]


def sorted_caches(caches: Sequence[Cache], order: Order, history: History) -> list[Cache]:
    """Sorted caches; caches with equal keys go by name."""
    by_name = sorted(caches, key=lambda cache: cache.name)
    return sorted(by_name, key=lambda cache: order.key(cache, history), reverse=order.falling)


def cache_rows(figures: Figures, order: Order, history: History) -> list[Row]:
    rows = []
    for cache in sorted_caches(figures.caches, order, history):
        birth = cache["birth"]
        cells = [
            short_bytes(cache.slab_bytes),
            short_bytes(history.growth(birth), sign=True),
            short_bytes(waste_bytes(cache)),
            str(cache.objects),
            f"{use_percent(cache)}%",
            str(cache["slab_size"]),
            str(cache.total("slabs")),
            sparkline(history.values(birth), TREND_WIDTH),
            word(cache.name),
        ]
        rows.append((birth, cells))
    return rows


def process_rows(processes: Sequence[Figures], history: History) -> list[Row]:
    rows = []
    for figures in sorted(processes, key=lambda figures: figures.slab_bytes, reverse=True):
        cells = [
            str(figures.process),
            short_bytes(figures.slab_bytes),
            short_bytes(history.growth(figures.process), sign=True),
            short_bytes(figures.waste_bytes),
            str(figures.objects),
            str(len(figures.caches)),
            short_bytes(figures.resident_bytes),
            sparkline(history.values(figures.process), TREND_WIDTH),
            figures.command,
        ]
        rows.append((figures.process, cells))
    return rows


def line(columns: Columns, cells: Sequence[str]) -> str:
    shown = [cell.rjust(width) for (_, width), cell in zip(columns, cells, strict=True)]
    return " ".join(shown)


def heading(columns: Columns) -> str:
    return line(columns, [name for name, _ in columns])


def process_summary(figures: Figures) -> list[str]:
    objects = max(figures.objects, 1)
    heap = figures.heap
    blocks = (
        "not shown by its release of the library"
        if heap is None
        else f"held {short_bytes(heap.held_bytes)}, of these large blocks"
        f" {short_bytes(heap.large_bytes)}, free {short_bytes(heap.free_touched_bytes)};"
        f" huge blocks {short_bytes(heap.huge_bytes + heap.huge_kept_bytes)}"
    )
    return [
        f"Process {figures.process} {figures.command}, {len(figures.caches)} caches,"
        f" resident {short_bytes(figures.resident_bytes)}",
        f"Slabs   {short_bytes(figures.slab_bytes)} in {figures.slabs}, objects {figures.active} of"
        f" {figures.objects} ({100 * figures.active // objects}%), waste"
        f" {short_bytes(figures.waste_bytes)}",
        f"Heap    {blocks}",
    ]


def processes_summary(processes: Sequence[Figures]) -> list[str]:
    objects = sum(figures.objects for figures in processes)
    active = sum(figures.active for figures in processes)
    return [
        f"All {len(processes)} processes on libkmem that can be seen",
        f"Slabs   {short_bytes(sum(figures.slab_bytes for figures in processes))}, objects {active}"
        f" of {objects} ({100 * active // max(objects, 1)}%), waste"
        f" {short_bytes(sum(figures.waste_bytes for figures in processes))}",
        f"Resident {short_bytes(sum(figures.resident_bytes for figures in processes))}",
    ]


def fast_part(cache: Cache) -> list[str]:
    share = fast_share(cache.fast_calls, cache.slow_calls)
    return [] if share is None else [f"fast path >= {100 * share:.1f}%"]


def detail(cache: Cache, history: History, width: int) -> list[str]:
    """A cache's attributes, as docs/attributes.md names them."""
    row = table_row(cache)
    flags = [name for name in FLAGS.split() if cache.flags.get(name)]
    parts = [
        f"slabs {cache.total('slabs')}",
        f"partial {cache.total('partial')}",
        f"objects {cache.objects}",
        f"active {cache.active}",
        f"taken {cache.taken}",
        f"given {cache.given}",
        *fast_part(cache),
        f"asked for {short_bytes(active_bytes(cache))}",
        *(
            f"{name} {cache[name]}"
            for name in (
                *("object_size", "slab_size", "objs_per_slab", "order", "align", "min_partial"),
                *("cpu_partial", "sheaf_capacity", "usersize", "aliases"),
            )
        ),
        *(f"{name} {row[name]}" for name in ("limit", "batchcount") if row[name]),
    ]
    lines = [
        f"{word(cache.name)}: engine {cache.fields['engine']}"
        + (f", {' '.join(flags)}" if flags else "")
    ]
    column = 26
    fit = max(width // column, 1)
    for start in range(0, len(parts), fit):
        lines.append("".join(part.ljust(column) for part in parts[start : start + fit]).rstrip())
    lines.append(sparkline(history.values(cache["birth"]), min(width, MOMENTS)).strip())
    return lines
