# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The call sites of a profile, named by the profile itself or by the files that it was taken of.

A file is asked for names only if it is the file of the profile, by its number in the file system.
The allocator's own functions in front of a stack are left out.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kmem.explain.heap.figures import Held, Sum
from kmem.explain.heap.profile import Mapping, Place
from kmem.live.images import Image, read_image
from kmem.live.sites import LIBRARIES, NAMES, text_of

ALLOCATORS = re.compile(r"lib(jemalloc|tcmalloc|profiler|mimalloc|ptmalloc)[\w-]*[.-]")
# Of an allocator that is linked into the program.
ALLOCATING = re.compile(
    r"(_?rjem_|_rjem_je_|je_|_rg_|__rust_|__rdl_|alloc::alloc::|tcmalloc::|tc_)"
    r"|(prof_(backtrace|alloc|tctx|malloc)\w*"
    r"|(imalloc|malloc_default|malloc|calloc|realloc|aligned_alloc|memalign|posix_memalign)\b)"
)


@dataclass(frozen=True)
class Site:
    """A call site with its callers, of its largest stack, and what all its stacks hold."""

    calls: tuple[str, ...]
    sum: Sum


class Namer:
    """Names return addresses by the profile's mappings."""

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        self.mappings = mappings
        self.starts = [one.start for one in mappings]
        self.images: dict[str, Image] = {}
        self.calls: dict[Place, list[tuple[str, bool]]] = {}

    def mapping_of(self, address: int) -> Mapping | None:
        at = bisect.bisect(self.starts, address) - 1
        found = self.mappings[at] if at >= 0 else None
        return found if found and address < found.end and found.path.startswith("/") else None

    def image(self, mapping: Mapping) -> Image:
        if mapping.path not in self.images:
            self.images[mapping.path] = read_image(mapping.path) if is_same(mapping) else Image()
        return self.images[mapping.path]

    def named(self, place: Place) -> list[tuple[str, bool]]:
        """The functions of a call, and whether each stands between a program and its memory."""
        if place.name:
            return [(place.name, is_between("", place.name))]
        address = place.address - 1  # of the call itself
        mapping = self.mapping_of(address)
        if mapping is None:
            return [(f"0x{place.address:x}", False)]
        library = PurePosixPath(mapping.path).name
        offset = address - mapping.start + mapping.offset
        lines = [text_of(line) for line in self.image(mapping).lines_at(offset)]
        return [
            (name, is_between(library, name)) for name in lines or [f"[{library}]+0x{offset:x}"]
        ]

    def site(self, places: Sequence[Place]) -> tuple[str, ...]:
        """Without the functions in front that belong to the allocator or to C and C++."""
        calls = []
        for place in places:
            if place not in self.calls:
                self.calls[place] = self.named(place)
            calls += self.calls[place]
        own = next((at for at, (_, between) in enumerate(calls) if not between), 0)
        return tuple(name for name, _ in calls[own:]) or ("unknown",)


def is_between(library: str, name: str) -> bool:
    return bool(
        ALLOCATORS.match(library)
        or LIBRARIES.match(library)
        or NAMES.match(name)
        or ALLOCATING.match(name)
    )


def is_same(mapping: Mapping) -> bool:
    """Whether the file here is the file of the profile."""
    try:
        return mapping.inode != 0 and Path(mapping.path).stat().st_ino == mapping.inode
    except OSError:
        return False


def sites_of(held: Sequence[Held], mappings: Sequence[Mapping]) -> list[Site]:
    """The largest first."""
    namer = Namer(mappings)
    stacks: dict[str, list[Held]] = defaultdict(list)
    for one in held:
        stacks[namer.site(one.stack.places)[0]].append(one)
    found = []
    for stack in stacks.values():
        largest = max(stack, key=lambda one: one.bytes)
        found.append(Site(namer.site(largest.stack.places), Sum(tuple(stack))))
    return sorted(found, key=lambda site: (-site.sum.bytes, site.calls))
