# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads /proc/slabinfo, version 2.1, and the slab table that `kmem run --slabinfo` writes.

libkmem's table ends with comment lines that the kernel does not have.
"""

import re
from dataclasses import dataclass

from kmem.common.errors import KmemError

VERSION_LINE = "slabinfo - version: 2.1"
HEADER_LINE = (
    "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
    " : tunables <limit> <batchcount> <sharedfactor>"
    " : slabdata <active_slabs> <num_slabs> <sharedavail>"
)
# Numbers of at most 64 bits.
CACHE_LINE = re.compile(
    r"(?P<name>\S+) +(?P<active_objects>\d{1,19}) +(?P<objects>\d{1,19}) +(?P<object_size>\d{1,19})"
    r" +(?P<objects_per_slab>\d{1,19}) +(?P<pages_per_slab>\d{1,19})"
    r" : tunables +(?P<limit>\d{1,19}) +(?P<batchcount>\d{1,19}) +(?P<shared_factor>\d{1,19})"
    r" : slabdata +(?P<active_slabs>\d{1,19}) +(?P<slabs>\d{1,19}) +(?P<shared_available>\d{1,19})",
    re.ASCII,
)


class SlabinfoError(KmemError):
    """The text is not a slab table, or its figures contradict each other."""


@dataclass(frozen=True)
class CacheLine:
    """A cache; sizes in bytes, pages of page_bytes."""

    name: str
    active_objects: int
    objects: int
    object_size: int  # with padding
    objects_per_slab: int  # 0: engine slob, where caches have no slabs of their own
    pages_per_slab: int
    limit: int
    batchcount: int
    shared_factor: int
    active_slabs: int
    slabs: int
    shared_available: int

    def contradictions(self, page_bytes: int) -> list[str]:
        """Contradictions that are impossible for any cache, in words; empty for a sound line."""
        found = []
        if self.active_objects > self.objects:
            found.append("more active objects than objects")
        if self.active_slabs > self.slabs:
            found.append("more active slabs than slabs")
        if self.objects_per_slab and self.objects > self.slabs * self.objects_per_slab:
            found.append("more objects than the slabs can hold")
        if self.objects_per_slab * self.object_size > self.pages_per_slab * page_bytes:
            found.append("more objects in a slab than its pages can hold")
        return found


def match_cache_line(line: str) -> CacheLine | None:
    """The figures of a line, whether or not they contradict each other."""
    match = CACHE_LINE.fullmatch(line)
    if match is None:
        return None
    fields = match.groupdict()
    return CacheLine(
        name=fields.pop("name"), **{field: int(text) for field, text in fields.items()}
    )


def parse_cache_line(line: str, page_bytes: int = 4096) -> CacheLine:
    cache = match_cache_line(line)
    if cache is None:
        raise SlabinfoError(f"not a line of a slab table: {line!r}")
    if contradictions := cache.contradictions(page_bytes):
        raise SlabinfoError(f"{'; '.join(contradictions)}: {line!r}")
    return cache


def parse_slabinfo(text: str, page_bytes: int = 4096) -> tuple[CacheLine, ...]:
    """The caches in the order of the table; the library's pages are always of 4,096 bytes."""
    lines = text.splitlines()
    if lines[:2] != [VERSION_LINE, HEADER_LINE]:
        given = "\n".join(lines[:2])[:60]
        raise SlabinfoError(
            f"not the two first lines of a slab table: {given!r}; expected {VERSION_LINE!r} and a"
            " line of the columns, as /proc/slabinfo has them"
        )
    return tuple(
        parse_cache_line(line, page_bytes) for line in lines[2:] if not line.startswith("#")
    )
