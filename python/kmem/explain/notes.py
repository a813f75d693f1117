# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a table says beyond its sums: caches of memory groups, and why an allocation failed."""

from __future__ import annotations

import re

from kmem.explain.answers import Answers
from kmem.explain.column_forms import COLUMNS
from kmem.explain.facts import Facts
from kmem.explain.kernel_forms import FAILED
from kmem.explain.table import Cache

# A system has a few hundred caches of its own, each of which is an object of this one.
CACHE_OF_CACHES = "kmem_cache"
MANY_CACHES = 5000
NAMES_SHOWN = 6
TOP_ROUNDING = 5.12  # bytes
GROUP_NAME = re.compile(r"\(\d{1,9}:.{1,300}\)$", re.ASCII)


def group_lines(answers: Answers) -> list[str]:
    """Kernels before 5.9 make caches for each memory group that allocates from them."""
    for fact in answers.facts:
        if fact.name != CACHE_OF_CACHES or not fact.active or fact.active.value < MANY_CACHES:
            continue
        own = [one for one in answers.facts if one.name in (CACHE_OF_CACHES, "kmem_cache_node")]
        size = sum(one.total.value for one in own if one.total)
        return [
            f"{CACHE_OF_CACHES} has {fact.active.value:,.0f} r objects in use, one for each cache:"
            " a kernel before 5.9 makes caches for each memory group, as of containers, and keeps"
            " those of ended groups while an object lives; these descriptions alone are"
            f" {size / 1024:,.0f} c KiB, and each such cache has slabs of its own"
        ]
    return []


def failed_line(cache: Cache) -> str:
    """What the kernel asked for and did not get."""
    least = cache.least_order if cache.least_order is not None else cache.order
    if least is None:
        asked = "no slab could be made"
    elif least == 0:
        asked = (
            "not even a single page was free for a slab: memory as a whole was short, or, for a"
            " request that cannot wait (GFP_ATOMIC) or wants one node, what it may take of it"
        )
    else:
        asked = (
            f"no {1 << least} r pages in a row were free for a slab: memory may be split rather"
            " than short, and smaller objects would help"
        )
    free = (cache.objects or 0) - (cache.active or 0)
    line = f"{cache.name}: {asked}"
    if free:
        line += f"; {free:,} c free objects lie on other nodes or in other CPUs' slabs"
    if GROUP_NAME.search(cache.name):
        line += "; it is a memory group's, whose limit may be what was short"
    return line


def least_bytes(fact: Facts) -> float:
    """What a cache's objects take at least; slabtop rounds the size of one by 10.24 bytes."""
    if fact.objects is None or fact.stride is None:
        return 0
    rounded = fact.cache.rounded_bytes
    return fact.objects.value * (fact.stride.value if rounded is None else rounded - TOP_ROUNDING)


def contradiction_lines(answers: Answers) -> list[str]:
    """Rows whose own numbers cannot all be true, as in tables that somebody made up."""
    names = [
        fact.name
        for fact in answers.facts
        if fact.total and fact.total.how == "read" and least_bytes(fact) > 1.1 * fact.total.value
    ]
    if not names:
        return []
    more = f", and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return [
        f"{len(names)} c rows contradict themselves, as their objects need more than their memory:"
        f" {', '.join(names[:NAMES_SHOWN])}{more}"
    ]


def notes(answers: Answers) -> list[str]:
    lines = [*contradiction_lines(answers), *group_lines(answers)]
    if answers.table.form == COLUMNS and all(fact.slab is None for fact in answers.facts):
        lines.append(
            "the table has no slabs, so its memory is that of objects, and slabs have more"
        )
    if answers.table.form == FAILED:
        lines += [failed_line(cache) for cache in answers.table.caches]
    return lines
