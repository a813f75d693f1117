#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compares traces of recordings that were made at once, between the marks of `marked`.

    compare.py TRACE OTHER[=LOST]...

TRACE is of `kmem record kernel`, each OTHER was imported, and LOST is what its tool says to have
lost. Of each OTHER a line tells how many events TRACE has between the marks, how many of them OTHER
has, in what they differ, and how many events only one of the two has.

Recorders of one tracepoint run one after the other on the CPU of the event, so each has the events
of a CPU in one order, but for those of an interrupt between two recorders ("moved"). In newer
kernels, as 7.2, the task may even go to another CPU between them. Times differ for the same
reason, and each trace counts from its own first event; so events are paired by their order on a
CPU, from the first mark on. An event is paired with an equal one: in kind (allocation or free, by
kfree or not), place in the code, thread, and, of allocations, in cache, bytes asked for and bytes
given. Addresses are compared as lives: an object of TRACE has to be one object of OTHER from birth
to death. Frees that a trace infers are left out.

Exit status: 0, or 1 if an event that OTHER did not lose is missing, or if a pair differs.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from kmem.traces import file as tr

MARK_FIRST, MARK_LAST = 3331, 3343  # bytes, as in marked.c
# Two recorders' times of an event differ by less, or it is not one event. An interrupt between them
# takes that long on an emulated machine.
NEAR_NS = 200_000_000
FAR = 20_000  # events that are skipped in search of the next pair
RUN_MOVED = 3  # equal events in a row behind an event that an interrupt has moved
RUN = 12  # equal events in a row, after which the two traces are at the same place again
CACHE_UNKNOWN = "?"
THREAD_UNKNOWN = -1
# Bits that GFP_ATOMIC and GFP_NOWAIT have in some kernels: an import has names, and their bits are
# those of 6.1.
NEWER_FLAGS = 0x200 | 0x2000


@dataclass
class Event:
    time: int
    key: tuple[object, ...]
    object: int
    thread: int
    cache: str
    site: str
    flags: int
    irq: int
    born: bool
    between: bool  # the marks
    life: int | None = None  # a number for objects that both traces have from their birth

    def equals(self, other: Event) -> bool:
        """A thread that has ended has no number for perf."""
        return (
            self.key == other.key
            and (self.life == other.life or None in (self.life, other.life))
            and (self.thread == other.thread or THREAD_UNKNOWN in (self.thread, other.thread))
        )


UNSAID_BY_PERF = 1000  # events of which perf may leave out one: 43 of 200,000 is the most seen


@dataclass
class Compared:
    """How OTHER differs from TRACE."""

    events: int = 0  # of TRACE between the marks
    paired: int = 0
    moved: int = 0  # of these: by an interrupt
    missing: int = 0  # in OTHER
    unseen: int = 0  # of these: in interrupts of threads of which OTHER has nothing at all
    further: int = 0  # only in OTHER
    lost: int = 0  # by the tool's own count
    differ: Counter[str] = field(default_factory=Counter)

    def differing(self) -> str:
        words = [f"{what} {count:,}" for what, count in self.differ.items() if count]
        return ", ".join(words) or "none"

    def well(self, perf: bool = False) -> bool:
        """Whether OTHER has all that it should.

        perf may have nothing of some threads, and leaves out some few events without a word.
        Objects of a recording with losses may be others: their birth or death is not there.
        """
        missing, unsaid = self.missing, 0
        if perf:
            missing, unsaid = missing - self.unseen, self.events // UNSAID_BY_PERF
        is_whole = not self.lost and not missing
        exact = ("order", "cache", "object", "site", "flags") if is_whole else ("flags",)
        return (
            self.paired > 0
            and missing <= self.lost + unsaid
            and not self.further
            and not any(self.differ[name] for name in exact)
        )


