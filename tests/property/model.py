# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the library must do, as simply as it can be said.

The model knows of every block where it is, what is in it, and whom it is charged
to. What the back ends do differently is in Rules.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

PAGE = 4096
WORD = 8
HUGE = 32 << 20
ZERO_SIZE = 16  # kmalloc(0)

# GFP and SLAB flags of include/kmem.h.
ZERO = 0x100
NOWARN = 0x2000
ACCOUNT = 0x400000
KERNEL = 0xCC0 | NOWARN
NOWAIT = 0x800 | NOWARN
HWCACHE_ALIGN = 0x2000
RECLAIM_ACCOUNT = 0x20000
TYPESAFE = 0x80000
NO_MERGE = 0x1000000
SLAB_ACCOUNT = 0x4000000

EIO, ENOMEM, EBUSY, EINVAL, ERANGE = 5, 12, 16, 22, 34


def up(value: int, step: int) -> int:
    return (value + step - 1) // step * step


def is_power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True)
class Rules:
    """What depends on the engine and the size classes."""

    slob: bool
    slab: bool
    class_max: int
    debug: str = ""  # letters of option debug; FZP or FZPU

    def align(self, size: int, align: int, flags: int) -> int:
        """The alignment of a cache's objects (S4-20, S7-43)."""
        least = WORD
        if flags & HWCACHE_ALIGN:
            least = 64
            while not self.slob and size <= least // 2:
                least //= 2
        return max(align, least, WORD)

    def stride(self, size: int, align: int, flags: int) -> int:
        """What an object takes (S4-08, S6-11, S7-43)."""
        if self.slob:
            return up(size, WORD) + 16 if flags & TYPESAFE else up(size, 2)
        if self.debug:
            return self.debug_stride(size, self.align(size, align, flags))
        taken = up(up(size, WORD), self.align(size, align, flags))
        return max(taken, up(16, self.align(size, align, flags))) if self.slab else taken

    def debug_stride(self, size: int, align: int, request: int = 0) -> int:
        """With red zones, free pointer, two tracks, what was asked for, and a guard (S4.1)."""
        inuse = up(size, WORD) + (0 if size % WORD else WORD)
        user = 2 * 32 + request if "U" in self.debug else 0
        return up(inuse + WORD + user + WORD + up(WORD, align), align)

    def class_stride(self, usable: int) -> int:
        """The same for a size class, by the bytes that it gives."""
        if self.debug:
            return self.debug_stride(usable, max(min(usable & -usable, PAGE), WORD), WORD)
        return max(usable, 16) if self.slab else usable

    def is_large(self, size: int, align: int = 0) -> bool:
        """Whether a block has pages of its own (@align 0: kmalloc)."""
        if self.slob:
            if align == 0 and is_power(size):
                align = size
            align = max(align, WORD)
            return align > PAGE or size >= PAGE - 8 or up(8, align) + size > PAGE
        return size > self.class_max or align > PAGE

    def is_paged(self, size: int) -> bool:
        """Whether malloc's block is an object of a class of pages (decision 0032)."""
        sheaves = not (self.slob or self.slab or self.debug)
        return sheaves and self.class_max == 32768 and 32768 < size <= 256 << 10

    def block_align(self, size: int, align: int) -> int:
        """The alignment of a block; kmalloc's if @align is 0."""
        if align:
            return align
        if is_power(size) and size <= PAGE:
            return max(size, WORD) if self.slob or size >= WORD else WORD
        return WORD if self.slob or size < 16 else 16


@dataclass(eq=False)
class Group:
    """A memory group (S11), charged at all levels or not at all."""

    address: int
    parent: Group | None
    limit: int  # 0: none
    bytes: int = 0
    objects: int = 0
    peak: int = 0
    refusals: int = 0

    def chain(self) -> list[Group]:
        return [self, *(self.parent.chain() if self.parent else [])]

    def has_room(self, size: int) -> bool:
        return not self.limit or self.bytes + size <= self.limit

    def charge(self, count: int, each: int) -> bool:
        for group in self.chain():
            if not group.has_room(count * each):
                group.refusals += 1
                return False
        self.move(count, count * each)
        return True

    def move(self, objects: int, size: int) -> None:
        for group in self.chain():
            group.bytes += size
            group.objects += objects
            group.peak = max(group.peak, group.bytes)


@dataclass(eq=False)
class Cache:
    address: int
    name: str
    size: int
    align: int
    flags: int
    built: int  # what the constructor fills objects with, 0: none
    stride: int
    live: list[Block] = field(default_factory=list, repr=False)
    pools: int = 0
    pending: bool = False  # objects of it wait for a grace period


@dataclass(eq=False)
class Block:
    """An object of a cache, or memory by size."""

    address: int
    size: int  # bytes that were asked for
    usable: int
    fill: int = 0
    cache: Cache | None = None
    large: bool = False
    huge: bool = False  # a mapping of its own, and so as long as it stays where it is
    cleared: bool = False  # always asked for with __GFP_ZERO
    owner: Group | None = None
    charge: int = 0
    from_class: str = ""  # kmalloc or kmalloc-cg

    def uncharge(self) -> None:
        if self.owner:
            self.owner.move(-1, -self.charge)
            self.owner = None


@dataclass(eq=False)
class Pool:
    address: int
    kind: str
    data: int  # size or order
    cache: Cache | None
    promised: int
    own: list[Block]  # the record and the array
    reserve: list[Block]
    out: list[Block] = field(default_factory=list)


class Places:
    """Where blocks are; no two may overlap."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: dict[int, int] = {}

    def add(self, start: int, size: int) -> None:
        index = bisect.bisect(self.starts, start)
        if index:
            before = self.starts[index - 1]
            assert self.ends[before] <= start, f"{start:#x} is inside the block at {before:#x}"
        if index < len(self.starts):
            assert start + size <= self.starts[index], f"{start:#x} reaches into the next block"
        self.starts.insert(index, start)
        self.ends[start] = start + size

    def remove(self, start: int) -> None:
        del self.starts[bisect.bisect_left(self.starts, start)]
        del self.ends[start]
