# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What would come back of a process's heap: by a trim, by smaller slabs, by another class table.

A trim and smaller slabs follow from the places of the objects: the process has counted the parts of
its slabs in which nothing is in use. Another class table has objects in other slabs, so a load with
the process's classes is replayed on the simulated machine, with the one table and with the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kmem.common.errors import KmemError
from kmem.common.tree import build
from kmem.explain.facts import computed
from kmem.explain.process.figures import ORDERS, Process, is_changed
from kmem.explain.process.load import Load, smaller, trace
from kmem.explain.process.shares import (
    FINE_CLASSES,
    KERNEL_CLASSES,
    Explained,
    Totals,
    class_bytes,
    is_fine,
)
from kmem.explain.table import Figure
from kmem.live.registry.file import PAGE_BYTES
from kmem.replay.tool import TOOLS, run, tool_arguments
from kmem.traces.file import write_trace

OBJECTS_MOST = 200_000  # of a replayed load; a larger heap is made smaller
# By so much of slabs and large blocks a class table's saving may be wrong: how the program's next
# objects lie between those that stay is not in its figures. tests/explain holds predictions to it.
CLASSES_OFF = 0.1
MODEL_OFF_MOST = 0.15  # of the slabs: a replay that misses more of the present table says nothing
CLASSES_LEAST_BYTES = 1 << 20  # of slabs: for less no class table is tried


@dataclass(frozen=True)
class Trim:
    """What `kmem trim` gives back now; None where the process did not answer."""

    slabs: Figure | None  # empty slabs, and pages inside slabs
    sheaves: Figure | None  # pages that come free once sheaves are emptied
    free_pages: Figure
    huge_kept: Figure

    @property
    def total(self) -> Figure | None:
        if self.slabs is None or self.sheaves is None:
            return None
        parts = (self.slabs, self.sheaves, self.free_pages, self.huge_kept)
        whole = sum(part.value for part in parts)
        return Figure(whole, self.sheaves.how)


def from_sheaves(process: Process, one: Explained) -> Figure:
    """Bytes of pages that come free as sheaves are emptied.

    Those of slabs with other free objects were counted by the process. Full slabs are on no list:
    of them an object of a page or more has pages of its own, and smaller ones count for nothing.
    """
    sheaves, stride = one.shares.sheaves, one.cache["slab_size"]
    flushed = process.asked.flushed.get(one.birth, 0)
    counted = max(flushed - one.due.value, 0) if one.due else 0
    own = 0.0
    if sheaves and stride >= PAGE_BYTES:
        own = sheaves.value // stride * (stride // PAGE_BYTES * PAGE_BYTES)
    return Figure(max(counted, own), "modelled" if own > counted else "computed")


def free_bytes(process: Process, one: Explained) -> int:
    """Bytes of whole free pages in the cache's slabs; at least those that a trim would take."""
    known = process.asked.free.get(1, {}).get(one.birth)
    return int(one.due.value if one.due else 0) if known is None else known


def predict_trim(process: Process, caches: Sequence[Explained], totals: Totals) -> Trim:
    slabs = sheaves = None
    # Hardened blocks are trimmed too, and nobody counts how much of them is free.
    if process.asked.answered and not process.hardened_bytes:
        slabs = computed(sum(one.due.value for one in caches if one.due))
        back = [
            from_sheaves(process, one) for one in caches if one.cache.fields["engine"] == "slub"
        ]
        modelled = any(one.how == "modelled" for one in back)
        sheaves = Figure(sum(one.value for one in back), "modelled" if modelled else "computed")
    return Trim(slabs, sheaves, totals.free_pages, totals.huge_kept)


@dataclass(frozen=True)
class Saving:
    """What an option would have saved, and how that was found out."""

    option: str
    bytes: Figure
    how: str
    off_bytes: float = 0.0  # by which it may be wrong on either side; 0: it is counted

    @property
    def least_bytes(self) -> float:
        return self.bytes.value - self.off_bytes

    @property
    def interval(self) -> str:
        """How much it may be, as a part of a sentence; nothing where it is counted."""
        if not self.off_bytes:
            return ""
        least, most = self.least_bytes / 2**20, (self.bytes.value + self.off_bytes) / 2**20
        return f"between {least:,.1f} and {most:,.1f} MiB"


def with_parts(process: Process, one: Explained, pages: int) -> float | None:
    """Bytes of the cache's slabs less those that it would have with slabs of so many pages.

    None if its slabs would not change, or nothing is known.
    """
    free = process.asked.free.get(pages, {}).get(one.birth)
    whole_pages, stride = one.cache.pages_per_slab, one.cache["slab_size"]
    if free is None or not is_changed(one.cache, pages):
        return None
    per_slab = pages * PAGE_BYTES // stride
    # A smaller slab has another rest behind its last object.
    longer = one.cache["objs_per_slab"] / whole_pages * pages / per_slab
    back = max(free_bytes(process, one) - (one.due.value if one.due else 0), 0)
    left = max((one.cache.slab_bytes - free) * longer, one.live.value * stride)
    return one.cache.slab_bytes - back - left