def marks_of(records: pl.DataFrame, where: str) -> tuple[int, int]:
    """Times of both marks."""
    born = (pl.col("operation") & tr.OPERATION_MASK) == tr.ALLOC
    found = [
        records.filter(born & (pl.col("requested") == size)) for size in (MARK_FIRST, MARK_LAST)
    ]
    if not all(frame.height for frame in found):
        raise SystemExit(f"{where}: a mark of {MARK_FIRST} or {MARK_LAST} bytes is missing")
    return found[0]["time"][0], found[1]["time"][-1]


def same_sites(one: tr.Trace, other: tr.Trace) -> bool:
    """Whether both traces have symbols: one of a machine that is gone may have addresses."""
    names = set(other.sites)
    return len(names & set(one.sites)) > len(names) / 2


def events_of(trace: tr.Trace, where: str, names: dict[str, str] | None) -> dict[int, list[Event]]:
    """Events of each CPU, with times since the first mark; no sites if `names` of them is None.

    A kernel that does not say the cache of an allocation has it named by place, "?function:bytes".
    """
    first, last = marks_of(trace.records, where)
    by_cpu: dict[int, list[Event]] = {}
    for row in trace.named().iter_rows(named=True):
        operation = row["operation"] & tr.OPERATION_MASK
        if operation == tr.IMPLIED:
            continue
        born = operation == tr.ALLOC
        cache, site = row["cache"], row["site"]
        if names is not None:
            site = names.get(site, site)
        if cache.startswith(CACHE_UNKNOWN) and born:
            cache = CACHE_UNKNOWN
        what = (cache, row["requested"], row["given"]) if born else ()
        by_cpu.setdefault(row["cpu"], []).append(
            Event(
                row["time"] - first,
                (born, row["operation"] & tr.KFREE, "" if names is None else site, *what),
                row["object"],
                row["thread"],
                cache,
                site,
                row["flags"],
                row["operation"] & (tr.SOFTIRQ | tr.HARDIRQ),
                born,
                first <= row["time"] <= last,
            )
        )
    return by_cpu


def equal_run(ours: list[Event], at: int, theirs: list[Event], there: int, most: int = RUN) -> bool:
    """Whether both traces go on with the same events, or end so."""
    if at >= len(ours) or there >= len(theirs):
        return False
    if abs(ours[at].time - theirs[there].time) > NEAR_NS:
        return False
    length = min(most, len(ours) - at, len(theirs) - there)
    return all(ours[at + i].equals(theirs[there + i]) for i in range(length))


def next_place(
    ours: list[Event], at: int, theirs: list[Event], there: int
) -> tuple[int, int] | None:
    """Where both traces have the same events again: the place with the fewest events between."""
    for skipped in range(1, FAR):
        for i in range(skipped + 1):
            one, other = at + i, there + skipped - i
            if equal_run(ours, one, theirs, other):
                return one, other
    return None


def start_of(ours: list[Event], theirs: list[Event]) -> tuple[int, int] | None:
    """The first place behind the first mark at which both traces have the same events."""
    at = next((i for i, event in enumerate(ours) if event.time >= 0), None)
    there = next((i for i, event in enumerate(theirs) if event.time >= 0), None)
    if at is None or there is None:
        return None
    if equal_run(ours, at, theirs, there):
        return at, there
    return next_place(ours, at, theirs, there)


