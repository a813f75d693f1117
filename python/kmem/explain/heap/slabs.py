# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The slabs that the profile's objects would have on libkmem, by a replay on the simulated machine.

The objects are allocated in a drawn order, and nothing is freed: so these are the fewest slabs, and
a program that frees has more. A larger heap is made smaller, each stack by an equal share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kmem.common.tree import build
from kmem.explain.heap.figures import PAGE_BYTES, TABLES, Held
from kmem.explain.process.load import Load, trace
from kmem.replay.tool import TOOLS, run, tool_arguments
from kmem.traces.file import write_trace

OBJECTS_MOST = 300_000  # of a replay


@dataclass(frozen=True)
class Cache:
    """A cache of the replay; objects and slabs are of the whole heap again."""

    name: str
    objects: float  # that live
    total_objects: float  # that the slabs hold
    stride_bytes: int
    objects_per_slab: int
    pages_per_slab: int
    slabs: float

    @property
    def bytes(self) -> float:
        return self.slabs * self.pages_per_slab * PAGE_BYTES


@dataclass(frozen=True)
class Slabs:
    """What a table of classes gives."""

    table: str
    caches: tuple[Cache, ...]  # the largest first
    large_bytes: float  # of blocks without a slab
    share: float  # of the objects that were replayed

    @property
    def bytes(self) -> float:
        return sum(cache.bytes for cache in self.caches)


def cache_of(row: dict[str, Any], share: float) -> Cache:
    pages = row["pages"] // row["slabs"] if row["slabs"] else 1
    return Cache(
        row["name"],
        row["inuse"] / share,
        row["objects"] / share,
        row["stride_bytes"],
        row["objects_per_slab"],
        pages,
        row["slabs"] / share,
    )


def loads_of(held: Sequence[Held], share: float) -> list[Load]:
    """Stacks become whole numbers of objects; what is cut off goes on to the next stack."""
    loads, left = [], 0.0
    for one in sorted(held, key=lambda one: one.mean):
        exact = one.objects * share + left
        count = round(exact)
        left = exact - count
        if count:
            loads.append(Load(max(1, math.ceil(one.size)), 1, count, count, 0.0))
    return loads


def slabs_of(held: Sequence[Held]) -> list[Slabs]:
    """By each table of classes; nothing if there are no objects."""
    whole = sum(one.objects for one in held)
    share = min(1.0, OBJECTS_MOST / whole)
    loads = loads_of(held, share)
    if not loads:
        return []
    build(TOOLS[4])
    found = []
    with TemporaryDirectory(prefix="kmem-explain-") as folder:
        file = Path(folder) / "profile.ktrace"
        write_trace(file, trace(loads, "kmem explain"))
        for table in TABLES:
            # Sheaves put slabs in use that hold nothing, which depends on the CPUs.
            options = f"classes={table},sheaf_capacity=0"
            document, _ = run(file, tool_arguments(options, 1, None, None))
            caches = [cache_of(row, share) for row in document["caches"] if row["slabs"]]
            large = document["end"]["large_pages"] * PAGE_BYTES / share
            order = np.argsort([-cache.bytes for cache in caches], kind="stable")
            found.append(Slabs(table, tuple(caches[at] for at in order), large, share))
    return found