def predict_orders(process: Process, caches: Sequence[Explained]) -> list[Saving]:
    """For each smaller order that changes slabs."""
    found = []
    for order in ORDERS:
        savings = [with_parts(process, one, 1 << order) for one in caches]
        known = [saving for saving in savings if saving is not None]
        if known:
            how = (
                f"{len(known)} cache{'s' if len(known) > 1 else ''} with slabs of"
                f" {1 << order} page{'s' if order else ''}: free where as many pages have no object"
                " in use, less the longer ends of slabs and what was given back already"
            )
            found.append(
                Saving(f"slub_max_order={order}", Figure(round(sum(known)), "computed"), how)
            )
    return found


@dataclass(frozen=True)
class Replayed:
    """A replay's answer, or why there is none."""

    saving: Saving | None
    reason: str
    slabs: Figure | None = None  # of the classes, as they are
    model: Figure | None = None  # as the replay of the present table has them


def sizes_in(cache_bytes: int, *, fine: bool) -> list[int]:
    """Sizes of the finer table that a class of the present table serves."""
    if fine:
        return [cache_bytes]
    below = max((one for one in KERNEL_CLASSES if one < cache_bytes), default=0)
    return [one for one in FINE_CLASSES if below < one <= cache_bytes] or [cache_bytes]


def loads_of(process: Process, one: Explained, *, fine: bool) -> Iterator[Load]:
    """The load of a class; where the present table is the coarser one, sizes in equal shares."""
    size = class_bytes(one.cache)
    assert size is not None
    sizes = sizes_in(size, fine=fine)
    objects, live = one.cache.objects, int(one.live.value)
    free = free_bytes(process, one) / one.cache.slab_bytes
    for number, requested in enumerate(sizes):
        slots, stay = (
            count * (number + 1) // len(sizes) - count * number // len(sizes)
            for count in (objects, live)
        )
        if slots:
            yield Load(requested, max(one.cache["objs_per_slab"], 1), slots, min(stay, slots), free)


def predict_classes(process: Process, caches: Sequence[Explained], totals: Totals) -> Replayed:
    """Replays the classes of malloc with the present table and with the other one."""
    classes = [
        one
        for one in caches
        if class_bytes(one.cache) is not None and one.cache.fields["engine"] == "slub"
    ]
    slabs = sum(one.cache.slab_bytes for one in classes)
    if slabs < CLASSES_LEAST_BYTES:
        return Replayed(None, f"size classes have {slabs / 1024:,.0f} KiB, too little to try")
    if not process.asked.answered:
        return Replayed(None, "the process did not say which pages of its slabs are free")
    fine = is_fine(process.caches)
    present, other = ("fine", "kernel") if fine else ("kernel", "fine")
    loads = [load for one in classes for load in loads_of(process, one, fine=fine)]
    share = min(1.0, OBJECTS_MOST / max(sum(load.slots for load in loads), 1))
    loads = [smaller(load, share) for load in loads]
    build(TOOLS[4])
    with TemporaryDirectory(prefix="kmem-explain-") as folder:
        file = Path(folder) / "classes.ktrace"
        write_trace(file, trace(loads, "kmem explain"))
        try:
            sized = {table: replayed_bytes(file, table) / share for table in (present, other)}
        except KmemError as error:
            return Replayed(None, str(error))
    off = abs(sized[present] - slabs)
    how = (
        f"replay of {sum(load.slots for load in loads):,} objects in the process's classes"
        + (f", {100 * share:.3g}% of them" if share < 1 else "")
        + ("" if fine else ", sizes within a class in equal shares")
        + f": {sized[present] / 2**20:,.1f} MiB with classes={present},"
        f" {sized[other] / 2**20:,.1f} with classes={other}; the process has"
        f" {slabs / 2**20:,.1f}"
    )
    if off > MODEL_OFF_MOST * slabs:
        return Replayed(
            None,
            f"a replay with classes={present} has {sized[present] / 2**20:,.1f} MiB where the"
            f" process has {slabs / 2**20:,.1f}, so no other table can be judged by it",
            Figure(slabs, "computed"),
            Figure(round(sized[present]), "modelled"),
        )
    back = sum(one.shares.given_back.value for one in classes if one.shares.given_back)
    return Replayed(
        Saving(
            f"classes={other}",
            Figure(round(sized[present] - sized[other] - back), "modelled"),
            how + (f", of which {back / 2**20:,.1f} were given back" if back else ""),
            max(CLASSES_OFF * (totals.slabs.value + totals.large.value), off),
        ),
        "",
        Figure(slabs, "computed"),
        Figure(round(sized[present]), "modelled"),
    )


def replayed_bytes(file: Path, table: str) -> int:
    """Bytes of pages at the end of the load, with a class table."""
    document, _ = run(file, tool_arguments(f"classes={table}", None, None, None))
    return int(document["end"]["pages"]) * PAGE_BYTES
