# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prometheus metrics of all visible processes on libkmem, read at each scrape.

The number of labels is bounded: the PROCESSES_MOST largest processes, and of each some of the
largest caches, CACHES_MOST at most. The other caches are added up as cache "(other)", together with
any cache of that name. Caches of equal name in a process are added up.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kmem.live.registry.caches import Cache
from kmem.live.registry.heap import Guards, Heap, SoftLimit
from kmem.live.tables import word
from kmem.live.watch import Figures, active_bytes, read_processes, waste_bytes

PROCESSES_MOST = 100
CACHES_MOST = 200
CACHES = (
    25  # of a process, unless the user wants others: 9 processes are then about 200 KB a scrape
)
OTHER = "(other)"

OF_CACHES: tuple[tuple[str, str, Callable[[Cache], int]], ...] = (
    ("kmem_cache_slab_bytes", "Memory of the cache's slabs.", lambda cache: cache.slab_bytes),
    (
        "kmem_cache_active_bytes",
        "Bytes asked for in objects handed out, to the program or to sheaves.",
        active_bytes,
    ),
    (
        "kmem_cache_waste_bytes",
        "Slab memory without an object that is handed out: free, padding, ends of slabs.",
        waste_bytes,
    ),
    ("kmem_cache_objects", "Objects that the slabs hold when full.", lambda cache: cache.objects),
    (
        "kmem_cache_active_objects",
        "Objects handed out, to the program or to sheaves.",
        lambda cache: cache.active,
    ),
    ("kmem_cache_slabs", "Slabs.", lambda cache: cache.total("slabs")),
    (
        "kmem_cache_partial_slabs",
        "Slabs on node partial lists.",
        lambda cache: cache.total("partial"),
    ),
)
MOVED: tuple[tuple[str, str, Callable[[Cache], int]], ...] = (
    ("kmem_cache_taken_objects", "Objects taken from slabs.", lambda cache: cache.taken),
    ("kmem_cache_given_objects", "Objects given back to slabs.", lambda cache: cache.given),
    (
        "kmem_cache_slow_calls",
        "Calls that found the main sheaf empty or full.",
        lambda cache: cache.slow_calls,
    ),
    (
        "kmem_cache_fast_calls",
        "Calls that the fast path served; there were at least so many.",
        lambda cache: cache.fast_calls,
    ),
)
OF_HEAPS: tuple[tuple[str, str, Callable[[Heap], int]], ...] = (
    (
        "kmem_heap_held_bytes",
        "Pages of slabs and large blocks, and free ones not given back to the system.",
        lambda heap: heap.held_bytes,
    ),
    (
        "kmem_heap_free_bytes",
        "Free pages that are not given back to the system.",
        lambda heap: heap.free_touched_bytes,
    ),
    ("kmem_large_bytes", "Large blocks in the heap.", lambda heap: heap.large_bytes),
    ("kmem_huge_bytes", "Huge blocks, mappings of their own.", lambda heap: heap.huge_bytes),
    (
        "kmem_huge_kept_bytes",
        "Freed huge mappings that are kept for reuse.",
        lambda heap: heap.huge_kept_bytes,
    ),
)
OF_GUARDS: tuple[tuple[str, str, Callable[[Guards], int]], ...] = (
    ("kmem_guards_made", "Allocations that got sampled guards.", lambda guards: guards.made),
    (
        "kmem_guards_missed",
        "Allocations that found no place for guards.",
        lambda guards: guards.missed,
    ),
    ("kmem_guard_faults", "Faults that sampled guards found.", lambda guards: guards.faults),
)
OF_LIMITS: tuple[tuple[str, str, Callable[[SoftLimit], int]], ...] = (
    (
        "kmem_soft_limit_trims",
        "Times that memory went back because of option soft_limit.",
        lambda limit: limit.trims,
    ),
    (
        "kmem_soft_limit_given_back_bytes",
        "Memory that went back because of option soft_limit.",
        lambda limit: limit.given_back_bytes,
    ),
)
CACHE_LABELS = ("pid", "command", "cache")
PROCESS_LABELS = ("pid", "command")
Row = tuple[Sequence[str], float]  # values of the labels, and the figure


@dataclass(frozen=True)
class Group:
    """Caches that share a label."""

    name: str
    caches: list[Cache]


