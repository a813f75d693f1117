# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the bytes of a process's heap are: in shares that add up to what it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from kmem.explain.facts import computed, read
from kmem.explain.process.figures import Process
from kmem.explain.table import Figure, How
from kmem.live.registry.caches import Cache
from kmem.live.registry.file import PAGE_BYTES

CLASS = re.compile(r"kmalloc-(?:cg-)?(\d+)(k?)", re.ASCII)
KERNEL_CLASSES = (8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192)


def fine_classes() -> list[int]:
    """Sizes of the finer table, with the classes of pages (src/heap/classes.c)."""
    sizes = list(range(16, 129, 16))
    for base in (128 << doubling for doubling in range(8)):
        steps = 8 if base < 8192 else 4
        sizes += [base + base // steps * step for step in range(1, steps + 1)]
    while sizes[-1] < 1 << 20:
        last = sizes[-1]
        sizes.append(last + (PAGE_BYTES if last < 65536 else (1 << last.bit_length() - 1) // 4))
    return sizes


FINE_CLASSES = tuple(fine_classes())


def class_bytes(cache: Cache) -> int | None:
    """The size of a class of malloc and kmalloc; None for other caches."""
    match = CLASS.fullmatch(cache.name)
    return int(match[1]) * (1024 if match[2] else 1) if match else None


def is_fine(caches: Sequence[Cache]) -> bool:
    """Whether there is a class that the kernel's table lacks."""
    return any((class_bytes(cache) or 8) not in KERNEL_CLASSES for cache in caches)


@dataclass(frozen=True)
class Shares:
    """The bytes of a cache's slabs; None where the process did not say. They add up to `slabs`."""

    slabs: Figure
    asked: Figure  # in objects in use, without rounding
    rounding: Figure  # behind what was asked for
    sheaves: Figure | None  # free objects of sheaves, stocks, barns and arrays
    of_cpus: Figure | None  # free objects of CPU slabs and CPU partial lists
    partial: Figure  # free objects of slabs on node lists; of all slabs, if of_cpus is None
    tails: Figure  # of slabs, behind their last objects
    unsplit: Figure  # of engine slob, whose caches share pages
    given_back: Figure | None  # the part of these that the system has back already


PARTS = ("asked", "rounding", "sheaves", "of_cpus", "partial", "tails", "unsplit")


@dataclass(frozen=True)
class Explained:
    """A cache with its shares."""

    cache: Cache
    live: Figure  # objects in use; with sheaves', where these are not known
    shares: Shares
    due: Figure | None  # bytes of its slabs that a trim gives back, without sheaves

    @property
    def name(self) -> str:
        return self.cache.name

    @property
    def birth(self) -> int:
        return self.cache["birth"]


def asked_bytes(cache: Cache, live: int, *, fine: bool) -> Figure:
    """Of a class the middle between it and the class below, as a program tells no sizes."""
    size = class_bytes(cache)
    if size is None:
        return Figure(live * min(cache["object_size"], cache["slab_size"]), "computed")
    below = max(
        (one for one in (FINE_CLASSES if fine else KERNEL_CLASSES) if one < size), default=0
    )
    return Figure(live * (size + below) // 2, "modelled")


def explain_cache(process: Process, cache: Cache, *, fine: bool) -> Explained:
    """Figures of a moment may be ahead of each other; each share keeps what the others leave."""
    birth, stride = cache["birth"], cache["slab_size"]
    known = birth in process.asked.refreshed
    is_slob = cache.fields["engine"] == "slob"
    whole = cache.slab_bytes
    objects = 0 if is_slob else min(cache.objects, whole // max(stride, 1))
    active = min(cache.active, objects)
    live = min(cache["objects_inuse"], active) if known else active
    free = objects - active
    listed = min(cache.total("listed_free"), free) if known else free
    asked = asked_bytes(cache, live, fine=fine)
    rounding_how: How = "modelled" if asked.how == "modelled" else "computed"
    all_parts = process.asked.free.get(1, {}).get(birth)
    due = process.asked.due.get(birth)
    if due is None and cache.fields["engine"] == "slab":
        due = cache.total("free_slabs") * cache.pages_per_slab * PAGE_BYTES
    given_back = None if all_parts is None or due is None else max(all_parts - due, 0)
    # Free objects with content that counts are free and never due.
    if given_back and cache.flags.get("destroy_by_rcu"):
        given_back = 0
    return Explained(
        cache,
        Figure(live, "read" if known else "computed"),
        Shares(
            slabs=Figure(whole, "computed"),
            asked=asked,
            rounding=Figure(live * stride - asked.value, rounding_how),
            sheaves=computed((active - live) * stride) if known else None,
            of_cpus=computed((free - listed) * stride) if known else None,
            partial=Figure(listed * stride, "computed"),
            tails=Figure(0 if is_slob else whole - objects * stride, "computed"),
            unsplit=Figure(whole if is_slob else 0, "computed"),
            given_back=computed(given_back),
        ),
        read(due),
    )


@dataclass(frozen=True)
class Totals:
    """The process's heap; all in bytes. The fields from slabs on add up to `held`."""

    held: Figure
    slabs: Figure
    large: Figure  # large blocks
    other: Figure  # used pages of neither: caches without a record, and the library's own
    free_pages: Figure  # not given back yet
    huge: Figure  # blocks of their own mappings
    huge_kept: Figure  # freed, and kept for reuse
    hardened: Figure


TOTALS = tuple(one.name for one in fields(Totals) if one.name != "held")


def totals_of(process: Process) -> Totals:
    heap = process.heap
    slabs = sum(cache.slab_bytes for cache in process.caches)
    # Slabs and pages are counted by different words; the sum keeps the pages' figure.
    large = min(heap.large_bytes, heap.used_bytes)
    slabs = min(slabs, heap.used_bytes - large)
    held = heap.held_bytes + heap.huge_bytes + heap.huge_kept_bytes + process.hardened_bytes
    return Totals(
        held=Figure(held, "computed"),
        slabs=Figure(slabs, "computed"),
        large=Figure(large, "read"),
        other=Figure(heap.used_bytes - large - slabs, "computed"),
        free_pages=Figure(heap.free_touched_bytes, "read"),
        huge=Figure(heap.huge_bytes, "read"),
        huge_kept=Figure(heap.huge_kept_bytes, "read"),
        hardened=Figure(process.hardened_bytes, "read"),
    )


def explain_caches(process: Process) -> list[Explained]:
    fine = is_fine(process.caches)
    return [explain_cache(process, cache, fine=fine) for cache in process.caches]
