# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The text that `kmem top` shows: rows, their order, summaries and the details of a cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kmem.common.processes import title
from kmem.live.registry.caches import Cache
from kmem.live.registry.layout import FLAGS
from kmem.live.tables import table_row, word
from kmem.live.watch import (
    Figures,
    History,
    Rates,
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


@dataclass(frozen=True)
class Column:
    """A column of a table; one with a higher rank leaves a narrow terminal first."""

    name: str
    width: int  # 0: the rest of the line
    rank: int = 0


# The name comes first, and is always there.
CACHE_COLUMNS = (
    Column("NAME", 0),
    Column("SIZE", 6),
    Column("GROWTH", 7),
    Column("CALLS/S", 7, 3),
    Column("OBJS", 8, 4),
    Column("USE", 4, 1),
    Column("OBJSIZE", 7, 5),
    Column("WASTE", 6, 6),
    Column("SLABS", 6, 7),
    Column("TREND", TREND_WIDTH, 2),
)
PROCESS_COLUMNS = (
    Column("COMMAND", 0),
    Column("PID", 7),
    Column("SIZE", 6),
    Column("GROWTH", 7),
    Column("CALLS/S", 7, 2),
    Column("RSS", 6, 3),
    Column("WASTE", 6, 4),
    Column("OBJS", 8, 5),
    Column("CACHES", 6, 6),
    Column("TREND", TREND_WIDTH, 1),
)
Columns = tuple[Column, ...]
NAME_LEAST, NAME_MOST = 16, 48  # columns of the terminal
# What each column says, for the help.
MEANINGS = {
    "NAME": "the cache; size classes of malloc are kmalloc-SIZE",
    "COMMAND": "the program, and the words that it was started with",
    "PID": "number of the process",
    "SIZE": "memory in slabs, the cache's whole pages",
    "GROWTH": "change of SIZE over the moments of TREND, and some before",
    "CALLS/S": "allocations and frees a second, at least: a sheaf hides pairs",
    "OBJS": "objects that the slabs have room for",
    "USE": "share of these that are in use or kept ready for a CPU",
    "OBJSIZE": "bytes that an object takes, with padding",
    "WASTE": "memory in slabs that the program did not ask for",
    "SLABS": "number of slabs",
    "RSS": "resident memory of the whole process",
    "CACHES": "number of caches",
    "TREND": "SIZE at the last moments, from 0 up to the largest of them",
}


# And what the lines above the table say.
SUMMARY_MEANINGS = {
    "objects": "in use or kept ready for a CPU, of those with room in slabs",
    "waste": "the sum of WASTE",
    "held": "slabs, large blocks, and free pages not given back yet",
    "large": "blocks above the classes of malloc, up to 32 MiB",
    "huge": "larger blocks, in mappings of their own",
    "sheaf": "a store of free objects of a CPU; it serves most calls",
}


def fit(columns: Columns, width: int) -> list[tuple[int, int]]:
    """The columns that a line has room for: index and width of each, the name at least as wide as
    NAME_LEAST, where that can be."""
    shown = list(range(len(columns)))

    def rest() -> int:
        return width - sum(columns[index].width + 1 for index in shown if columns[index].width)

    while rest() < NAME_LEAST:
        last = max(shown, key=lambda index: columns[index].rank)
        if columns[last].rank == 0:
            break
        shown.remove(last)
    name = min(max(rest(), 1), NAME_MOST)
    return [(index, columns[index].width or name) for index in shown]


def cell(text: str, width: int, *, is_name: bool) -> str:
    """Names stand on the left, and lose their end where there is no room; figures on the right."""
    if not is_name:
        return text.rjust(width)
    return (text if len(text) <= width else text[: width - 1] + "…").ljust(width)


def sorted_caches(caches: Sequence[Cache], order: Order, history: History) -> list[Cache]:
    """Sorted caches; caches with equal keys go by name."""
    by_name = sorted(caches, key=lambda cache: cache.name)
    return sorted(by_name, key=lambda cache: order.key(cache, history), reverse=order.falling)


def calls(cache: Cache) -> int:
    """Allocations and frees so far, at least."""
    return cache.slow_calls + cache.fast_calls


def cache_rows(figures: Figures, order: Order, history: History, rates: Rates) -> list[Row]:
    rows = []
    for cache in sorted_caches(figures.caches, order, history):
        birth = cache["birth"]
        cells = [
            word(cache.name),
            short_bytes(cache.slab_bytes),
            history.shown_growth(birth),
            rates.shown(birth),
            str(cache.objects),
            f"{use_percent(cache)}%",
            str(cache["slab_size"]),
            short_bytes(waste_bytes(cache)),
            str(cache.total("slabs")),
            sparkline(history.values(birth), TREND_WIDTH),
        ]
        rows.append((birth, cells))
    return rows


def short_title(process: int) -> str:
    text = title(process)
    return text if len(text) <= NAME_MOST else text[: NAME_MOST - 1] + "…"


def process_rows(processes: Sequence[Figures], history: History, rates: Rates) -> list[Row]:
    rows = []
    for figures in sorted(processes, key=lambda figures: figures.slab_bytes, reverse=True):
        cells = [
            short_title(figures.process),
            str(figures.process),
            short_bytes(figures.slab_bytes),
            history.shown_growth(figures.process),
            rates.shown(figures.process),
            short_bytes(figures.resident_bytes),
            short_bytes(figures.waste_bytes),
            str(figures.objects),
            str(len(figures.caches)),
            sparkline(history.values(figures.process), TREND_WIDTH),
        ]
        rows.append((figures.process, cells))
    return rows


def table(columns: Columns, rows: Sequence[Row]) -> list[str]:
    """All columns as lines, with room for the longest name."""
    name = max([len(cells[0]) for _, cells in rows] + [len(columns[0].name)])
    lines = [[column.name for column in columns], *(cells for _, cells in rows)]
    return [
        " ".join(
            cell(text, column.width or name, is_name=not column.width)
            for column, text in zip(columns, cells, strict=True)
        ).rstrip()
        for cells in lines
    ]


def help_text(columns: Columns) -> str:
    """What the columns and the keys mean."""
    orders = [f"{key} {order.name}" for key, order in ORDERS.items()]
    half = (len(orders) + 1) // 2
    pairs = zip(orders[:half], [*orders[half:], ""][:half], strict=True)
    return "\n".join(
        [
            "Columns; a narrow terminal leaves some out",
            *(f"  {column.name:<8} {MEANINGS[column.name]}" for column in columns),
            "",
            "Lines above the table; sizes in bytes, K, M and G are powers of 1024",
            *(f"  {word:<8} {meaning}" for word, meaning in SUMMARY_MEANINGS.items()),
            "",
            "Keys: enter opens a process or a cache, escape goes back,",
            "space looks now, q and Ctrl-C quit.",
            "Caches are sorted by",
            *(f"  {left:<20} {right}".rstrip() for left, right in pairs),
        ]
    )


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
        f"All {len(processes)} processes on libkmem that can be seen"
        if processes
        else "No process on libkmem can be seen",
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
