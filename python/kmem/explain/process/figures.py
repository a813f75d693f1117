# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a process says of its heap for `kmem explain PID`: its registry, and what it works out.

The registry has slabs and handed-out objects at any moment. Figures that cost a walk over lists are
asked of the process, which answers at its next refill or drain; a sleeping process does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from kmem.common.processes import command, start_time
from kmem.live.registry.caches import Cache, read_caches
from kmem.live.registry.file import PAGE_BYTES, Registry, alive
from kmem.live.registry.heap import Heap, read_heap, read_sample_interval
from kmem.live.registry.layout import RegistryError
from kmem.live.registry.requests import WAIT_SECONDS, answer, ask
from kmem.live.watch import resident_bytes

AT_ONCE = 24  # requests that wait at a time; the registry has 40 places, also for other readers
ORDERS = (0, 1, 2)  # of which smaller slabs are tried
SMALL_SHARE = 1 / 128  # of the slabs: smaller caches are not asked about parts

Births = dict[int, int]  # a figure by birth of the cache


@dataclass
class Asked:
    """What the process has worked out, by births; nothing of the caches that it did not reach."""

    refreshed: set[int] = field(default_factory=set)
    due: Births = field(default_factory=dict)  # bytes in slabs that a trim would give back
    flushed: Births = field(default_factory=dict)  # and these if sheaves were empty
    free: dict[int, Births] = field(default_factory=dict)  # bytes of free parts, by their pages
    answered: bool = True  # False: the process sleeps, or its library is older than a request


@dataclass(frozen=True)
class Process:
    """A process's heap at a moment."""

    number: int
    command: str
    release: str
    options: str  # KMEM_OPTIONS as it was started with
    threads: int
    caches: list[Cache]  # those with slabs, the largest first
    heap: Heap
    hardened_bytes: int  # slabs and large blocks of option protect
    resident_bytes: int
    missing: int
    asked: Asked
    interval: int  # of the samples that it takes; 0: none


PARTS, FLUSHED = "free_parts", "free_parts_sheaves"
Request = tuple[int, str]  # birth, attribute


def batches(requests: Iterable[Request]) -> Iterator[list[Request]]:
    source = iter(requests)
    while batch := list(islice(source, AT_ONCE)):
        yield batch


def ask_all(
    registry: Registry, requests: Sequence[Request], keep: Callable[[Request, int], None]
) -> bool:
    """Give `keep` the result of each request that was honoured; False if the process sleeps."""
    for batch in batches(requests):
        asked = [ask(registry, *request) for request in batch]
        for request, place in zip(batch, asked, strict=True):
            done = answer(registry, place, WAIT_SECONDS)
            if done is None:
                if not alive(registry):
                    raise RegistryError(f"process {registry.process} has ended")
                return False
            # An error: the cache has gone, or the library is older than the request.
            if done[0] == 0:
                keep(request, done[1])
    return True


def is_changed(cache: Cache, pages: int) -> bool:
    """Whether the cache would have slabs of so many pages, and not as many as now.

    Slabs of exact pages stay as they are, and objects do not shrink.
    """
    now = cache.pages_per_slab
    return not now & (now - 1) and cache["slab_size"] <= pages * PAGE_BYTES < now * PAGE_BYTES


def parts_of(cache: Cache) -> list[int]:
    """Pages of the parts that are asked about: a page, and slabs of smaller orders."""
    return sorted({1, *(1 << order for order in ORDERS if is_changed(cache, 1 << order))})


def ask_for(registry: Registry, caches: Sequence[Cache]) -> Asked:
    asked = Asked()
    whole = sum(cache.slab_bytes for cache in caches)
    slub = [cache for cache in caches if cache.fields["engine"] == "slub"]
    requests: list[Request] = [(cache["birth"], "refresh") for cache in caches]
    requests += [(cache["birth"], name) for cache in slub for name in (PARTS, FLUSHED)]
    requests += [
        (cache["birth"], f"{PARTS}_{pages}")
        for cache in slub
        if cache.slab_bytes >= whole * SMALL_SHARE
        for pages in parts_of(cache)
    ]

    def keep(request: Request, result: int) -> None:
        birth, attribute = request
        pages = attribute.removeprefix(f"{PARTS}_")
        if attribute == "refresh":
            asked.refreshed.add(birth)
        elif attribute == PARTS:
            asked.due[birth] = result
        elif attribute == FLUSHED:
            asked.flushed[birth] = result
        else:
            asked.free.setdefault(int(pages), {})[birth] = result

    asked.answered = ask_all(registry, requests, keep)
    return asked


def options_of(process: int) -> str:
    """KMEM_OPTIONS of the program's start; empty if it may not be read."""
    try:
        words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = [word for word in words if word.startswith(b"KMEM_OPTIONS=")]
    return found[0].partition(b"=")[2].decode("utf-8", "replace") if found else ""


def threads_of(process: int) -> int:
    try:
        return len(list(Path(f"/proc/{process}/task").iterdir()))
    except OSError:
        return 0


def with_slabs(caches: Iterable[Cache]) -> list[Cache]:
    found = [cache for cache in caches if cache.slab_bytes and cache["slab_size"]]
    return sorted(found, key=lambda cache: (-cache.slab_bytes, cache.name))


def read_process(registry: Registry) -> Process:
    """The figures; RegistryError if the process ends meanwhile, or its library is too old."""
    process = registry.process
    started = start_time(process)
    asked = ask_for(registry, with_slabs(read_caches(registry)))
    caches, heap = with_slabs(read_caches(registry)), read_heap(registry)
    if heap is None:
        raise RegistryError(
            f"process {process} runs on a release without figures of its heap:"
            f" {registry.read('head', 'release')}"
        )
    hardened = 0
    if "hardened_level" in registry.parts["head"]:
        hardened = sum(
            registry.number("head", f"hardened_{name}") for name in ("slab_bytes", "large_bytes")
        )
    found = Process(
        number=process,
        command=command(process),
        release=str(registry.read("head", "release")),
        options=options_of(process),
        threads=threads_of(process),
        caches=caches,
        heap=heap,
        hardened_bytes=hardened,
        resident_bytes=resident_bytes(process),
        missing=registry.number("head", "missing"),
        asked=asked,
        interval=read_sample_interval(registry),
    )
    if not alive(registry) or start_time(process) != started:
        raise RegistryError(f"process {process} has ended")
    return found
