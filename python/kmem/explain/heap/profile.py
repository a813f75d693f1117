# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A heap profile as it was read: nothing here is scaled up or named."""

from __future__ import annotations

from dataclasses import dataclass, field

from kmem.explain.table import Unread

JEMALLOC = "a heap profile of jemalloc"
TCMALLOC = "a heap profile of tcmalloc"
GO = "a heap profile of Go, as text"
DHAT = "a heap profile of DHAT, at the moment of most bytes"
PPROF = "a heap profile in pprof's format"
MEMLEAK = "objects that memleak has not seen freed, in its last round"
KMEMLEAK = "objects that kmemleak found without a reference"
SANITIZER = "objects that LeakSanitizer found without a reference"
MEMCHECK = "blocks that memcheck found at the end of a program"
ALLOCINFO = "memory by place of the code, of /proc/allocinfo"
EXPECTED = (
    "expected a heap profile: heap_v2/BYTES of jemalloc, heap profile: ... @ heapprofile or"
    " @ heap_v2/BYTES of tcmalloc, the JSON of DHAT, or pprof's format with bytes in use"
)


@dataclass(frozen=True)
class Place:
    """Where a call is, by its return address or by the profile's own name of it."""

    address: int = 0
    name: str = ""  # with file and line, if the profile has them


@dataclass(frozen=True)
class Mapping:
    """A file in the address space, as /proc/PID/maps has it."""

    start: int
    end: int
    offset: int
    inode: int  # 0 if it is not known
    path: str


@dataclass(frozen=True)
class Stack:
    """The objects that a call stack holds, as the profile has them; the innermost call first."""

    places: tuple[Place, ...]
    objects: int
    bytes: int
    line: int  # of the file; 0 where it has no lines


@dataclass
class HeapProfile:
    """The stacks of a moment."""

    form: str
    file: str
    interval: int = 0  # bytes from a sample to the next; 0: every object was counted
    is_scaled: bool = False  # the writer scaled the samples up
    printed: tuple[int, int] | None = None  # objects and bytes of all stacks by the head
    stacks: list[Stack] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