def grouped(caches: Sequence[Cache], most: int) -> list[Group]:
    """Caches by name, the largest first; those behind the first @most are a single group."""
    names: dict[str, list[Cache]] = {}
    for cache in caches:
        names.setdefault(word(cache.name), []).append(cache)
    # Prometheus refuses a whole scrape in which a series occurs twice.
    rest = names.pop(OTHER, [])
    groups = sorted(
        (Group(name, found) for name, found in names.items()),
        key=lambda group: sum(cache.slab_bytes for cache in group.caches),
        reverse=True,
    )
    rest += [cache for group in groups[most:] for cache in group.caches]
    return groups[:most] + ([Group(OTHER, rest)] if rest else [])


class ProcessesCollector(Collector):
    """The collector that the official client asks for all metrics at each scrape."""

    def __init__(
        self,
        read: Callable[[list[str]], list[Figures]] = read_processes,
        caches: int = CACHES,
    ) -> None:
        self.read = read
        self.caches = caches

    def describe(self) -> Iterable[Metric]:
        """Read nothing when the collector is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        refusals: list[str] = []
        processes = sorted(
            self.read(refusals), key=lambda figures: figures.slab_bytes, reverse=True
        )
        yield GaugeMetricFamily(
            "kmem_processes", "Processes on libkmem that can be seen.", len(processes)
        )
        yield GaugeMetricFamily(
            "kmem_refusals", "Lines on registries that could not be used.", len(refusals)
        )
        shown = [(figures, str(figures.process)) for figures in processes[:PROCESSES_MOST]]
        yield from of_processes(shown)
        groups = [
            ((pid, figures.command, group.name), group)
            for figures, pid in shown
            for group in grouped(figures.caches, self.caches)
        ]
        for name, text, value in OF_CACHES:
            yield gauge(name, text, sums(groups, value), CACHE_LABELS)
        # Caches may move in and out of the rest, so its sum may fall, which a counter must not.
        named = [(labels, group) for labels, group in groups if group.name != OTHER]
        for name, text, value in MOVED:
            yield counter(name, text, sums(named, value), CACHE_LABELS)


def filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[Row]) -> Metric:
    for values, figure in rows:
        family.add_metric(values, figure)
    return family


def gauge(
    name: str, text: str, rows: Iterable[Row], labels: Sequence[str] = PROCESS_LABELS
) -> Metric:
    return filled(GaugeMetricFamily(name, text, labels=labels), rows)


def counter(
    name: str, text: str, rows: Iterable[Row], labels: Sequence[str] = PROCESS_LABELS
) -> Metric:
    return filled(CounterMetricFamily(name, text, labels=labels), rows)


def sums(
    groups: Sequence[tuple[Sequence[str], Group]], value: Callable[[Cache], int]
) -> Iterable[Row]:
    return ((labels, sum(map(value, group.caches))) for labels, group in groups)


def of_processes(shown: Sequence[tuple[Figures, str]]) -> Iterable[Metric]:
    rows = [((pid, figures.command), figures) for figures, pid in shown]
    yield gauge(
        "kmem_process_resident_bytes",
        "Resident memory of the whole process, as the system counts.",
        ((labels, figures.resident_bytes) for labels, figures in rows),
    )
    yield gauge(
        "kmem_registry_missing_records",
        "Caches and slots whose figures found no room in the registry.",
        ((labels, figures.missing) for labels, figures in rows),
    )
    heaps = [(labels, figures.heap) for labels, figures in rows if figures.heap is not None]
    for name, text, of_heap in OF_HEAPS:
        yield gauge(name, text, [(labels, of_heap(heap)) for labels, heap in heaps])
    guards = [(labels, figures.guards) for labels, figures in rows if figures.guards is not None]
    yield gauge(
        "kmem_guards_live",
        "Objects in use that have sampled guards.",
        ((labels, made.live) for labels, made in guards),
    )
    for name, text, of_guards in OF_GUARDS:
        yield counter(name, text, [(labels, of_guards(made)) for labels, made in guards])
    limits = [
        (labels, figures.soft_limit) for labels, figures in rows if figures.soft_limit is not None
    ]
    yield gauge(
        "kmem_soft_limit_bytes",
        "Limit of option soft_limit, of processes that have one.",
        ((labels, limit.limit_bytes) for labels, limit in limits),
    )
    for name, text, of_limit in OF_LIMITS:
        yield counter(name, text, [(labels, of_limit(limit)) for labels, limit in limits])
