# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Data for `kmem top` and `kmem serve`: figures of running processes, and their history."""

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from kmem.common.processes import command, has_ended, read_file, start_time
from kmem.live.registry.caches import Cache, facts_of, read_caches
from kmem.live.registry.file import Registry, alive
from kmem.live.registry.find import open_process, read_each
from kmem.live.registry.heap import Guards, Heap, SoftLimit
from kmem.live.registry.layout import RegistryError

MACHINE_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Figures:
    """The figures of a process at a moment."""

    process: int
    id: int  # of the registry; it changes with exec
    command: str
    release: str
    caches: list[Cache]
    heap: Heap | None  # None: its library is older than these figures
    resident_bytes: int  # of the whole process, as the system counts
    missing: int  # records that found no room in the registry
    user: int = 0  # owner of the registry
    guards: Guards | None = None  # None: its library is older than these
    soft_limit: SoftLimit | None = None  # None: it has no limit, or its library is older

    @cached_property
    def slab_bytes(self) -> int:
        return sum(cache.slab_bytes for cache in self.caches)

    @cached_property
    def active_bytes(self) -> int:
        return sum(active_bytes(cache) for cache in self.caches)

    @cached_property
    def waste_bytes(self) -> int:
        return sum(waste_bytes(cache) for cache in self.caches)

    @cached_property
    def objects(self) -> int:
        return sum(cache.objects for cache in self.caches)

    @cached_property
    def active(self) -> int:
        return sum(cache.active for cache in self.caches)

    @cached_property
    def slabs(self) -> int:
        return sum(cache.total("slabs") for cache in self.caches)


def active_bytes(cache: Cache) -> int:
    return cache.active_bytes


def waste_bytes(cache: Cache) -> int:
    return cache.waste_bytes


def fast_share(fast_calls: int, slow_calls: int) -> float | None:
    """The least share of calls that the fast path served; None if there were no calls."""
    calls = fast_calls + slow_calls
    return fast_calls / calls if calls > 0 else None


def use_percent(cache: Cache) -> int:
    return 100 * cache.active // cache.objects if cache.objects else 0


def resident_bytes(process: int) -> int:
    """Resident memory of a process; 0 if it has ended."""
    try:
        return int(read_file(process, "statm").split()[1]) * MACHINE_PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def read_figures(registry: Registry) -> Figures:
    process = registry.process
    caches = read_caches(registry)
    facts = facts_of(registry)
    return Figures(
        process=process,
        id=facts.id,
        command=command(process),
        release=facts.release,
        caches=caches,
        heap=facts.heap,
        resident_bytes=resident_bytes(process),
        missing=facts.missing,
        user=registry.status.st_uid,
        guards=facts.guards,
        soft_limit=facts.soft_limit,
    )


def read_processes(refusals: list[str]) -> list[Figures]:
    """All visible processes, by process number. A process that ends meanwhile is left out.

    `refusals` gets a line for each registry that cannot be used.
    """
    found: dict[int, Figures] = {}
    for figures in read_each(read_figures, refusals):
        # Any user can make two registries for a process; readers take only the first.
        found.setdefault(figures.process, figures)
    return [found[process] for process in sorted(found)]


class Watched:
    """A process that is read again and again, through a registry that stays open."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.started = start_time(process)
        self.registry: Registry | None = open_process(process)

    def close(self) -> None:
        if self.registry is not None:
            self.registry.close()
            self.registry = None

    def read(self) -> Figures:
        """Read the figures; RegistryError gives the reason in a line if there are none any more."""
        if self.registry is not None and alive(self.registry):
            return read_figures(self.registry)
        self.close()
        if has_ended(self.process):
            raise RegistryError(f"process {self.process} has ended")
        if start_time(self.process) != self.started:
            raise RegistryError(
                f"process {self.process} has ended, and {command(self.process)} has its number now"
            )
        raise RegistryError(
            f"process {self.process} is another program now: {command(self.process)}"
        )


@dataclass
class Track:
    """Bytes that a cache, or a process, held at the last moments, oldest first."""

    bytes: deque[int]

    @property
    def growth(self) -> int:
        return self.bytes[-1] - self.bytes[0] if self.bytes else 0


@dataclass
class History:
    """Slab bytes by key at the last moments that were read."""

    moments: int
    tracks: dict[int, Track] = field(default_factory=dict)

    def add(self, values: Iterable[tuple[int, int]]) -> None:
        """Keys that are missing have ended and are forgotten."""
        now = dict(values)
        for key in self.tracks.keys() - now.keys():
            del self.tracks[key]
        for key, value in now.items():
            track = self.tracks.setdefault(key, Track(deque(maxlen=self.moments)))
            track.bytes.append(value)

    def growth(self, key: int) -> int:
        track = self.tracks.get(key)
        return track.growth if track else 0

    def shown_growth(self, key: int) -> str:
        """The growth in at most five letters; - as long as there was a single look."""
        track = self.tracks.get(key)
        return short_bytes(track.growth, sign=True) if track and len(track.bytes) > 1 else "-"

    def values(self, key: int) -> list[int]:
        track = self.tracks.get(key)
        return list(track.bytes) if track else []


@dataclass
class Rates:
    """Counts a second by key, between the last two moments that were read."""

    totals: dict[int, int] = field(default_factory=dict)
    moment: float = 0.0  # s
    rates: dict[int, float] = field(default_factory=dict)

    def add(self, values: Iterable[tuple[int, int]], moment: float) -> None:
        """Counts so far; keys that are missing have ended, and new ones have no rate yet."""
        now = dict(values)
        passed = moment - self.moment
        if passed <= 0:
            return
        self.rates = {
            key: max(total - self.totals[key], 0) / passed
            for key, total in now.items()
            if key in self.totals
        }
        self.totals, self.moment = now, moment

    def shown(self, key: int) -> str:
        """The rate in at most five digits, or four and a letter for thousands; - without one."""
        rate = self.rates.get(key)
        return "-" if rate is None else short_count(rate)


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[int], width: int) -> str:
    """The last values as bars from 0 up to their maximum, so that a small change looks small."""
    last = values[-width:]
    if not last:
        return " " * width
    high = max(*last, 1)
    return "".join(BARS[value * (len(BARS) - 1) // high] for value in last).rjust(width)


def scaled(size: float, step: int, letters: str) -> str:
    """A size of 1000 or more in the first letter that leaves it three digits, or in the last."""
    for letter in letters:
        size /= step
        if size < 9.95:
            return f"{size:.1f}{letter}"
        if size < 999.5:
            break
    return f"{size:.0f}{letter}"


def short_count(count: float) -> str:
    """At most four digits, or three and a letter for powers of 1000: 812, 9.5k, 132M."""
    if count < 1000:
        return f"{count:.0f}" if count >= 9.95 or count == int(count) else f"{count:.1f}"
    return scaled(count, 1000, "kMGT")


def short_bytes(count: int, *, sign: bool = False) -> str:
    """At most five digits, or four and a letter: 812, 9.5K, 132M."""
    mark = "-" if count < 0 else "+" if sign and count else ""
    size = float(abs(count))
    if size < 1000:
        return f"{mark}{int(size)}"
    return mark + scaled(size, 1024, "KMGTPE")
