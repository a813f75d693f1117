# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The figures of the last hour that `kmem serve` keeps, in the form that its page gets."""

import operator
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kmem.common.errors import SayOnce
from kmem.common.processes import title
from kmem.live.attributes import PLAIN, WRITABLE, most
from kmem.live.registry.caches import Cache, Moment
from kmem.live.registry.layout import FLAGS
from kmem.live.tables import table_row, word
from kmem.live.watch import Figures, active_bytes, fast_share, read_processes, waste_bytes

MOMENTS = 300
# Sizes are also kept once a minute, for growth since a time before the last moments.
MINUTES = 61
MINUTE_SECONDS = 60
# Caches with a history; of further caches only the newest figures are kept.
HISTORIES_OF_PROCESS = 1 << 10
HISTORIES_OF_USER = 1 << 12  # for all processes of a user other than the caller

NO_SHARE = (
    "Not known: no slow path was counted yet. Caches of engines slab and slob, and those without"
    " sheaves, are never counted."
)

Document = dict[str, Any]


@dataclass
class CacheTrack:
    """A cache's figures at the last moments, oldest first; the newest moment is its process's."""

    moments: int = MOMENTS

    def __post_init__(self) -> None:
        self.looks = deque[Moment](maxlen=self.moments)
        self.minutes = deque[int](maxlen=min(self.moments, MINUTES))

    @property
    def slab(self) -> list[int]:
        return [look.slab for look in self.looks]

    def history(self) -> dict[str, list[int]]:
        return {name: [getattr(look, name) for look in self.looks] for name in Moment._fields}

    def add(self, cache: Cache, *, minute: bool = False) -> None:
        """@minute: this look is also kept as that of its minute."""
        if minute:
            self.minutes.append(cache.slab_bytes)
        self.looks.append(cache.moment)

    def again(self, *, minute: bool) -> None:
        """A look at a cache that is as it was."""
        if minute:
            self.minutes.append(self.looks[-1].slab)
        self.looks.append(self.looks[-1])


def value_at(times: Sequence[float], values: Sequence[int], at: float) -> int | None:
    """The value of the last look up to a time: 0 before the values begin, None before the times.

    Values are of the last times: what came later than the first look has fewer.
    """
    before = sum(time <= at for time in times)
    if not before:
        return None
    place = before - 1 - (len(times) - len(values))
    return values[place] if place >= 0 else 0


@dataclass
class ProcessTrack:
    """A process's last moments and its newest figures."""

    figures: Figures
    times: deque[float] = field(default_factory=lambda: deque(maxlen=MOMENTS))
    slab: deque[int] = field(default_factory=lambda: deque(maxlen=MOMENTS))
    waste: deque[int] = field(default_factory=lambda: deque(maxlen=MOMENTS))
    held: deque[int] = field(default_factory=lambda: deque(maxlen=MOMENTS))
    resident: deque[int] = field(default_factory=lambda: deque(maxlen=MOMENTS))
    caches: dict[int, CacheTrack] = field(default_factory=dict)  # by birth
    minute_times: deque[float] = field(default_factory=lambda: deque(maxlen=MINUTES))
    minutes: deque[int] = field(default_factory=lambda: deque(maxlen=MINUTES))

    def start(self, since: float | None) -> float:
        """The look that growth since a time counts from: the last one up to it, or the first."""
        if since is None:
            return self.times[0]
        for times in (self.times, self.minute_times):
            if before := [time for time in times if time <= since]:
                return before[-1]
        return min(self.times[0], self.minute_times[0])

    def growth(self, start: float) -> int:
        return self.grown(self.slab, self.minutes, start)

    def cache_growth(self, cache: CacheTrack, start: float) -> int | None:
        """None if the cache has no history."""
        if cache.moments != MOMENTS:
            return None
        return self.grown(cache.slab, cache.minutes, start)

    def grown(self, slab: Sequence[int], minutes: Sequence[int], start: float) -> int:
        base = value_at(self.times, slab, start)
        if base is None:
            base = value_at(self.minute_times, minutes, start)
        return slab[-1] - (base or 0)

    def histories(self) -> int:
        return sum(track.moments == MOMENTS for track in self.caches.values())

    def add(self, figures: Figures, moment: float, room: int) -> int:
        """@room: most caches that may have a history. Returns the room that is left."""
        # Readers give the caches of the last look again if nothing changed.
        was_idle = (
            bool(self.slab)
            and len(figures.caches) == len(self.figures.caches)
            and all(map(operator.is_, figures.caches, self.figures.caches))
        )
        self.figures = figures
        slab = self.slab[-1] if was_idle else figures.slab_bytes
        waste = self.waste[-1] if was_idle else figures.waste_bytes
        self.times.append(moment)
        minute = not self.minute_times or moment - self.minute_times[-1] >= MINUTE_SECONDS
        if minute:
            self.minute_times.append(moment)
            self.minutes.append(slab)
        self.slab.append(slab)
        self.waste.append(waste)
        self.held.append(figures.heap.held_bytes if figures.heap else 0)
        self.resident.append(figures.resident_bytes)
        if was_idle:
            for own in self.caches.values():
                own.again(minute=minute)
            return room - self.histories()
        births = {cache["birth"] for cache in figures.caches}
        for birth in self.caches.keys() - births:
            del self.caches[birth]
        left = room - self.histories()
        for cache in figures.caches:
            track = self.caches.get(cache["birth"])
            if track is None:
                track = self.caches[cache["birth"]] = CacheTrack(MOMENTS if left > 0 else 1)
                left -= 1
            track.add(cache, minute=minute)
        return room - self.histories()


