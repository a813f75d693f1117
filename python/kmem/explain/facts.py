# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What follows from a table's figures: sizes, memory and waste, the page size, the allocator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kmem.explain.kernel_forms import SLABINFO
from kmem.explain.table import Cache, Figure, How, Table
from kmem.explain.tool_forms import CRASH, ZFS

PAGE_SIZES = (4096, 16384, 65536)
WORD_BYTES = 8

KMALLOC = re.compile(
    r"(?:dma-|dma32-)?kmalloc(?:_dma|-dma)?(?:-rcl|-reclaim|-cg|-rnd-\d\d)?-(\d{1,9})([kM]?)",
    re.ASCII,
)
SIZE = re.compile(r"size-(\d{1,9})(?:\(DMA\))?", re.ASCII)
# Caches whose objects the kernel frees when memory is short.
RECLAIMED = re.compile(
    r"dentry(_cache)?|buffer_head|radix_tree_node|.*inode(_cache)?|kmalloc-rcl-.*|ext4_groupinfo_.*",
    re.ASCII,
)


def size_by_name(name: str) -> int | None:
    """Of kmalloc-1k or size-1024: 1024."""
    if match := KMALLOC.fullmatch(name):
        return int(match[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[match[2]]
    match = SIZE.fullmatch(name)
    return int(match[1]) if match else None


def computed(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, "computed")


def read(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, "read")


def page_sizes_of(cache: Cache) -> list[int]:
    """The page sizes that a line allows."""
    if not cache.pages_per_slab:
        return []
    if cache.total_bytes and cache.slabs:
        # The kernel's tool prints memory with a single decimal.
        each = cache.total_bytes / cache.slabs / cache.pages_per_slab
        return [size for size in PAGE_SIZES if abs(each / size - 1) < 0.05]
    if cache.per_slab and cache.stride_bytes:
        space = cache.pages_per_slab
        return [size for size in PAGE_SIZES if space * size // cache.stride_bytes == cache.per_slab]
    return []


def page_bytes_of(table: Table) -> Figure:
    """The page size that most lines fit; where they say nothing, 4,096 bytes.

    crash prints bytes of slabs and no pages. Slabs of 16 KiB can have four pages, but if none has
    less than 64 KiB, pages are probably as large.
    """
    sizes = [size for cache in table.caches for size in page_sizes_of(cache)]
    if sizes:
        return Figure(max(PAGE_SIZES, key=lambda size: (sizes.count(size), -size)), "computed")
    smallest = min(filter(None, map(slab_as_read, table.caches)), default=0)
    large = table.form == CRASH and smallest >= PAGE_SIZES[-1]
    return Figure(PAGE_SIZES[-1] if large else PAGE_SIZES[0], "modelled")


def slab_as_read(cache: Cache) -> int | None:
    if cache.slab_bytes:
        return cache.slab_bytes
    if cache.total_bytes and cache.slabs:
        return cache.total_bytes // cache.slabs
    return None


Allocator = Literal["SLUB", "SLAB", ""]


def has_room(cache: Cache, page_bytes: int) -> bool:
    """Whether its slabs have room for another object, which SLUB would have put there.

    SLAB has the numbers of free objects in the same slab where objects are small.
    """
    if not cache.pages_per_slab or not cache.stride_bytes or not cache.per_slab:
        return False
    return cache.pages_per_slab * page_bytes // cache.stride_bytes > cache.per_slab


def allocator_of(table: Table) -> Allocator:
    """By tunables, names, columns and the room in slabs; empty where nothing tells."""
    if table.form == ZFS:
        return ""
    if any(cache.slab_allocator or SIZE.fullmatch(cache.name) for cache in table.caches):
        return "SLAB"
    if table.boot:
        return "SLUB"
    # Rows that were cut have no tunables, which would tell.
    cut = [cache for cache in table.caches if table.form == SLABINFO and cache.slabs is None]
    page_bytes = int(page_bytes_of(table).value)
    if any(has_room(cache, page_bytes) for cache in cut):
        return "SLAB"
    has_slub = any(
        cache.pages_per_slab or KMALLOC.fullmatch(cache.name) or cache.cpu_slabs is not None
        for cache in table.caches
    )
    return "SLUB" if has_slub else ""


@dataclass(frozen=True)
class Facts:
    """A cache's figures; None where neither the line nor a computation has one."""

    cache: Cache
    total: Figure | None  # bytes of its slabs
    objects: Figure | None
    active: Figure | None
    stride: Figure | None  # bytes
    real: Figure | None  # bytes of an object without debugging and padding
    per_slab: Figure | None
    slab: Figure | None  # bytes of a slab
    slabs: Figure | None
    free: Figure | None  # bytes of free objects
    tail: Figure | None  # bytes of slabs behind the last object
    padding: Figure | None  # bytes between live objects

    @property
    def name(self) -> str:
        return self.cache.name

    @property
    def reclaimed(self) -> bool:
        if self.cache.reclaimable is not None:
            return self.cache.reclaimable
        return RECLAIMED.fullmatch(self.cache.name) is not None

    @property
    def use(self) -> float | None:
        """The share of its objects that live."""
        if self.cache.used_percent is not None:
            return self.cache.used_percent / 100
        if self.objects and self.active and self.objects.value:
            return min(1.0, self.active.value / self.objects.value)
        if self.cache.used_bytes is not None and self.cache.total_bytes:
            return min(1.0, self.cache.used_bytes / self.cache.total_bytes)
        return None


def slab_of(cache: Cache, page_bytes: int) -> Figure | None:
    if cache.slab_bytes:
        return read(cache.slab_bytes)
    if cache.pages_per_slab:
        return computed(cache.pages_per_slab * page_bytes)
    # Some write the memory of objects where slabtop has that of slabs.
    if cache.total_bytes and cache.slabs and not cache.total_bytes % (cache.slabs * PAGE_SIZES[0]):
        return computed(cache.total_bytes // cache.slabs)
    return None


def slabs_of(cache: Cache) -> Figure | None:
    if cache.slabs is not None:
        return read(cache.slabs)
    if cache.objects is not None and cache.per_slab:
        return computed(-(-cache.objects // cache.per_slab))
    return None


def objects_of(cache: Cache) -> Figure | None:
    if cache.objects is not None:
        return read(cache.objects)
    if cache.slabs is not None and cache.per_slab:
        return computed(cache.slabs * cache.per_slab)
    if cache.total_bytes and cache.stride_bytes:
        return computed(cache.total_bytes // cache.stride_bytes)
    return None


def total_of(cache: Cache, slab: Figure | None, slabs: Figure | None) -> Figure | None:
    if cache.total_bytes is not None:
        return read(cache.total_bytes)
    if slab and slabs:
        return computed(slab.value * slabs.value)
    # Slabs of several sizes, or of unknown ones: what their objects have is the least.
    if (cache.order is not None or slab is None) and cache.objects and cache.stride_bytes:
        return computed(cache.objects * cache.stride_bytes)
    return None


def near(bytes_each: float, slab_bytes: float, per_slab: int) -> int | None:
    """The stride that slabtop rounded: a multiple of a word, of which so many fit a slab."""
    low, high = int(bytes_each - 5.12), int(bytes_each + 5.12)
    fits = [
        size
        for size in range(max(WORD_BYTES, low - low % -WORD_BYTES), high + 1, WORD_BYTES)
        if slab_bytes // size == per_slab
    ]
    return min(fits, key=lambda size: abs(size - bytes_each), default=None)


def stride_with(object_bytes: int, slab: Figure | None, per_slab: int | None) -> int:
    """The stride of objects, of which so many fit a slab.

    It is the object itself, in words, if that many of these fit. Otherwise a free pointer, padding
    or debugging makes it longer: then it is the possible one with the highest power of two as a
    factor, because alignment causes most of it. If objects leave a slab half empty, no distance
    explains that, and this is the longest that lets them fit.
    """
    least = -(-object_bytes // WORD_BYTES) * WORD_BYTES
    if slab is None or not per_slab or slab.value // least <= per_slab:
        return least
    low, high = int(slab.value) // (per_slab + 1) + 1, int(slab.value) // per_slab
    step = 1 << high.bit_length()
    while step > 1 and high // step * step < max(low, least):
        step //= 2
    return high // step * step


def stride_of(cache: Cache, slab: Figure | None) -> Figure | None:
    if cache.stride_bytes:
        return read(cache.stride_bytes)
    named = size_by_name(cache.name)
    if cache.rounded_bytes is not None:
        if named and abs(named - cache.rounded_bytes) <= 5.2:
            return computed(named)
        if (
            slab
            and cache.per_slab
            and (size := near(cache.rounded_bytes, slab.value, cache.per_slab))
        ):
            return computed(size)
        return computed(round(cache.rounded_bytes)) if cache.rounded_bytes else None
    if cache.object_bytes:
        return computed(stride_with(cache.object_bytes, slab, cache.per_slab))
    return computed(named) if named and not cache.debug else None


def real_of(cache: Cache) -> Figure | None:
    if cache.object_bytes:
        return read(cache.object_bytes)
    return computed(size_by_name(cache.name))


def free_of(
    cache: Cache, total: Figure | None, objects: Figure | None, stride: Figure | None
) -> Figure | None:
    if objects and stride and cache.active is not None:
        return computed(max(0.0, objects.value - cache.active) * stride.value)
    if cache.used_bytes is not None and cache.total_bytes is not None:
        return computed(max(0, cache.total_bytes - cache.used_bytes))
    if total and cache.used_percent is not None:
        return computed(total.value * (1 - cache.used_percent / 100))
    return None


def facts_of(cache: Cache, page_bytes: int) -> Facts:
    slab, slabs, objects = slab_of(cache, page_bytes), slabs_of(cache), objects_of(cache)
    total, stride, real = total_of(cache, slab, slabs), stride_of(cache, slab), real_of(cache)
    tail = padding = None
    if slab and slabs and stride and cache.per_slab:
        tail = computed(max(0.0, slab.value - cache.per_slab * stride.value) * slabs.value)
    if stride and real and cache.active is not None:
        padding = computed(max(0.0, stride.value - real.value) * cache.active)
    return Facts(
        cache,
        total,
        objects,
        read(cache.active),
        stride,
        real,
        read(cache.per_slab),
        slab,
        slabs,
        free_of(cache, total, objects, stride),
        tail,
        padding,
    )


def summed(figures: Sequence[Figure | None]) -> Figure | None:
    """The sum of what is known, which is computed whatever its parts are."""
    known = [figure.value for figure in figures if figure]
    return computed(sum(known)) if known else None


@dataclass(frozen=True)
class Debugging:
    """Caches whose strides debugging makes longer than their objects."""

    inflated: tuple[tuple[str, Figure, Figure], ...]  # name, stride and real size, in bytes
    extra_bytes: Figure | None  # of each object of any other cache
    compared: int  # caches with both; without any nobody can say

    @property
    def found(self) -> bool:
        return bool(self.inflated)


def is_aligned(stride_bytes: float) -> bool:
    """Whether a small object may be as long as this to begin at a line of the CPU's cache."""
    return stride_bytes in (32, 64, 128)


def debugging_of(facts: Sequence[Facts]) -> Debugging:
    """By the sizes in names of kmalloc caches, and by what sysfs says of other caches.

    Other caches have the metadata too. The least that it takes from a kmalloc cache is a lower
    bound, because alignment makes the others longer. Strides that slabtop rounded are no bound.
    """
    compared = 0
    found: list[tuple[str, Figure, Figure]] = []
    extras = []
    for fact in facts:
        named = size_by_name(fact.name)
        if fact.stride is None or fact.real is None:
            continue
        is_read = fact.stride.how == "read"
        # Other strides come from the sizes themselves.
        if not is_read and fact.cache.rounded_bytes is None:
            continue
        compared += 1
        if named and fact.stride.value > named and not is_aligned(fact.stride.value):
            found.append((fact.name, fact.stride, Figure(named, "computed")))
            if is_read:
                extras.append(fact.stride.value - named)
        elif fact.cache.debug and fact.stride.value - fact.real.value >= 2 * WORD_BYTES:
            found.append((fact.name, fact.stride, fact.real))
    how: How = "modelled"
    return Debugging(tuple(found), Figure(min(extras), how) if extras else None, compared)
