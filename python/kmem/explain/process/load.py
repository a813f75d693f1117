# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A load that ends with the size classes of a process, to be replayed with another class table.

It fills slabs, and frees in a random order until as many objects live as in the process. Which
objects stay decides how many smaller slabs would be empty. So the distances between objects that
stay are drawn from a gamma distribution: with shape 1 objects stay at random, with more they stand
evenly, with less in clusters. The shape is that with which as many pages of slabs are free as in
the process. Slabs in which nothing stays are gone, so the load begins with more than are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kmem.explain.synth import Numbers, joined, trace_of
from kmem.live.registry.file import PAGE_BYTES
from kmem.traces import file as tr

SHAPES = 2.0 ** np.arange(-6, 9)
DRAWS = 20_000  # distances, by which shapes are compared
ROUNDS = 10  # until the slabs that were there are known well enough
MOST_TIMES = 4  # as many slabs as are left
SEED = 1


@dataclass(frozen=True)
class Load:
    """What the load has of a size."""

    bytes: int
    per_slab: int
    slots: int  # objects that the slabs hold, free or not
    live: int
    free_pages: float  # share of the pages in which nothing is in use


def smaller(load: Load, share: float) -> Load:
    slots = max(1, round(load.slots * share))
    return replace(load, slots=slots, live=min(slots, round(load.live * share)))


@cache
def distances() -> list[Numbers]:
    """For each shape distances between objects that stay, 1 on average."""
    random = np.random.default_rng(SEED)
    return [random.gamma(shape, 1 / shape, DRAWS) for shape in SHAPES]


def empty(which: int, length: float) -> float:
    """The share of windows without an object, of a length in mean distances."""
    return float(np.maximum(distances()[which] - length, 0).mean())


def begun(which: int, load: Load) -> float:
    """Objects of the slabs of which those in use are left, with this shape."""
    slots = float(load.slots)
    for _ in range(ROUNDS):
        gone = empty(which, load.per_slab * load.live / slots)
        slots = min(load.slots / max(1 - gone, 1 / MOST_TIMES), load.slots * MOST_TIMES)
    return slots


def shape_of(load: Load) -> tuple[float, int]:
    """Of the distances between objects that stay; and the objects that the load begins with."""
    in_page = min(max(1, PAGE_BYTES // load.bytes), load.per_slab)
    tried = []
    for which, shape in enumerate(SHAPES):
        slots = begun(which, load)
        if slots >= load.slots * MOST_TIMES and shape != 1:
            continue  # nearly all slabs would be gone, and what is left tells nothing
        page, slab = (empty(which, count * load.live / slots) for count in (in_page, load.per_slab))
        off = abs((page - slab) / max(1 - slab, 1 / MOST_TIMES) - load.free_pages)
        # Slabs of a page say nothing of clusters: then objects stay at random.
        tried.append((round(off, 3), abs(float(np.log2(shape))), float(shape), round(slots)))
    return min(tried)[2:]


def staying(load: Load, random: np.random.Generator) -> tuple[Numbers, int]:
    """The numbers of the objects that stay, ascending, no two equal; and how many there are."""
    if load.live >= load.slots or not load.live:
        return np.arange(load.live), load.slots
    shape, slots = shape_of(load)
    ends = np.cumsum(random.gamma(shape, 1 / shape, load.live + 1))
    places = (ends[:-1] / ends[-1] * slots).astype(np.int64)
    order = np.arange(load.live)
    places = np.maximum.accumulate(places - order) + order
    return np.minimum(places, slots - load.live + order), slots


def trace(loads: Sequence[Load], source: str) -> tr.Trace:
    """All sizes grow together, each by a page of objects at a time; then all shrink together."""
    random = np.random.default_rng(SEED)
    parts, keys = [], []
    first = 0
    for load in loads:
        stay, slots = staying(load, random)
        in_page = max(1, PAGE_BYTES // load.bytes)
        ids = first + np.arange(slots)
        keys.append((np.arange(slots) // in_page + random.random()) * in_page / slots)
        parts.append((load, ids, np.delete(ids, stay)))
        first += slots
    made = joined([events(load, ids, tr.ALLOC) for load, ids, _ in parts])
    order = np.lexsort((made["object"], np.concatenate(keys)))
    freed = joined([events(load, gone, tr.FREE) for load, _, gone in parts])
    backwards = random.permutation(len(freed["object"]))
    columns = {name: np.concatenate([made[name][order], freed[name][backwards]]) for name in made}
    return trace_of(columns, ["kmalloc", "?"], first, 1, PAGE_BYTES, source)


def events(load: Load, ids: Numbers, operation: int) -> dict[str, Numbers]:
    count = len(ids)
    return {
        "object": ids,
        "cpu": np.zeros(count, np.int64),
        "cache": np.full(count, tr.CACHE_KMALLOC),
        "bytes": np.full(count, load.bytes),
        "operation": np.full(count, operation),
    }