def fast_path(caches: Iterable[Cache]) -> Document:
    """The least share of calls that the fast path served since the caches exist."""
    found = list(caches)
    share = fast_share(
        sum(cache.fast_calls for cache in found), sum(cache.slow_calls for cache in found)
    )
    return {"share": share, "why": NO_SHARE if share is None else None}


def attributes(cache: Cache) -> Document:
    """Values known without the process's help, and the writable attributes with their maxima."""
    values: Document = {name: cache.fields[name] for name in PLAIN.split() if name in cache.fields}
    values |= {name: cache.flags[name] for name in FLAGS.split() if name in cache.flags}
    writable = {name: most(cache, name) for name in WRITABLE.split()}
    return {"values": values, "writable": writable}


def cache_document(cache: Cache, track: CacheTrack) -> Document:
    return {
        "name": word(cache.name),
        "birth": str(cache["birth"]),
        "engine": cache.fields["engine"],
        "slab_bytes": cache.slab_bytes,
        "active_bytes": active_bytes(cache),
        "waste_bytes": waste_bytes(cache),
        "objects": cache.objects,
        "active_objects": cache.active,
        "object_size": cache["object_size"],
        "slabs": cache.total("slabs"),
        "partial": cache.total("partial"),
        "taken": cache.taken,
        "given": cache.given,
        "slow_calls": cache.slow_calls,
        "fast_calls": cache.fast_calls,
        "fast_share": fast_share(cache.fast_calls, cache.slow_calls),
        "table": table_row(cache),
        "attributes": attributes(cache),
        "history": track.history(),
    }


def process_row(figures: Figures, *, titled: bool) -> Document:
    heap = figures.heap
    return {
        "pid": figures.process,
        "command": figures.command,
        "command_line": title(figures.process) if titled else None,
        "release": figures.release,
        "caches": len(figures.caches),
        "slab_bytes": figures.slab_bytes,
        "active_bytes": figures.active_bytes,
        "waste_bytes": figures.waste_bytes,
        "objects": figures.objects,
        "active_objects": figures.active,
        "resident_bytes": figures.resident_bytes,
        "missing": figures.missing,
        "heap": heap and {
            "held_bytes": heap.held_bytes,
            "used_bytes": heap.used_bytes,
            "free_bytes": heap.free_touched_bytes,
            "large_bytes": heap.large_bytes,
            "huge_bytes": heap.huge_bytes,
            "huge_kept_bytes": heap.huge_kept_bytes,
        },
    }  # fmt: skip


class Sampler:
    """Reads all processes again and again, in a thread of its own."""

    def __init__(
        self, interval: float, read: Callable[[list[str]], list[Figures]] = read_processes
    ) -> None:
        self.interval = interval
        self.read = read
        self.lock = threading.Lock()
        self.tracks: dict[int, ProcessTrack] = {}
        self.say_once = SayOnce()  # lines that would otherwise come at each look
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self.look()
        self.thread.start()

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()

    def run(self) -> None:
        while not self.ended.wait(self.interval):
            self.look()

    def look(self) -> None:
        """Take a sample; a failure of any kind does not prevent the next sample."""
        try:
            self.sample()
        except OSError:
            # Descriptors may be short because of many clients; the next look may have them.
            pass
        except Exception as error:
            self.say_once(f"serve: a look at all processes failed: {error!r}")

    def sample(self) -> None:
        moment = time.time()
        refusals: list[str] = []
        found = {figures.process: figures for figures in self.read(refusals)}
        for refusal in refusals:
            self.say_once(f"serve: left out: {refusal}")
        used: Counter[int] = Counter()
        with self.lock:
            for process in self.tracks.keys() - found.keys():
                del self.tracks[process]
            for process, figures in found.items():
                track = self.tracks.get(process)
                # Another program has this number now, after exec or after the end of the first
                # program.
                if track is None or track.figures.id != figures.id:
                    track = self.tracks[process] = ProcessTrack(figures)
                of_user = HISTORIES_OF_USER - used[figures.user]
                if figures.user == os.geteuid():
                    of_user = HISTORIES_OF_PROCESS
                room = max(min(HISTORIES_OF_PROCESS, of_user), 0)
                used[figures.user] += room - track.add(figures, moment, room)

    def processes(self, since: float | None = None, *, titled: bool = False) -> list[Document]:
        """@since: growth is from this time on; None: from the first of the last moments on.

        @titled: with the words that each process was started with.
        """
        with self.lock:
            rows = [
                process_row(track.figures, titled=titled)
                | {
                    "history": list(track.slab),
                    "growth": track.growth(start),
                    "grown_since": start,
                }
                for track, start in ((track, track.start(since)) for track in self.tracks.values())
            ]
        return sorted(rows, key=lambda row: row["slab_bytes"], reverse=True)

    def process(
        self, process: int, since: float | None = None, *, titled: bool = False
    ) -> Document | None:
        """All figures of a process; None if it is not there any more."""
        with self.lock:
            track = self.tracks.get(process)
            if track is None:
                return None
            start = track.start(since)
            caches = [
                cache_document(cache, own) | {"growth": track.cache_growth(own, start)}
                for cache, own in (
                    (cache, track.caches[cache["birth"]]) for cache in track.figures.caches
                )
            ]
            return process_row(track.figures, titled=titled) | {
                "times": list(track.times),
                "growth": track.growth(start),
                "grown_since": start,
                "history": {
                    "slab": list(track.slab),
                    "waste": list(track.waste),
                    "held": list(track.held),
                    "resident": list(track.resident),
                },
                "fast_path": fast_path(track.figures.caches),
                "caches": sorted(caches, key=lambda cache: cache["slab_bytes"], reverse=True),
            }
