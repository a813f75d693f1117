# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab synth`: a load whose steady state has the caches of a slab table.

A table says how many objects a machine had, and not in which order it got and freed them. The load
fills the table's slabs, frees objects until as many live as in the table, and leaves one in each
slab where there are enough. Then objects come and go in bursts, of which the table says nothing:
their lengths, caches and CPUs follow the rules below. synth_check.py measures how far that can be
trusted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kmem.common.errors import KmemError, say
from kmem.common.tree import build
from kmem.explain import shapes
from kmem.explain.facts import KMALLOC, Facts, allocator_of, facts_of, page_bytes_of, size_by_name
from kmem.explain.table import Reading, Table
from kmem.traces import file as tr

OBJECTS_MOST = 1_000_000  # of a load; a larger table is made smaller
CALLS_EACH = 4  # calls of bursts for each object of the table
BURST_POWERS = 8  # bursts have 1, 2, 4 to 128 objects; each length has as many calls
DELAY_CALLS = 64  # mean calls between a burst's allocations and its frees
ROOM_SHARE = 16  # a burst has at most this part of what a CPU has of a cache, or half a slab
OTHER_CPU_SHARE = 0.25  # of bursts that another CPU frees
STEP_NS = 1000  # from an event to the next: a table has no times
STRIDE_MOST = 1 << 22  # bytes; kernels have no slabs of larger objects

Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Wanted:
    """What the load has of a cache. Objects, if no unit is named."""

    name: str
    stride_bytes: int
    per_slab: int
    slots: int  # that the slabs hold, free or not
    live: int
    held: int  # free on the slabs that CPUs allocate from

    @property
    def slabs(self) -> int:
        return -(-self.slots // self.per_slab)

    def cpus(self, of: int) -> int:
        """A cache of few slabs is used by as few CPUs, or each other one would add a slab."""
        return min(of, self.slabs)

    def room(self, of: int) -> int:
        """Objects that a burst may get without many slabs beside the table's."""
        return max(1, (self.per_slab - 1) // 2, self.slots // (ROOM_SHARE * self.cpus(of)))


@dataclass(frozen=True)
class Plan:
    """What is wanted of a table."""

    caches: tuple[Wanted, ...]
    left_out: tuple[str, ...]  # names of caches that have objects, but no size
    share: float  # of the table's objects that the load has


def active_of(fact: Facts, slots: int) -> int:
    if fact.active is not None:
        return min(int(fact.active.value), slots)
    return slots if fact.use is None else round(slots * fact.use)


def held_on(cpus: int, slabs: int, per_slab: int) -> int:
    """Free objects on slabs of CPUs, which SLUB counts as active (S9-11) and no table tells.

    Half of such a slab is free where a cache has many slabs. A cache with no more slabs than CPUs
    has them because each CPU needs one of its own, so these hold little more than an object.
    """
    share = min(1.0, max(0.5, cpus / slabs))
    return min(cpus, slabs) * int((per_slab - 1) * share)


def wanted_of(fact: Facts, page_bytes: int, cpus: int, *, slub: bool) -> Wanted | None:
    """None for a cache without objects or without a size."""
    slots = int(fact.objects.value) if fact.objects else 0
    stride = int(fact.stride.value) if fact.stride else 0
    if slots <= 0 or not 0 < stride <= STRIDE_MOST:
        return None
    if fact.per_slab and fact.per_slab.value:
        per_slab = int(fact.per_slab.value)
    else:
        per_slab = max(1, int(fact.slab.value if fact.slab else page_bytes) // stride)
    slabs = -(-slots // per_slab)
    active = active_of(fact, slots)
    held = min(max(0, active - slabs), held_on(cpus, slabs, per_slab)) if slub else 0
    return Wanted(fact.name, stride, per_slab, slots, active - held, held)


def smaller(cache: Wanted, share: float) -> Wanted:
    slabs = max(1, round(cache.slabs * share))
    slots = min(cache.slots, slabs * cache.per_slab)
    # By the share, too: the fewer slabs are not there because each CPU needs one of its own.
    held = min(round(cache.held * share), slots - -(-slots // cache.per_slab))
    live = min(slots - held, round(cache.live * share))
    return replace(cache, slots=slots, live=live, held=held)


def plan_of(
    table: Table, cpus: int, page_bytes: int | None = None, objects_most: int = OBJECTS_MOST
) -> Plan:
    """Caches by name; two lines of a name are two caches."""
    page = page_bytes or int(page_bytes_of(table).value)
    slub = allocator_of(table) == "SLUB"
    facts = [facts_of(cache, page) for cache in table.caches]
    found = [(fact, wanted_of(fact, page, cpus, slub=slub)) for fact in facts]
    caches = [cache for _, cache in found if cache]
    left_out = [
        fact.name for fact, cache in found if not cache and fact.objects and fact.objects.value > 0
    ]
    objects = sum(cache.slots for cache in caches)
    share = min(1.0, objects_most / objects) if objects else 1.0
    if share < 1:
        caches = [smaller(cache, share) for cache in caches]
    return Plan(tuple(caches), tuple(left_out), share)


def cpus_of(table: Table, page_bytes: int | None) -> int:
    """The fewest CPUs whose rule of orders gives the table's slabs."""
    page = page_bytes or int(page_bytes_of(table).value)
    facts = [facts_of(cache, page) for cache in table.caches]
    fit = shapes.fit(facts, shapes.all_shapes(facts, page), page)
    return min(fit.counts) if fit.known else 1


@dataclass
class Residents:
    """The living objects of a cache, and how many there have been at once."""

    number: int  # of the cache in the trace
    requested: int
    objects: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    slots: int = 0


@dataclass
class Synthesis:
    """A load while it is made: chunks of events in their order."""

    cpus: int
    random: np.random.Generator
    names: list[str] = field(default_factory=lambda: ["kmalloc", "?"])
    residents: dict[str, Residents] = field(default_factory=dict)
    home: list[Numbers] = field(default_factory=list)  # CPU of each object, by id, in pieces
    next_object: int = 0
    chunks: list[dict[str, Numbers]] = field(default_factory=list)

    def of(self, cache: Wanted) -> Residents:
        if cache.name not in self.residents:
            size = size_by_name(cache.name)
            plain = KMALLOC.fullmatch(cache.name) and cache.name.startswith("kmalloc-")
            # Flavours as kmalloc-cg-64 have slabs of their own, so they are caches here, and so is
            # a class with debugging's metadata.
            if plain and cache.name[8:9].isdigit() and size == cache.stride_bytes:
                number = tr.CACHE_KMALLOC
            else:
                number = len(self.names)
                self.names.append(cache.name)
            self.residents[cache.name] = Residents(number, cache.stride_bytes)
        return self.residents[cache.name]

    def new(self, homes: Numbers) -> Numbers:
        """Ids of new objects, each with the CPU that allocates it."""
        ids = np.arange(self.next_object, self.next_object + len(homes))
        self.next_object += len(homes)
        self.home.append(homes.astype(np.uint16))
        return ids

    def elsewhere(self, homes: Numbers, cpus: Numbers | int) -> Numbers:
        """The CPUs that free, of which a share is drawn anew of those that use the cache."""
        moved = self.random.random(len(homes)) < OTHER_CPU_SHARE
        return np.where(moved, self.random.integers(0, cpus, len(homes)), homes)

    def add(self, order: Numbers, **columns: Numbers) -> None:
        self.chunks.append({name: values[order] for name, values in columns.items()})


def rows(cache: Residents, ids: Numbers, cpus: Numbers, operation: int) -> dict[str, Numbers]:
    count = len(ids)
    return {
        "object": ids,
        "cpu": cpus,
        "cache": np.full(count, cache.number),
        "bytes": np.full(count, cache.requested),
        "operation": np.full(count, operation),
    }


def joined(parts: Sequence[dict[str, Numbers]]) -> dict[str, Numbers]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def slabs_of(cache: Wanted, count: int, work: Synthesis) -> tuple[Numbers, Numbers, Numbers]:
    """The slab, CPU and key of @count new objects; keys order the slabs of all caches.

    The last slab that a CPU fills is the one that it goes on to allocate from: what the CPUs hold
    free is left of these.
    """
    slab = np.arange(count) // cache.per_slab
    most = int(slab[-1]) + 1 if count else 0
    users = min(cache.cpus(work.cpus), most)
    homes = np.concatenate([np.arange(users), work.random.integers(0, max(1, users), most - users)])
    keys = work.random.random(most)
    keys[:users] += 1
    if users:
        each, more = divmod(min(cache.held, count), users)
        left = np.where(slab < users, each + (slab < more), 0)
        slab = slab[np.arange(count) % cache.per_slab < cache.per_slab - left]
    return slab, homes[slab], keys[slab]


def fill(work: Synthesis, plan: Plan) -> dict[str, Numbers]:
    """Allocates until all slots are used: a slab by a CPU, the slabs of all caches mixed.

    Returns the slab of each object of a cache, in the order of the objects.
    """
    slabs, parts, keys = {}, [], []
    for cache in plan.caches:
        resident = work.of(cache)
        grows = cache.slots > resident.slots
        wanted = cache.slots if grows else cache.live
        count = max(0, wanted - len(resident.objects))
        slab, homes, key = slabs_of(cache, count, work)
        ids = work.new(homes)
        parts.append(rows(resident, ids, homes, tr.ALLOC))
        keys.append(key)
        # Objects from an earlier table are in slabs that nobody knows.
        slabs[cache.name] = np.concatenate([np.full(len(resident.objects), -1), slab])
        resident.objects = np.concatenate([resident.objects, ids])
        resident.slots = max(resident.slots, cache.slots)
    columns = joined(parts)
    work.add(np.lexsort((columns["object"], np.concatenate(keys))), **columns)
    return slabs


def kept_in(slab: Numbers, live: int, random: np.random.Generator) -> Numbers:
    """Which objects live: one in each slab as far as they go, and others at random."""
    count = len(slab)
    chosen = random.permutation(count)
    _, first = np.unique(slab[chosen], return_index=True)
    one_each = random.permutation(chosen[first])[:live]
    kept = np.zeros(count, bool)
    kept[one_each] = True
    others = chosen[~kept[chosen]]
    kept[others[: live - len(one_each)]] = True
    return kept


def thin(work: Synthesis, plan: Plan, slabs: dict[str, Numbers]) -> None:
    """Frees until as many objects live as in the table, from all caches mixed."""
    homes = np.concatenate(work.home) if work.home else np.empty(0, np.uint16)
    parts = []
    for cache in plan.caches:
        resident = work.of(cache)
        kept = kept_in(slabs[cache.name], cache.live, work.random)
        freed = resident.objects[~kept]
        cpus = work.elsewhere(homes[freed], cache.cpus(work.cpus))
        parts.append(rows(resident, freed, cpus, tr.FREE))
        resident.objects = resident.objects[kept]
    columns = joined(parts)
    if len(columns["object"]):
        work.add(work.random.permutation(len(columns["object"])), **columns)


def churn(work: Synthesis, plan: Plan, calls: int) -> None:
    """Bursts of objects that come and go, in caches by their number of objects."""
    if calls < 2:
        return
    powers = np.arange(BURST_POWERS)
    likely = 0.5**powers
    mean = BURST_POWERS / likely.sum()
    count = max(1, int(calls / 2 / mean))
    weights = np.array([cache.slots for cache in plan.caches], float)
    chosen = work.random.choice(len(plan.caches), count, p=weights / weights.sum())
    # A burst has room in the slabs that are there, so that the load keeps to the table's.
    room = np.array([cache.room(work.cpus) for cache in plan.caches])[chosen]
    lengths = np.minimum(2 ** work.random.choice(powers, count, p=likely / likely.sum()), room)
    begins = np.concatenate([[0], np.cumsum(2 * lengths)[:-1]]).astype(float)
    ends = begins + lengths + work.random.exponential(DELAY_CALLS, count)
    burst = np.repeat(np.arange(count), lengths)
    place = np.arange(len(burst)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    cpus = np.array([cache.cpus(work.cpus) for cache in plan.caches])[chosen]
    homes = work.random.integers(0, cpus)
    frees = work.elsewhere(homes, cpus)
    residents = [work.of(cache) for cache in plan.caches]
    numbers = np.array([resident.number for resident in residents])[chosen][burst]
    sizes = np.array([resident.requested for resident in residents])[chosen][burst]
    ids = work.new(homes[burst])
    moments = np.concatenate([begins[burst] + place / 2, ends[burst] + place / 2])
    operation = np.repeat([tr.ALLOC, tr.FREE], len(burst))
    work.add(
        np.lexsort((operation, moments)),
        object=np.concatenate([ids, ids]),
        cpu=np.concatenate([homes[burst], frees[burst]]),
        cache=np.concatenate([numbers, numbers]),
        bytes=np.concatenate([sizes, sizes]),
        operation=operation,
    )


def leave(work: Synthesis, plan: Plan) -> None:
    """Caches that an earlier table had and this one lacks lose their objects."""
    present = {cache.name for cache in plan.caches}
    homes = np.concatenate(work.home) if work.home else np.empty(0, np.uint16)
    for name, resident in work.residents.items():
        if name not in present and len(resident.objects):
            columns = rows(resident, resident.objects, homes[resident.objects], tr.FREE)
            work.add(np.arange(len(resident.objects)), **columns)
            resident.objects = resident.objects[:0]


def synthesise(
    plans: Sequence[Plan],
    cpus: int,
    *,
    calls: int | None = None,
    seed: int = 1,
    page_bytes: int = 4096,
    source: str = "",
) -> tr.Trace:
    """The load as a trace: each plan in turn, with bursts after each."""
    work = Synthesis(cpus, np.random.default_rng(seed))
    for plan in plans:
        leave(work, plan)
        if not plan.caches:
            continue
        thin(work, plan, fill(work, plan))
        slots = sum(cache.slots for cache in plan.caches)
        churn(work, plan, CALLS_EACH * slots if calls is None else calls)
    return trace_of(joined(work.chunks), work.names, work.next_object, cpus, page_bytes, source)


def trace_of(
    columns: dict[str, Numbers],
    names: list[str],
    objects: int,
    cpus: int,
    page_bytes: int,
    source: str,
) -> tr.Trace:
    """Events in their order, with columns as in rows()."""
    count = len(columns["object"])
    values = {
        "time": np.full(count, STEP_NS).cumsum() - STEP_NS,
        "requested": columns["bytes"],
        "given": columns["bytes"],
        "thread": columns["cpu"],
        **{name: columns[name] for name in ("object", "cpu", "cache", "operation")},
    }
    frame = pl.DataFrame(
        [
            pl.Series(name, values.get(name, np.zeros(count, np.int64))).cast(kind)
            for name, kind in tr.TYPES.items()
        ]
    )
    return tr.Trace(frame, names, [""], objects, cpus, page_bytes, source)


def named(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} others"


def unread_notes(reading: Reading) -> list[str]:
    """Lines of the files that may be caches, which the load then lacks."""
    from kmem.explain.show import run_line, unread_runs

    if not reading.unread:
        return []
    count = len(reading.unread)
    lines = f"{count} line{'' if count == 1 else 's'} not read"
    return [f"{lines}: {run_line(unread_runs(reading)[0])}; kmem explain has them all"]


def notes(plans: Sequence[Plan]) -> list[str]:
    """What the load lacks of the tables."""
    lines = []
    for number, plan in enumerate(plans, start=1):
        of = f"table {number}: " if len(plans) > 1 else ""
        if plan.left_out:
            lines.append(
                f"{of}{len(plan.left_out)} caches left out, as the table has no size of theirs:"
                f" {named(plan.left_out)}"
            )
        if plan.share < 1:
            lines.append(
                f"{of}{100 * plan.share:.3g}% of the table's objects; --objects sets the most"
            )
    return lines


def synth(
    files: Sequence[Path],
    out: Path,
    *,
    cpus: int | None,
    page_bytes: int | None,
    objects_most: int,
    calls: int | None,
    seed: int,
) -> None:
    from kmem.explain.files import read_files

    build()
    try:
        reading = read_files(files)
    except KmemError as error:
        raise KmemError(f"lab synth: {str(error).removeprefix('explain: ')}") from None
    tables = reading.tables
    cpus = cpus or cpus_of(tables[0], page_bytes)
    page = page_bytes or int(page_bytes_of(tables[0]).value)
    plans = [plan_of(table, cpus, page, objects_most) for table in tables]
    if not any(plan.caches for plan in plans):
        raise KmemError(
            f"lab synth: {files[0]}: no cache with objects and a size; expected one at least"
        )
    # A name of a file is bytes, but the text of a trace is UTF-8.
    names = [os.fsencode(file.name).decode(errors="replace") for file in files]
    source = f"kmem lab synth {named(names)}, seed {seed}"
    trace = synthesise(plans, cpus, calls=calls, seed=seed, page_bytes=page, source=source)
    try:
        tr.write_trace(out, trace)
    except OSError as error:
        raise KmemError(f"lab synth: --out {out}: {error.strerror or error}") from None
    last = plans[-1].caches
    say(
        f"{out}: {trace.records.height:,} events on {cpus} CPUs; at the end {len(last):,} caches"
        f" with {sum(cache.live for cache in last):,} objects in {sum(c.slabs for c in last):,}"
        " slabs"
    )
    for line in (*unread_notes(reading), *notes(plans)):
        say(line)
