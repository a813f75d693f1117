# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A made-up boot with the numbers of calls and bytes of the mail that split SLOB's list.

A boot registers devices. For each device the kernel allocates a large block for a moment (the
environment of its event: 2,184 bytes on a 32-bit machine, 2,592 in the recorded boots), and small
and medium objects that stay. `Churn` holds the parameters that matter. Three facts follow from the
mail: its 10,420 living objects have 932,647 bytes; about half of these bytes are in objects of more
than 300 bytes; its 4,797 kmalloc blocks that were freed had 530 bytes each or more. Sizes and order
are made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import polars as pl

from kmem.traces import file as tr

LASTING_SIZES = (12, 20, 28, 32, 40, 64)  # kmalloc
LASTING_SMALL = (48, 56, 64)  # of caches
LASTING_BIG = (340, 408, 496)
SHORT_SIZES = (16, 32, 64, 64)
SHORT_OBJECTS = (64, 96, 136, 200)
LASTING = {"sizes": 5450, "small": 3750, "big": 1220}
SHORT = {"sizes": 3337, "objects": 7312}


@dataclass(frozen=True)
class Churn:
    """The parameters that experiments vary."""

    seed: int = 1
    large_bytes: int = 2184  # of a large block that lives for a moment
    large_count: int = 1460
    overlap: float = 0.3  # share of large blocks that see the allocation of a lasting object
    held: int = 8  # short-lived objects that live at once


class _Maker:
    def __init__(self, churn: Churn) -> None:
        self.random = Random(churn.seed)
        self.caches: dict[int, int] = {}  # ids by size
        self.rows: list[tuple[int, int, int, int]] = []  # object, bytes, cache, operation
        self.given: list[tuple[int, int]] = []  # bytes and cache of each object

    def alloc(self, size: int, cache: int = tr.CACHE_KMALLOC) -> int:
        self.given.append((size, cache))
        self.rows.append((len(self.given) - 1, size, cache, tr.ALLOC))
        return len(self.given) - 1

    def alloc_object(self, size: int) -> int:
        return self.alloc(size, self.caches.setdefault(size, len(self.caches) + 2))

    def free(self, number: int) -> None:
        self.rows.append((number, *self.given[number], tr.FREE))

    def lasting(self) -> list[tuple[bool, int]]:
        """For each lasting object, whether it is from a cache, and its bytes; in random order."""
        choose = self.random.choice
        wanted = [(False, choose(LASTING_SIZES)) for _ in range(LASTING["sizes"])]
        wanted += [(True, choose(LASTING_SMALL)) for _ in range(LASTING["small"])]
        wanted += [(True, choose(LASTING_BIG)) for _ in range(LASTING["big"])]
        self.random.shuffle(wanted)
        return wanted

    def alloc_lasting(self, wanted: list[tuple[bool, int]]) -> None:
        if wanted:
            from_cache, size = wanted.pop()
            (self.alloc_object if from_cache else self.alloc)(size)


def _spread(total: int, number: int, of: int) -> int:
    """How many of `total` fall to place `number` of `of`."""
    return (number + 1) * total // of - number * total // of


def make_churn(churn: Churn) -> tr.Trace:
    maker = _Maker(churn)
    lasting = maker.lasting()
    places = len(lasting)
    held: list[int] = []
    for number in range(churn.large_count):
        share = _spread(places, number, churn.large_count)
        large = maker.alloc(churn.large_bytes)
        path = maker.alloc(maker.random.choice(SHORT_SIZES))
        if maker.random.random() < churn.overlap and share:
            maker.alloc_lasting(lasting)
            share -= 1
        maker.free(path)
        maker.free(large)
        for _ in range(share):
            maker.alloc_lasting(lasting)
        for _ in range(_spread(SHORT["sizes"] - churn.large_count, number, churn.large_count)):
            maker.free(maker.alloc(maker.random.choice(SHORT_SIZES)))
        for _ in range(_spread(SHORT["objects"], number, churn.large_count)):
            held.append(maker.alloc_object(maker.random.choice(SHORT_OBJECTS)))
            if len(held) > churn.held:
                maker.free(held.pop(maker.random.randrange(len(held))))
    for number in held:
        maker.free(number)
    return _as_trace(maker, churn)


def _as_trace(maker: _Maker, churn: Churn) -> tr.Trace:
    objects, sizes, caches, operations = zip(*maker.rows, strict=True)
    count = len(objects)
    columns = {
        "time": range(0, 1000 * count, 1000),
        "requested": sizes,
        "given": sizes,
        "thread": [1] * count,
        "object": objects,
        "site": [tr.SITE_UNKNOWN] * count,
        "flags": [0] * count,
        "cpu": [0] * count,
        "cache": caches,
        "operation": operations,
    }
    return tr.Trace(
        pl.DataFrame([pl.Series(name, list(columns[name]), tr.TYPES[name]) for name in tr.TYPES]),
        ["kmalloc", "?", *(f"object-{size}" for size in maker.caches)],
        ["?"],
        len(maker.given),
        1,
        source=f"made up: {churn}",
    )
