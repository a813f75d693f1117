# SPDX-License-Identifier: Apache-2.0 OR MIT
"""All answers about a table, gathered for the text, the JSON and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kmem.explain import policies, shapes
from kmem.explain.facts import (
    Allocator,
    Debugging,
    Facts,
    allocator_of,
    debugging_of,
    facts_of,
    page_bytes_of,
    summed,
)
from kmem.explain.kernel_forms import OUT_OF_MEMORY
from kmem.explain.leaks import Holder, holders
from kmem.explain.table import Boot, Figure, Table
from kmem.explain.tool_forms import SLABTOP
from kmem.lab.mails import MAILS
from kmem.lab.orders import Slab


@dataclass(frozen=True)
class Machine:
    """What the user says of the machine; None where the table has to tell."""

    cpus: int | None = None
    online: int | None = None
    nodes: int | None = None
    page_bytes: int | None = None


@dataclass(frozen=True)
class PrintedTotal:
    """A total of the report, and the sum of its caches that stands beside it; bytes."""

    name: str
    printed: float
    ours: float

    @property
    def share(self) -> float:
        return self.ours / self.printed if self.printed else 0.0


@dataclass(frozen=True)
class Answers:
    """A table with everything that is computed and modelled of it."""

    table: Table
    page: Figure
    allocator: Allocator
    facts: tuple[Facts, ...]  # the largest first
    debugging: Debugging
    fit: shapes.Fit
    all_shapes: shapes.Shapes
    cpus: Figure | None
    online: int
    nodes: int
    outcomes: tuple[policies.Outcome, ...]
    mails: tuple[policies.MailOutcome, ...]
    holders: tuple[Holder, ...]

    @property
    def page_bytes(self) -> int:
        return int(self.page.value)

    @property
    def total(self) -> Figure | None:
        return summed([fact.total for fact in self.facts])

    def printed_total(self) -> PrintedTotal | None:
        """A total that the report prints, and what the table's caches have of it."""
        if not self.total:
            return None
        if self.table.form == SLABTOP and "bytes" in self.table.printed:
            # slabtop adds up objects, and leaves out the ends of slabs.
            ours = sum(
                fact.objects.value * fact.stride.value
                for fact in self.facts
                if fact.objects and fact.stride
            )
            return PrintedTotal("the head's sum of objects", self.table.printed["bytes"], ours)
        if "bytes" in self.table.printed:
            name, printed = "the report's total", self.table.printed["bytes"]
            return PrintedTotal(name, printed, self.total.value)
        if self.table.form == OUT_OF_MEMORY and "unreclaimable_pages" in self.table.printed:
            printed = self.table.printed["unreclaimable_pages"] * self.page_bytes
            return PrintedTotal("slab_unreclaimable of the report", printed, self.total.value)
        if slab := self.table.memory.get("Slab"):
            return PrintedTotal("Slab of /proc/meminfo", slab * 1024.0, self.total.value)
        return None

    def shape(self, fact: Facts, rule: str, count: int) -> Slab | None:
        return self.all_shapes.get((fact.name, rule, policies.power(count)))


def cpus_of(machine: Machine, boot: Boot | None, fit: shapes.Fit) -> Figure | None:
    if machine.cpus:
        return Figure(machine.cpus, "read")
    # A boot names the CPUs that a machine can have, and later kernels count those that it has.
    if boot and (not fit.known or policies.power(boot.cpus) in fit.counts):
        return Figure(boot.cpus, "read")
    # All counts up to the next power of two give the same slabs; the least stands for them.
    return Figure(fit.counts[0], "computed") if fit.known else None


def largest_first(facts: Sequence[Facts]) -> tuple[Facts, ...]:
    return tuple(sorted(facts, key=lambda fact: -(fact.total.value if fact.total else 0)))


def answer(table: Table, machine: Machine) -> Answers:
    page = Figure(machine.page_bytes, "read") if machine.page_bytes else page_bytes_of(table)
    page_bytes = int(page.value)
    facts = largest_first([facts_of(cache, page_bytes) for cache in table.caches])
    allocator, debugging = allocator_of(table), debugging_of(facts)
    # What SLUB would make of SLAB's table needs a CPU count, which that does not tell.
    modelled = facts if allocator == "SLUB" or (allocator and machine.cpus) else ()
    found = shapes.all_shapes(modelled, page_bytes, table.boot)
    fit = shapes.fit(facts if allocator == "SLUB" else (), found, page_bytes)
    cpus = cpus_of(machine, table.boot, fit) if modelled else None
    nodes = machine.nodes or (table.boot.nodes if table.boot else 1)
    count = int(cpus.value) if cpus else 0
    online = machine.online or count
    plain = [fact for fact in modelled if not debugging.found]
    subjects = {name: mail.subject for mail in MAILS for name in mail.experiments}
    whole = sum(fact.total.value for fact in facts if fact.total)
    return Answers(
        table,
        page,
        allocator,
        facts,
        debugging,
        fit,
        found,
        cpus,
        online,
        nodes,
        tuple(policies.outcomes(plain, found, count, nodes, page_bytes) if cpus and plain else ()),
        tuple(
            policies.mail_outcomes(plain, found, count, online, page_bytes, subjects)
            if cpus and plain
            else ()
        ),
        tuple(holders(facts, whole)),
    )
