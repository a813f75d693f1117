# SPDX-License-Identifier: Apache-2.0 OR MIT
"""By which CPU count the slabs of a table were chosen (S3-13), by the library's rule of orders.

build/tools/order computes each cache for each count. Counts between two powers of two give the
same wish, so fourteen counts stand for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kmem.explain.facts import Facts
from kmem.explain.table import Boot, Figure
from kmem.lab.orders import Case, Slab, compute

COUNTS = tuple(1 << power for power in range(14))
RULES = ("5.10", "6.12")
LEAST_SIZE, MOST_SIZE = 8, 1 << 20


def last_of(count: int) -> int:
    """The last count that has the wish of this one; no kernel has more than 8,192 CPUs."""
    return min(2 * count - 1, COUNTS[-1])


def words(counts: Sequence[int]) -> str:
    """The counts as ranges: 8-31, or 1, 8-31."""
    ranges: list[tuple[int, int]] = []
    for count in counts:
        if ranges and ranges[-1][1] + 1 == count:
            ranges[-1] = (ranges[-1][0], last_of(count))
        else:
            ranges.append((count, last_of(count)))
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


def sized(facts: Sequence[Facts]) -> list[Facts]:
    return [fact for fact in facts if fact.stride and LEAST_SIZE <= fact.stride.value <= MOST_SIZE]


Shapes = Mapping[tuple[str, str, int], Slab]  # by cache, rule and count


def all_shapes(
    facts: Sequence[Facts], page_bytes: int, boot: Boot | None = None
) -> dict[tuple[str, str, int], Slab]:
    """The slabs that every cache with a known stride would have, in the bounds of the boot.

    Memory groups have thousands of caches of a few sizes, each of which is computed once.
    """
    bounds = (boot.least_order, boot.greatest_order, boot.least_objects) if boot else ()
    sizes = {fact.name: int(fact.stride.value) for fact in sized(facts) if fact.stride}
    cases = {
        (size, rule, count): Case(size, count, page_bytes, rule, *bounds)
        for size in dict.fromkeys(sizes.values())
        for rule in RULES
        for count in COUNTS
    }
    slabs = dict(zip(cases, compute(list(cases.values())), strict=True)) if cases else {}
    return {
        (name, rule, count): slabs[size, rule, count]
        for name, size in sizes.items()
        for rule in RULES
        for count in COUNTS
    }


@dataclass(frozen=True)
class Fit:
    """The counts under which most caches have the slabs of the table."""

    rule: str
    counts: tuple[int, ...]
    fitting: int  # caches
    told: int  # caches whose slabs depend on the count
    caches: int  # with a shape to compare

    @property
    def text(self) -> str:
        return words(self.counts)

    @property
    def known(self) -> bool:
        return bool(self.counts) and self.told > 0


def shape_of(fact: Facts, page_bytes: int) -> tuple[int, int] | None:
    """Objects and pages of a slab, if the table has both."""
    if not fact.per_slab or not fact.slab or not fact.stride:
        return None
    return int(fact.per_slab.value), int(fact.slab.value) // page_bytes


def order_of(fact: Facts, page_bytes: int) -> Figure | None:
    """The order of a cache's slabs; SLAB of ZFS has slabs that are no power of two pages."""
    if fact.slab is None:
        return None
    pages = int(fact.slab.value) // page_bytes
    power = pages > 0 and pages & (pages - 1) == 0 and fact.slab.value == pages * page_bytes
    return Figure(pages.bit_length() - 1, "computed") if power else None


def counts_of(
    fact: Facts, shapes: Shapes, rule: str, page_bytes: int, *, exact: bool = True
) -> tuple[int, ...]:
    """The counts that give a cache its slabs."""
    wanted = shape_of(fact, page_bytes)
    found = []
    for count in COUNTS:
        slab = shapes.get((fact.name, rule, count))
        if (
            slab
            and wanted
            and (slab.pages == wanted[1])
            and (slab.objects == wanted[0] or not exact)
        ):
            found.append(count)
    return tuple(found)


def is_exact(fact: Facts) -> bool:
    """crash and slabtop do not print the stride, so only the pages of a slab are compared."""
    return fact.stride is not None and fact.stride.how == "read"


def fit(facts: Sequence[Facts], shapes: Shapes, page_bytes: int) -> Fit:
    best = Fit(RULES[0], (), 0, 0, 0)
    for rule in RULES:
        fits = [
            counts_of(fact, shapes, rule, page_bytes, exact=is_exact(fact))
            for fact in sized(facts)
            if shape_of(fact, page_bytes)
        ]
        votes = {count: sum(count in counts for counts in fits) for count in COUNTS}
        most = max(votes.values(), default=0)
        counts = tuple(count for count in COUNTS if votes[count] == most) if most else ()
        told = sum(0 < len(found) < len(COUNTS) for found in fits)
        if most > best.fitting:
            best = Fit(rule, counts, most, told, len(fits))
    return best
