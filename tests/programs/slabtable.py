# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the slab table that a program on libkmem writes at its exit.

It ends with comment lines that the kernel does not have, the last of which is
`# objects handed out: N`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kmem.traces.slabinfo import CacheLine, SlabinfoError, parse_slabinfo

LAST_LINE = re.compile(r"# objects handed out: (\d+)")


class TableError(AssertionError):
    """The file is not a slab table, or its figures contradict each other."""


@dataclass(frozen=True)
class SlabTable:
    """The table of one process."""

    caches: tuple[CacheLine, ...]
    handed_out: int  # objects that left the slabs of all caches since the start of the process

    def kmalloc_caches(self) -> tuple[CacheLine, ...]:
        return tuple(cache for cache in self.caches if cache.name.startswith("kmalloc-"))


def parse_table(text: str) -> SlabTable:
    """Raises TableError for anything but a whole, sound table."""
    try:
        caches = parse_slabinfo(text)
    except SlabinfoError as error:
        raise TableError(str(error)) from None
    last = LAST_LINE.fullmatch(text.splitlines()[-1])
    if last is None:
        raise TableError("the last line does not say how many objects left")
    return SlabTable(caches, int(last.group(1)))


def read_table(path: Path) -> SlabTable:
    if not path.exists():
        raise TableError(f"{path.name}: the program wrote no slab table")
    return parse_table(path.read_text())
