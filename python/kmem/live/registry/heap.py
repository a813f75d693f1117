# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The pages of a process's heap, as its registry counts them, and other facts of its head."""

from dataclasses import dataclass

from kmem.live.registry.file import PAGE_BYTES, Registry


@dataclass(frozen=True)
class Heap:
    """Pages of a process's heap and its blocks of whole pages; all in bytes but the counts."""

    base: int
    reserved_bytes: int
    used_bytes: int  # in slabs and large blocks
    free_bytes: int
    free_touched_bytes: int  # free pages that were not given back to the system since their use
    purged_bytes: int  # given back so far
    large_blocks: int
    large_bytes: int
    huge_blocks: int
    huge_bytes: int
    huge_kept_bytes: int

    @property
    def held_bytes(self) -> int:
        """Heap pages that the system has given to the process, or will give at a touch."""
        return self.used_bytes + self.free_touched_bytes


def read_heap(registry: Registry) -> Heap | None:
    """The heap's figures; None if the library is older than these."""
    if "kept" not in registry.parts["head"]:
        return None
    place = registry.parts["head"]["zone"]
    count = min(registry.number("head", "zones"), place.count)
    zones = [place.offset + zone * place.size for zone in range(count)]

    def total(name: str) -> int:
        return sum(registry.number("zone", name, zone) for zone in zones)

    # A zone counts kept pages as in use. Each kept word has a cache line.
    words = registry.parts["head"]["kept"]
    line = registry.content(words.offset, words.size * words.count)
    kept = [int.from_bytes(line[at : at + 8], "little") for at in range(0, len(line), words.size)]
    kept_bytes = PAGE_BYTES * sum(word >> 32 for word in kept)
    free_bytes = PAGE_BYTES * total("free_pages") + kept_bytes
    return Heap(
        base=registry.number("head", "heap_base"),
        reserved_bytes=registry.number("head", "heap_reserved_bytes"),
        used_bytes=max(PAGE_BYTES * total("used_pages") - kept_bytes, 0),
        free_bytes=free_bytes,
        free_touched_bytes=min(PAGE_BYTES * total("free_touched_pages") + kept_bytes, free_bytes),
        purged_bytes=PAGE_BYTES * total("purged_pages"),
        large_blocks=max(total("large_blocks") - sum(word != 0 for word in kept), 0),
        large_bytes=max(PAGE_BYTES * total("large_pages") - kept_bytes, 0),
        huge_blocks=registry.number("head", "huge_blocks"),
        huge_bytes=registry.number("head", "huge_bytes"),
        huge_kept_bytes=registry.number("head", "huge_kept_bytes"),
    )


@dataclass(frozen=True)
class Guards:
    """Sampled guards of a process (docs/debugging.md)."""

    made: int
    live: int
    missed: int  # for want of a place, of memory or of mappings
    faults: int


def read_guards(registry: Registry) -> Guards | None:
    """The guards' figures; None if the library is older than these."""
    if "guards_made" not in registry.parts["head"]:
        return None
    return Guards(
        made=registry.number("head", "guards_made"),
        live=registry.number("head", "guards_live"),
        missed=registry.number("head", "guards_missed"),
        faults=registry.number("head", "guard_faults"),
    )


def read_sample_interval(registry: Registry) -> int:
    """Bytes between two samples; 0 if none are taken, or the library is older than samples."""
    if "profile_interval" not in registry.parts["head"]:
        return 0
    return registry.number("head", "profile_interval")


@dataclass(frozen=True)
class SoftLimit:
    """What option soft_limit has done in a process (docs/running.md)."""

    limit_bytes: int
    trims: int
    given_back_bytes: int


def read_soft_limit(registry: Registry) -> SoftLimit | None:
    """The limit's figures; None without a limit, or from an older library."""
    if "soft_limit_bytes" not in registry.parts["head"]:
        return None
    limit = registry.number("head", "soft_limit_bytes")
    if not limit:
        return None
    return SoftLimit(
        limit_bytes=limit,
        trims=registry.number("head", "soft_limit_trims"),
        given_back_bytes=registry.number("head", "soft_limit_given_back"),
    )


@dataclass(frozen=True)
class Facts:
    """What the head tells of a process beside its caches."""

    id: int  # of the registry; it changes with exec
    release: str
    missing: int  # records that found no room in the registry
    heap: Heap | None
    guards: Guards | None
    soft_limit: SoftLimit | None


def read_facts(registry: Registry) -> Facts:
    return Facts(
        id=registry.number("head", "id"),
        release=str(registry.read("head", "release")),
        missing=registry.number("head", "missing"),
        heap=read_heap(registry),
        guards=read_guards(registry),
        soft_limit=read_soft_limit(registry),
    )
