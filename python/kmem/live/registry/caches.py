# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The caches that a registry tells of: their records, and the sums over their nodes and slots."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmem.common.text import printable
from kmem.live.registry.file import PAGE_BYTES, RECORD_CACHE, RECORD_HEAD, RECORD_SLOT, Registry
from kmem.live.registry.heap import Facts, read_facts
from kmem.live.registry.layout import Fields, RegistryError

NODES_MOST = 8  # as many as the library has
COPIES = 100  # tries, until two copies in a row agree on the records
COPY_SECONDS = 1.0  # of this thread's work, for all tries
KEPT_MOST = 1 << 15  # caches, of all registries, that are kept for the next look
# Copies that are kept with them, of all registries and of each: that of a program with a hundred
# caches is 100 KiB, and those of a program that is profiled for long change all the time.
KEPT_BYTES_MOST, KEPT_BYTES_EACH = 1 << 27, 1 << 21

Offsets = npt.NDArray[np.int64]


class Moment(NamedTuple):
    """What a history keeps of a cache at a moment."""

    slab: int
    waste: int
    taken: int
    given: int
    slow: int
    fast: int


@dataclass(frozen=True)
class Cache:
    """A cache's record, its nodes, and the sums over its slots, as they were when it was read."""

    offset: int
    fields: Fields[int | str]
    nodes: list[Fields[int]]
    taken: int
    given: int
    slow_calls: int  # calls that found main empty or full; engine slub
    fast_calls: int  # at least this many calls did not
    flags: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        value = self.fields[name]
        assert isinstance(value, int)
        return value

    @property
    def name(self) -> str:
        return str(self.fields["name"])

    def total(self, name: str) -> int:
        return sum(node[name] for node in self.nodes)

    @cached_property
    def handed_out(self) -> int:
        """Objects that left the back end and did not come back; never below 0."""
        return max(self.taken - self.given + self.total("refused"), 0)

    @cached_property
    def pages_per_slab(self) -> int:
        """Pages of a slab. An older library has powers of two only, and gives the order."""
        return int(self.fields.get("pages_per_slab", 1 << min(self["order"], 31)))

    @cached_property
    def slab_bytes(self) -> int:
        return self.total("slabs") * self.pages_per_slab * PAGE_BYTES

    @cached_property
    def objects(self) -> int:
        """Objects in the cache's slabs; engine slob has none, so there the objects handed out.

        Slabs and their objects are two words; between the stores to them, one is ahead of the
        other.
        """
        if self.fields["engine"] == "slob":
            return self.handed_out
        return min(self.total("objects"), self.total("slabs") * self["objs_per_slab"])

    @cached_property
    def active(self) -> int:
        """Objects handed out, at most `objects`.

        The limit is needed because, in a running process, the sums are of different moments.
        """
        return min(self.handed_out, self.objects)

    @cached_property
    def active_bytes(self) -> int:
        """Bytes asked for in objects that are handed out, to the program or to sheaves."""
        return self.active * self["object_size"]

    @cached_property
    def waste_bytes(self) -> int:
        """Slab memory without objects handed out: free objects, padding, and the ends of slabs.

        Engine slob's caches share the pages of cache `slob`, and their waste is not known.
        """
        if self.fields["engine"] == "slob":
            return 0
        return max(self.slab_bytes - self.active_bytes, 0)

    @cached_property
    def moment(self) -> Moment:
        """A cache that nobody used stays as it was read, so its moments share this."""
        return Moment(
            self.slab_bytes,
            self.waste_bytes,
            self.taken,
            self.given,
            self.slow_calls,
            self.fast_calls,
        )


