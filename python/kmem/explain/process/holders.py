# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The call sites that hold the last objects of each cache, by the samples of the heap profile.

A sample stands for bytes of size classes and objects, and not for a cache. So a call stack belongs
to the cache whose objects have the stack's mean size; a stack of several sizes belongs to none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kmem.common.signals import signals_kept
from kmem.explain.process.figures import Process
from kmem.explain.process.shares import Explained
from kmem.explain.table import Figure
from kmem.live.ages import Ages, ages_of
from kmem.live.living import read_living
from kmem.live.pprof import Row
from kmem.live.profile import take
from kmem.live.registry.file import Registry
from kmem.live.sites import top_sites
from kmem.live.stacks import Counts, read_names, read_stacks
from kmem.live.symbols import Symbols

OBJECTS, BYTES = 2, 3  # columns of a profile's rows: in use
TOLERANCE = 0.02  # of a mean size; the finest classes are 6% apart
DEVIATIONS = 4  # of a count of samples, that are chance
SITES = 3  # of a cache
SEVERAL_SIZES = -1  # in place of a cache's birth
INTERVAL = 64 << 10  # bytes between two samples that the command takes, at first


@dataclass(frozen=True)
class Site:
    """A call site with its callers, and what it holds by the samples."""

    calls: tuple[str, ...]
    bytes: Figure
    objects: Figure


@dataclass(frozen=True)
class Samples:
    """The samples of objects in use."""

    rows: list[Row]
    source: str  # in words; empty if nobody samples
    interval: int  # bytes between two samples
    ages: Ages | None = None  # None of older libraries


def sampled_already(registry: Registry) -> tuple[list[Row], Ages | None]:
    symbols = Symbols(registry.process)
    try:
        symbols.look(lambda: True)
        stacks = read_stacks(registry)
        living = read_living(registry)
        symbols.python_names = read_names(registry)
        rows = [
            Row(symbols.frames(stack), (0, 0, round(counts.live_objects), counts.live_size))
            for stack, counts in stacks.items()
            if in_use(counts)
        ]
        return rows, None if living is None else ages_of(living, symbols.frames)
    finally:
        symbols.close()


def in_use(counts: Counts) -> bool:
    return counts.live_size > 0


def samples_of(registry: Registry, process: Process, seconds: float) -> Samples:
    """Samples that the process takes anyway, or with @seconds those of this command too."""
    if seconds:
        with signals_kept() as signals:
            profile, _ = take(
                registry.process,
                seconds=seconds,
                interval=None,
                slices=0,
                growth=False,
                signals=signals,
                first=INTERVAL,
            )
        of = "all objects in use"
        if not process.interval:
            of = f"objects in use that were allocated in these {seconds:g} s, or sampled before"
        words = f"samples every {profile.interval:,} bytes, of {of}"
        return Samples(profile.rows, words, profile.interval, profile.ages)
    if not process.interval:
        return Samples([], "", 0)
    rows, ages = sampled_already(registry)
    words = f"samples that it takes every {process.interval:,} bytes"
    return Samples(rows, words, process.interval, ages)


def nearest(caches: Sequence[Explained], mean: float) -> Explained | None:
    """The cache with objects of this mean size; the largest, where several have it."""
    fitting = [one for one in caches if abs(mean / one.cache["slab_size"] - 1) <= TOLERANCE]
    return min(
        fitting,
        key=lambda one: (abs(mean - one.cache["slab_size"]), -one.cache.slab_bytes),
        default=None,
    )


def can_hold(cache: Explained, size: float, interval: int) -> bool:
    """Whether the cache's objects in use are as much as the samples say, but for chance.

    Else the stack has objects of several sizes, and their mean is that cache's by accident.
    """
    live = cache.live.value * cache.cache["slab_size"]
    return size <= live + DEVIATIONS * math.sqrt((live + interval) * interval)


def sites_of(rows: Sequence[Row]) -> list[Site]:
    return [
        Site(calls, Figure(size, "modelled"), Figure(objects, "modelled"))
        for size, objects, calls in top_sites(rows, BYTES)[:SITES]
        if size > 0
    ]


def holders(samples: Samples, caches: Sequence[Explained]) -> dict[int, list[Site]]:
    """The largest sites of each cache, by its birth, and of stacks of several sizes."""
    found: dict[int, list[Row]] = {}
    for row in samples.rows:
        objects, size = row.values[OBJECTS], row.values[BYTES]
        if size <= 0:
            continue
        cache = nearest(caches, size / max(objects, 1))
        fits = cache is not None and can_hold(cache, size, samples.interval)
        found.setdefault(cache.birth if cache and fits else SEVERAL_SIZES, []).append(row)
    return {birth: sites_of(rows) for birth, rows in found.items()}
