# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The caches that a registry tells of: their records, and the sums over their nodes and slots."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmem.common.text import printable
from kmem.live.registry.file import PAGE_BYTES, RECORD_CACHE, RECORD_HEAD, RECORD_SLOT, Registry
from kmem.live.registry.layout import Fields, RegistryError

NODES_MOST = 8  # as many as the library has
COPIES = 100  # tries, until two copies in a row agree on the records
COPY_SECONDS = 1.0  # of this thread's work, for all tries
KEPT_MOST = 1 << 15  # caches, of all registries, that are kept for the next look

Offsets = npt.NDArray[np.int64]


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


# Of each registry the digest of the copy that was read last, and what was read. Most processes that
# a reader looks at again and again did nothing meanwhile.
last_read: dict[Path, tuple[bytes, list[Cache]]] = {}


def digest(copy: bytes) -> bytes:
    return hashlib.blake2b(copy, digest_size=16).digest()


def same_as_before(registry: Registry, earlier: bytes, copy: bytes) -> list[Cache] | None:
    """The caches as they were read last, if no word of the registry has changed since."""
    before = last_read.get(registry.path)
    # More caches than this look may have are refused as they are when they are read.
    if before is None or len(before[1]) > registry.caches_most:
        return None
    if earlier != copy or before[0] != digest(copy):
        return None
    registry.caches_found = len(before[1])
    return list(before[1])


def keep(registry: Registry, copy: bytes, caches: list[Cache]) -> None:
    last_read.pop(registry.path, None)
    # A copy of the list, because other threads keep caches too.
    if sum(len(kept) for _, kept in list(last_read.values())) + len(caches) > KEPT_MOST:
        last_read.clear()
    last_read[registry.path] = digest(copy), list(caches)


def read_caches(registry: Registry) -> list[Cache]:
    """All caches, newest first.

    Counts of returned objects come from an earlier copy than counts of taken objects, so they are
    never larger.
    """
    deadline = time.thread_time() + COPY_SECONDS
    for _ in range(COPIES):
        if time.thread_time() > deadline:
            raise RegistryError(f"{registry.path}: takes too long to be read")
        earlier, copy = registry.copy(), registry.copy()
        known = same_as_before(registry, earlier, copy)
        if known is not None:
            return known
        records = registry.records(copy)
        slots = np.array(records[RECORD_SLOT], np.int64)
        rows = rows_at(registry, copy, "slot", slots)
        births = column(registry, rows, "slot", "birth")
        # If a record's cache changed between the copies, read again. That is rare; a new cache gets
        # a new record at the end, which makes the copy longer.
        if len(earlier) == len(copy):
            earlier_rows = rows_at(registry, earlier, "slot", slots)
            if np.array_equal(births, column(registry, earlier_rows, "slot", "birth")):
                break
    else:
        raise RegistryError(f"{registry.path}: caches come and go too fast to be read")
    given = sum_by(births, column(registry, earlier_rows, "slot", "given"))
    taken = sum_by(births, column(registry, rows, "slot", "taken"))
    # An older library has no counts of calls.
    counts_calls = "slow_calls" in registry.parts["slot"]
    slow_calls, fast_calls = (
        sum_by(births, column(registry, rows, "slot", name)) if counts_calls else {}
        for name in ("slow_calls", "fast_calls")
    )
    places = np.array(records[RECORD_CACHE], np.int64)
    own_given = column(
        registry, rows_at(registry, earlier, "cache", places), "cache", "given"
    ).tolist()
    caches = fields_at(registry, copy, "cache", places)
    registry.caches_found = len(caches)
    if len({row["birth"] for row in caches}) != len(caches):
        raise RegistryError(f"{registry.path}: two caches of one birth")
    nodes = nodes_of(registry, copy, places, [row["nodes"] for row in caches])
    found = [
        Cache(
            offset=at,
            fields=with_texts(registry, copy, row, at),
            nodes=nodes[number],
            taken=taken.get(row["birth"], 0) + row["taken"],
            given=given.get(row["birth"], 0) + own_given[number],
            slow_calls=slow_calls.get(row["birth"], 0),
            fast_calls=fast_calls.get(row["birth"], 0),
            flags={
                name: row["flags"] & place.value != 0
                for name, place in registry.parts["flag"].items()
            },
        )
        for number, (at, row) in enumerate(zip(records[RECORD_CACHE], caches, strict=True))
    ]
    found.sort(key=lambda cache: cache["birth"], reverse=True)
    keep(registry, copy, found)
    return found
