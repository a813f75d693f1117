# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the slab table that a program on libkmem writes at its exit.

The table has the form of Linux's /proc/slabinfo, version 2.1, and ends with comment lines that the
kernel does not have, the last of which is `# objects handed out: N`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

VERSION_LINE = "slabinfo - version: 2.1"
HEADER_LINE = (
    "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
    " : tunables <limit> <batchcount> <sharedfactor>"
    " : slabdata <active_slabs> <num_slabs> <sharedavail>"
)
CACHE_LINE = re.compile(
    r"(?P<name>\S+) +(?P<active_objects>\d+) +(?P<objects>\d+) +(?P<object_size>\d+)"
    r" +(?P<objects_per_slab>\d+) +(?P<pages_per_slab>\d+)"
    r" : tunables +\d+ +\d+ +\d+ : slabdata +(?P<active_slabs>\d+) +(?P<slabs>\d+) +\d+"
)
LAST_LINE = re.compile(r"# objects handed out: (\d+)")


class TableError(AssertionError):
    """The file is not a slab table, or its figures contradict each other."""


@dataclass(frozen=True)
class CacheLine:
    """One cache; sizes in bytes, pages of 4 KiB."""

    name: str
    active_objects: int
    objects: int
    object_size: int
    objects_per_slab: int
    pages_per_slab: int
    active_slabs: int
    slabs: int

    def contradictions(self) -> list[str]:
        """What cannot be true of any cache, in words; empty for a sound line."""
        found = []
        if self.active_objects > self.objects:
            found.append("more active objects than objects")
        if self.active_slabs > self.slabs:
            found.append("more active slabs than slabs")
        if self.objects > self.slabs * self.objects_per_slab:
            found.append("more objects than the slabs can hold")
        if self.objects_per_slab * self.object_size > self.pages_per_slab * 4096:
            found.append("more objects in a slab than its pages can hold")
        return found


@dataclass(frozen=True)
class SlabTable:
    """The table of one process."""

    caches: tuple[CacheLine, ...]
    handed_out: int  # objects that left the slabs of all caches since the start of the process

    def kmalloc_caches(self) -> tuple[CacheLine, ...]:
        return tuple(cache for cache in self.caches if cache.name.startswith("kmalloc-"))


def parse_cache_line(line: str) -> CacheLine:
    match = CACHE_LINE.fullmatch(line)
    if match is None:
        raise TableError(f"not a line of a slab table: {line!r}")
    fields = match.groupdict()
    cache = CacheLine(
        name=fields.pop("name"), **{field: int(text) for field, text in fields.items()}
    )
    if contradictions := cache.contradictions():
        raise TableError(f"{'; '.join(contradictions)}: {line!r}")
    return cache


def parse_table(text: str) -> SlabTable:
    """Raises TableError for anything but a whole, sound table."""
    lines = text.splitlines()
    if lines[:2] != [VERSION_LINE, HEADER_LINE]:
        raise TableError(f"not the two first lines of a slab table: {lines[:2]!r}")
    last = LAST_LINE.fullmatch(lines[-1])
    if last is None:
        raise TableError(f"the last line does not say how many objects left: {lines[-1]!r}")
    caches = [line for line in lines[2:-1] if not line.startswith("#")]
    return SlabTable(tuple(map(parse_cache_line, caches)), int(last.group(1)))


def read_table(path: Path) -> SlabTable:
    if not path.exists():
        raise TableError(f"{path.name}: the program wrote no slab table")
    return parse_table(path.read_text())
