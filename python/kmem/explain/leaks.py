# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Caches that look like leaks: they grow from moment to moment, or hold nearly all memory.

A table cannot tell a leak from a load that needs its objects. These caches are looked at first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kmem.explain.facts import Facts

HOLDS_SHARE = 0.5  # of the slabs' memory
FULL_USE = 0.98
LEAST_BYTES = 32 << 20  # smaller caches make nobody ask
GROWTH = 1.1
GROWN_SHARE = 0.01  # of the slabs' memory at the last moment
GROWN_BYTES = 1 << 20
GROWING_USE = 0.9


@dataclass(frozen=True)
class Holder:
    """A cache with most of the memory, nearly all of whose objects live."""

    name: str
    bytes: float
    share: float
    reclaimed: bool


@dataclass(frozen=True)
class Growth:
    """A cache whose live objects become more at each moment, or stay."""

    name: str
    objects: tuple[float, ...]  # at the moments; KiB where the form has no objects
    grown_bytes: float
    reclaimed: bool


def holders(facts: Sequence[Facts], slab_bytes: float) -> list[Holder]:
    found = []
    for fact in facts:
        size = fact.total.value if fact.total else 0
        if size < LEAST_BYTES or size < HOLDS_SHARE * slab_bytes or (fact.use or 0) < FULL_USE:
            continue
        found.append(Holder(fact.name, size, size / slab_bytes, fact.reclaimed))
    return found


def live(fact: Facts) -> float | None:
    if fact.active:
        return fact.active.value
    return fact.cache.used_bytes / 1024 if fact.cache.used_bytes is not None else None


def growths(moments: Sequence[Mapping[str, Facts]]) -> list[Growth]:
    """Of tables of a form in the order of their times."""
    if len(moments) < 2:
        return []
    last = moments[-1]
    whole = sum(fact.total.value for fact in last.values() if fact.total)
    found = []
    for name, fact in last.items():
        counts = [live(moment[name]) for moment in moments if name in moment]
        known = [count for count in counts if count is not None]
        before = next((moment[name] for moment in moments if name in moment), fact)
        if len(known) < 2 or not fact.total or not before.total:
            continue
        grown = fact.total.value - before.total.value
        rises = all(low <= high for low, high in pairwise(known))
        enough = grown >= max(GROWN_BYTES, GROWN_SHARE * whole)
        in_use = fact.use is None or fact.use >= GROWING_USE
        if rises and enough and in_use and known[-1] >= GROWTH * known[0]:
            found.append(Growth(name, tuple(known), grown, fact.reclaimed))
    return sorted(found, key=lambda growth: -growth.grown_bytes)