def rows_at(registry: Registry, copy: bytes, part: str, bases: Offsets) -> npt.NDArray[np.void]:
    """All numbers of the parts at these places, a row each with a column for each field."""
    form = registry.forms[part]
    if not form.names:
        raise RegistryError(f"{registry.path}: no fields in part {part}")
    if bases.size and int(bases.max()) + form.itemsize > len(copy):
        raise RegistryError(f"{registry.path}: a {part} lies behind the end")
    words = np.frombuffer(copy, "<u8", len(copy) // 8)
    of_part = np.arange(form.itemsize // 8)
    rows: npt.NDArray[np.void] = words[bases[:, np.newaxis] // 8 + of_part].view(form)
    return rows[:, 0]


def column(
    registry: Registry, rows: npt.NDArray[np.void], part: str, name: str
) -> npt.NDArray[np.uint64]:
    assert rows.dtype.names is not None
    if name not in rows.dtype.names:
        raise RegistryError(f"{registry.path}: no field {name} in part {part}")
    return rows[name].astype(np.uint64)


def fields_at(registry: Registry, copy: bytes, part: str, bases: Offsets) -> list[Fields[int]]:
    """All numbers of the parts at these places, a dictionary for each part."""
    rows = rows_at(registry, copy, part, bases)
    names = rows.dtype.names or ()
    return [Fields(registry.path, part, zip(names, row, strict=True)) for row in rows.tolist()]


def text_at(registry: Registry, copy: bytes, name: str, base: int) -> str:
    place = registry.parts["cache"][name]
    text = copy[base + place.offset : base + place.offset + place.size].split(b"\0")[0]
    return text.decode("utf-8", "backslashreplace")


def with_texts(registry: Registry, copy: bytes, row: Fields[int], base: int) -> Fields[int | str]:
    fields = Fields[int | str](registry.path, "cache", row.items())
    fields["name"] = text_at(registry, copy, "name", base)  # unchanged: users ask for a cache by it
    fields["engine"] = printable(text_at(registry, copy, "engine", base))
    return fields


def nodes_of(
    registry: Registry, copy: bytes, places: Offsets, counts: Sequence[int]
) -> list[list[Fields[int]]]:
    """For each cache the figures of its nodes."""
    node = registry.parts["cache"]["node"]
    most = max(counts, default=0)
    if most > NODES_MOST:
        raise RegistryError(f"{registry.path}: {most} nodes; expected at most {NODES_MOST}")
    for at, count in zip(places.tolist(), counts, strict=True):
        if node.offset + count * node.size > RECORD_HEAD.unpack_from(copy, at)[1]:
            raise RegistryError(f"{registry.path}: {count} nodes lie behind the end of a cache")
    found: list[list[Fields[int]]] = [[] for _ in counts]
    for number in range(most):
        having = [cache for cache, count in enumerate(counts) if count > number]
        bases = places[having] + node.offset + number * node.size
        for cache, row in zip(having, fields_at(registry, copy, "node", bases), strict=True):
            found[cache].append(row)
    return found


def sum_by(births: npt.NDArray[np.uint64], numbers: npt.NDArray[np.uint64]) -> dict[int, int]:
    """Sums over the slots of each cache."""
    of_caches, place = np.unique(births, return_inverse=True)
    sums = np.zeros(len(of_caches), np.uint64)
    np.add.at(sums, place, numbers)
    return dict(zip(of_caches.tolist(), sums.tolist(), strict=True))


@dataclass
class Kept:
    """A copy of a registry, and what was read of it."""

    copy: bytes
    caches: list[Cache]
    facts: Facts | None = None


# By registry what was read last. Most processes that a reader looks at again and again did nothing
# meanwhile, and a comparison with the copy is much cheaper than a digest of each.
last_read: dict[Path, Kept] = {}


def same_as_before(registry: Registry, earlier: bytes, copy: bytes) -> list[Cache] | None:
    """The caches as they were read last, if no word of the registry has changed since."""
    before = last_read.get(registry.path)
    # More caches than this look may have are refused as they are when they are read.
    if before is None or len(before.caches) > registry.caches_most:
        return None
    if earlier != copy or before.copy != copy:
        return None
    registry.caches_found = len(before.caches)
    registry.copied = before.copy
    return list(before.caches)


def keep(registry: Registry, copy: bytes, caches: list[Cache]) -> None:
    last_read.pop(registry.path, None)
    if len(copy) > KEPT_BYTES_EACH:
        return
    # A copy of the list, because other threads keep caches too.
    others = list(last_read.values())
    if (
        sum(len(kept.caches) for kept in others) + len(caches) > KEPT_MOST
        or sum(len(kept.copy) for kept in others) + len(copy) > KEPT_BYTES_MOST
    ):
        last_read.clear()
    last_read[registry.path] = Kept(copy, list(caches))
    registry.copied = copy


def facts_of(registry: Registry) -> Facts:
    """The facts of the moment at which the caches were read last."""
    kept = last_read.get(registry.path)
    if kept is None or kept.copy is not registry.copied:
        return read_facts(registry)
    if kept.facts is None:
        with registry.as_of(kept.copy):
            kept.facts = read_facts(registry)
    return kept.facts


def copies(registry: Registry) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of copies, one right behind the other, as long as there is time for more."""
    deadline = time.thread_time() + COPY_SECONDS
    for _ in range(COPIES):
        if time.thread_time() > deadline:
            raise RegistryError(f"{registry.path}: takes too long to be read")
        yield registry.copy(), registry.copy()


class Slots(NamedTuple):
    """The records of slots in two copies, which are of the same caches in both."""

    births: npt.NDArray[np.uint64]
    earlier: npt.NDArray[np.void]
    later: npt.NDArray[np.void]


def slots_of_both(registry: Registry, earlier: bytes, copy: bytes, places: Offsets) -> Slots | None:
    """None if a record's cache changed between the copies, which is rare.

    A new cache gets a new record at the end, which makes the copy longer.
    """
    if len(earlier) != len(copy):
        return None
    later = rows_at(registry, copy, "slot", places)
    earlier_rows = rows_at(registry, earlier, "slot", places)
    births = column(registry, later, "slot", "birth")
    if not np.array_equal(births, column(registry, earlier_rows, "slot", "birth")):
        return None
    return Slots(births, earlier_rows, later)


def read_caches(registry: Registry) -> list[Cache]:
    """All caches, newest first.

    Counts of returned objects come from an earlier copy than counts of taken objects, so they are
    never larger.
    """
    for earlier, copy in copies(registry):
        known = same_as_before(registry, earlier, copy)
        if known is not None:
            return known
        records = registry.records(copy)
        slots = slots_of_both(registry, earlier, copy, np.array(records[RECORD_SLOT], np.int64))
        if slots is not None:
            found = caches_of(registry, earlier, copy, records[RECORD_CACHE], slots)
            found.sort(key=lambda cache: cache["birth"], reverse=True)
            keep(registry, copy, found)
            return found
    raise RegistryError(f"{registry.path}: caches come and go too fast to be read")


def caches_of(
    registry: Registry, earlier: bytes, copy: bytes, offsets: Sequence[int], slots: Slots
) -> list[Cache]:
    given = sum_by(slots.births, column(registry, slots.earlier, "slot", "given"))
    taken = sum_by(slots.births, column(registry, slots.later, "slot", "taken"))
    # An older library has no counts of calls.
    counts_calls = "slow_calls" in registry.parts["slot"]
    slow_calls, fast_calls = (
        sum_by(slots.births, column(registry, slots.later, "slot", name)) if counts_calls else {}
        for name in ("slow_calls", "fast_calls")
    )
    places = np.array(offsets, np.int64)
    own_given = column(
        registry, rows_at(registry, earlier, "cache", places), "cache", "given"
    ).tolist()
    caches = fields_at(registry, copy, "cache", places)
    registry.caches_found = len(caches)
    if len({row["birth"] for row in caches}) != len(caches):
        raise RegistryError(f"{registry.path}: two caches of one birth")
    nodes = nodes_of(registry, copy, places, [row["nodes"] for row in caches])
    return [
        Cache(
            offset=at,
            fields=with_texts(registry, copy, row, at),
            nodes=nodes[number],
            taken=taken.get(row["birth"], 0) + row["taken"],
            given=given.get(row["birth"], 0) + own_given[number],
            slow_calls=slow_calls.get(row["birth"], 0),
            fast_calls=fast_calls.get(row["birth"], 0),
            flags={
                name: int(row["flags"] & place.value != 0)
                for name, place in registry.parts["flag"].items()
            },
        )
        for number, (at, row) in enumerate(zip(offsets, caches, strict=True))
    ]