class Pairing:
    """Pairs the events of a CPU, by places in the lists of both traces.

    An event that an interrupt has moved waits in a list until the other trace comes to it. Where
    that explains nothing, events are missing, and the search goes on behind them.
    """

    def __init__(self, ours: list[Event], theirs: list[Event]) -> None:
        self.ours, self.theirs = ours, theirs
        self.pairs: list[tuple[int, int]] = []
        self.waiting: list[int] = []  # of ours
        self.others: list[int] = []  # that wait, of theirs
        self.moved = 0

    def take(self, waiting: list[int], events: list[Event], wanted: Event) -> int | None:
        """Takes the oldest waiting event that equals the wanted one."""
        for i in waiting:
            if events[i].equals(wanted) and abs(events[i].time - wanted.time) <= NEAR_NS:
                waiting.remove(i)
                self.moved += 1
                return i
        return None

    def is_later(self, at: int, there: int) -> bool:
        """Whether equal events are a pair, rather than one of them and the next of the other."""
        one, other = self.ours[at], self.theirs[there]
        next_one, next_other = self.ours[at + 1 : at + 2], self.theirs[there + 1 : there + 2]
        between = abs(one.time - other.time)
        return any(
            event.equals(same) and abs(event.time - same.time) < between
            for waiting, events, same in (
                (self.waiting, next_other, one),
                (self.others, next_one, other),
            )
            if waiting
            for event in events
        )

    def step(self, at: int, there: int) -> tuple[int, int] | None:
        """The next places, or nothing if the traces go apart for good."""
        one, other = self.ours[at], self.theirs[there]
        equal = one.equals(other)
        if not equal or self.is_later(at, there):
            if (i := self.take(self.waiting, self.ours, other)) is not None:
                self.pairs.append((i, there))
                return at, there + 1
            if (j := self.take(self.others, self.theirs, one)) is not None:
                self.pairs.append((at, j))
                return at + 1, there
        if equal:
            self.pairs.append((at, there))
            return at + 1, there + 1
        if not one.between and not other.between:
            return None
        for place in ((at + 1, there), (at, there + 1)):
            if equal_run(self.ours, place[0], self.theirs, place[1], RUN_MOVED):
                break
        else:
            found = next_place(self.ours, at, self.theirs, there)
            if found is None:
                return None
            place = found
        self.waiting.extend(range(at, place[0]))
        self.others.extend(range(there, place[1]))
        return place

    def run(self) -> None:
        place = start_of(self.ours, self.theirs)
        at, there = place or (len(self.ours), len(self.theirs))
        # What is between the mark and the start was skipped.
        self.waiting.extend(i for i in range(at) if self.ours[i].time >= 0)
        self.others.extend(j for j in range(there) if self.theirs[j].time >= 0)
        while place and at < len(self.ours) and there < len(self.theirs):
            place = self.step(at, there)
            if place:
                at, there = place
        self.waiting.extend(range(at, len(self.ours)))
        self.others.extend(range(there, len(self.theirs)))
        self.waiting = [i for i in self.waiting if self.ours[i].between]
        self.others = [j for j in self.others if self.theirs[j].between]
        for i in list(self.waiting):
            if (j := self.take(self.others, self.theirs, self.ours[i])) is not None:
                self.waiting.remove(i)
                self.pairs.append((i, j))

    def out_of_order(self) -> int:
        """Pairs that are in another order, though no interrupt can have been between them: of a
        thread, and in interrupts of the same kind."""
        latest: dict[tuple[int, int], int] = {}
        count = 0
        for i, j in sorted(self.pairs):
            context = self.ours[i].thread, self.ours[i].irq
            count += self.ours[i].between and j < latest.get(context, j)
            latest[context] = max(j, latest.get(context, j))
        return count


def pairs_of_other_cpus(ours: list[Event], theirs: list[Event]) -> list[tuple[Event, Event]]:
    """Pairs events between whose recorders the task went to another CPU."""
    free = list(theirs)
    pairs = []
    for one in ours:
        near = [two for two in free if one.equals(two) and abs(one.time - two.time) <= NEAR_NS]
        if near:
            two = min(near, key=lambda event: abs(event.time - one.time))
            free.remove(two)
            pairs.append((one, two))
    return pairs


class Objects:
    """Which object of OTHER each object of TRACE is."""

    def __init__(self) -> None:
        self.there: dict[int, int] = {}
        self.here: dict[int, int] = {}

    def agree(self, one: int, other: int) -> bool:
        return self.there.setdefault(one, other) == other and (
            self.here.setdefault(other, one) == one
        )


def number_lives(ours: dict[int, list[Event]], theirs: dict[int, list[Event]]) -> None:
    """Pairs births alone, which say more of themselves than deaths do."""
    here: dict[int, int] = {}
    there: dict[int, int] = {}
    for cpu, events in ours.items():
        births = [event for event in events if event.born]
        others = [event for event in theirs.get(cpu, []) if event.born]
        pairing = Pairing(births, others)
        pairing.run()
        for i, j in pairing.pairs:
            here[births[i].object] = there[others[j].object] = births[i].object
    for by_cpu, lives in ((ours, here), (theirs, there)):
        for events in by_cpu.values():
            for event in events:
                event.life = lives.get(event.object)


def names_of(trace: tr.Trace, other: tr.Trace) -> dict[str, str]:
    """Symbols for the sites of OTHER: its own, or those of TRACE at events that can be paired.

    perf has only addresses of the code of a kernel that does not run any more.
    """
    if same_sites(trace, other):
        return {}
    ours, theirs = events_of(trace, "the first trace", None), events_of(other, "the other", None)
    number_lives(ours, theirs)
    seen: dict[str, Counter[str]] = {}
    for cpu, events in ours.items():
        others = theirs.get(cpu, [])
        pairing = Pairing(events, others)
        pairing.run()
        for i, j in pairing.pairs:
            seen.setdefault(others[j].site, Counter())[events[i].site] += 1
    return {site: counts.most_common(1)[0][0] for site, counts in seen.items()}


def compare(trace: tr.Trace, other: tr.Trace, lost: int = 0) -> Compared:
    ours = events_of(trace, "the first trace", {})
    theirs = events_of(other, "the other trace", names_of(trace, other))
    number_lives(ours, theirs)
    result = Compared(lost=lost)
    paired: list[tuple[Event, Event]] = []
    lone: list[Event] = []
    rest: list[Event] = []
    for cpu in ours.keys() | theirs.keys():
        pairing = Pairing(ours.get(cpu, []), theirs.get(cpu, []))
        pairing.run()
        result.moved += pairing.moved
        result.events += sum(event.between for event in pairing.ours)
        lone += [pairing.ours[i] for i in pairing.waiting]
        rest += [pairing.theirs[j] for j in pairing.others]
        result.differ["order"] += pairing.out_of_order()
        pairs = [(pairing.ours[i], pairing.theirs[j]) for i, j in pairing.pairs]
        paired += [(one, two) for one, two in pairs if one.between]
    for one, two in pairs_of_other_cpus(lone, rest):
        lone.remove(one)
        rest.remove(two)
        paired.append((one, two))
        result.moved += 1
    result.missing, result.further = len(lone), len(rest)
    seen = {event.thread for events in theirs.values() for event in events if event.between}
    result.unseen = sum(one.irq != 0 and one.thread not in seen for one in lone)
    result.paired = len(paired)
    objects = Objects()
    for one, two in sorted(paired, key=lambda pair: pair[0].time):
        # Objects from before the marks may be known to one of the two alone.
        known = not any(event.cache.startswith(CACHE_UNKNOWN) for event in (one, two))
        result.differ["cache"] += known and one.cache != two.cache
        result.differ["object"] += not objects.agree(one.object, two.object)
        result.differ["flags"] += (one.flags ^ two.flags) & ~NEWER_FLAGS != 0
        for name in ("thread", "site", "irq"):
            result.differ[name] += getattr(one, name) != getattr(two, name)
    return result


def line_of(name: str, compared: Compared) -> str:
    return (
        f"{name}: {compared.events:,} events between the marks, {compared.paired:,} paired"
        f" ({compared.moved:,} of them moved), {compared.missing:,} missing"
        f" ({compared.unseen:,} of them of unseen threads) of {compared.lost:,} that its tool lost,"
        f" {compared.further:,} further; different: {compared.differing()}"
    )


def main() -> int:
    if len(sys.argv) < 3:
        raise SystemExit("expected a trace of kmem record kernel, and imported traces")
    trace = tr.read_trace(Path(sys.argv[1]))
    well = True
    for word in sys.argv[2:]:
        name, _, lost = word.partition("=")
        compared = compare(trace, tr.read_trace(Path(name)), int(lost or 0))
        print(line_of(name, compared))
        well = well and compared.well()
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
