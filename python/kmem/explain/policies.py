# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the policies of other kernels, and the changes of the five mails, would make of a table.

Everything here is modelled. The orders are the library's own; the limits of CPU lists and sheaves
follow the rules by size, which tests compare with the library's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from kmem.explain.facts import Facts, size_by_name
from kmem.explain.shapes import Shapes, sized
from kmem.lab.mails import read_mail
from kmem.lab.orders import Slab

# The steps of a cache's stride: below 256 bytes, below 1024, below a page, and from a page on.
STEPS = (256, 1024)
SEED_OBJECTS = (30, 13, 6, 2)  # until 5.15 (S2.3)
LATER_OBJECTS = (120, 52, 24, 6)  # from 5.16 on (S2.3)
SHEAF_OBJECTS = (60, 26, 12, 4)  # least, from 7.0 on (S13-03)
SHEAF_HEADER_WORDS = 4
SHEAVES_OF_A_CPU = 2
FULL_SHEAVES_OF_A_NODE = 10


@dataclass(frozen=True)
class Kernel:
    """The policies of a release, as docs/kernels.md has them."""

    versions: tuple[str, ...]
    order_rule: str
    cpu_lists: str  # objects, slabs, or empty for none
    objects: tuple[int, ...]
    sheaves: bool = False

    @property
    def name(self) -> str:
        return ", ".join(self.versions)


KERNELS = (
    Kernel(("5.14", "5.15"), "5.10", "objects", SEED_OBJECTS),
    Kernel(("5.16", "5.17", "6.1"), "5.10", "slabs", LATER_OBJECTS),
    Kernel(("6.7", "6.8", "6.12", "6.18"), "6.12", "slabs", LATER_OBJECTS),
    Kernel(("7.2",), "6.12", "", LATER_OBJECTS, sheaves=True),
)


def step_of(stride_bytes: float, page_bytes: int) -> int:
    if stride_bytes >= page_bytes:
        return 3
    return sum(stride_bytes >= step for step in STEPS)


def cpu_partial(stride_bytes: float, page_bytes: int, limits: Sequence[int]) -> int:
    """Objects that a CPU's list may have."""
    return limits[step_of(stride_bytes, page_bytes)]


def list_slabs(kernel: Kernel, stride_bytes: float, per_slab: int, page_bytes: int) -> int:
    """The most slabs of a CPU's partial list: by objects they can all be empty (S2-05, S2-11)."""
    objects = cpu_partial(stride_bytes, page_bytes, kernel.objects)
    if kernel.cpu_lists == "objects":
        return objects + 1
    return ceil(2 * objects / per_slab) if kernel.cpu_lists else 0


def sheaf_capacity(stride_bytes: float, page_bytes: int) -> int:
    """The least number of objects, and what else fits the sheaf's own kmalloc block."""
    least = SHEAF_OBJECTS[step_of(stride_bytes, page_bytes)]
    words = least + SHEAF_HEADER_WORDS
    return int(1 << (words - 1).bit_length()) - SHEAF_HEADER_WORDS


def resized_bytes(fact: Facts, slab: Slab, page_bytes: int) -> float:
    """A cache's memory with other slabs.

    As many slabs are partly used as before, and each has as large a share free. So free memory
    grows and shrinks with the size of a slab. Kernels count the objects of CPUs' slabs as in use;
    where a table has the number of these slabs, they are taken as half full, as S2-11 does.
    """
    if not fact.stride or not fact.active or not fact.slab or not fact.objects:
        return fact.total.value if fact.total else 0
    new_bytes = slab.pages * page_bytes
    of_cpus = (fact.cache.cpu_slabs or 0) * (fact.per_slab.value if fact.per_slab else 0) / 2
    in_use = max(0.0, fact.active.value - of_cpus)
    free = max(0.0, fact.objects.value - in_use) * new_bytes / fact.slab.value
    return ceil((in_use + free) / max(1, slab.objects)) * new_bytes


def made_at_boot() -> set[str]:
    """Caches of the mail on orders that are made while a single CPU is online."""
    return {row["cache"] for row in read_mail("online_cpus_caches") if row["made"] == "boot"}


def mail_saves() -> str:
    """What the mail on orders saves, by its own table."""
    return ", ".join(
        f"{row['state'].lower()} {100 * (1 - int(row['patched_kb']) / int(row['current_kb'])):.1f}%"
        for row in read_mail("online_cpus_slab_memory")
    )


def counts_when_made(online: int) -> Callable[[str], int]:
    """The CPUs that a kernel sees that counts those online: one, for caches made at boot."""
    at_boot = made_at_boot()
    return lambda name: 1 if name in at_boot or size_by_name(name) else online


def power(count: int) -> int:
    """The count of shapes.COUNTS that stands for this one."""
    return 1 << (count.bit_length() - 1)


def total_with(
    facts: Sequence[Facts], shapes: Shapes, rule: str, counts: Callable[[str], int], page: int
) -> float:
    """Bytes of all caches, with the slabs of a rule and a count; others stay as they are."""
    total = 0.0
    for fact in facts:
        slab = shapes.get((fact.name, rule, power(counts(fact.name))))
        if slab and fact.total:
            total += resized_bytes(fact, slab, page)
        elif fact.total:
            total += fact.total.value
    return total


@dataclass(frozen=True)
class Outcome:
    """A kernel's figures for the whole table; bytes, and None where a kernel has no such thing."""

    kernel: str
    slabs: float
    cpu_lists: float | None  # the most that all CPUs' partial lists can hold
    sheaves: float | None  # the most that sheaves and barns can hold


def most_of_lists(
    kernel: Kernel, facts: Sequence[Facts], shapes: Shapes, cpus: int, page: int
) -> float:
    total = 0
    for fact in sized(facts):
        assert fact.stride is not None
        slab = shapes[fact.name, kernel.order_rule, power(cpus)]
        slabs = list_slabs(kernel, fact.stride.value, max(1, slab.objects), page)
        total += cpus * slabs * slab.pages * page
    return total


def most_of_sheaves(facts: Sequence[Facts], cpus: int, nodes: int, page: int) -> float:
    sheaves = SHEAVES_OF_A_CPU * cpus + FULL_SHEAVES_OF_A_NODE * nodes
    return sum(
        sheaves * sheaf_capacity(fact.stride.value, page) * fact.stride.value
        for fact in sized(facts)
        if fact.stride
    )


def outcomes(
    facts: Sequence[Facts], shapes: Shapes, cpus: int, nodes: int, page: int
) -> list[Outcome]:
    """Debugged caches have neither lists nor sheaves; callers leave them out."""
    return [
        Outcome(
            kernel.name,
            total_with(facts, shapes, kernel.order_rule, lambda _: cpus, page),
            most_of_lists(kernel, facts, shapes, cpus, page) if kernel.cpu_lists else None,
            most_of_sheaves(facts, cpus, nodes, page) if kernel.sheaves else None,
        )
        for kernel in KERNELS
    ]


@dataclass(frozen=True)
class MailOutcome:
    """What a mail's change does to the table."""

    subject: str
    figure: str  # which memory
    before: float | None  # bytes
    after: float | None
    note: str


# Pages that the mail on SLOB needs for its objects: 427 for 245 with a list, 259 for 244 with two.
SLOB_ONE, SLOB_TWO = 427 / 245, 259 / 244


def live_bytes(facts: Sequence[Facts]) -> float:
    total = 0.0
    for fact in facts:
        size = fact.real or fact.stride
        if fact.active and size:
            total += fact.active.value * size.value
    return total


def mail_outcomes(
    facts: Sequence[Facts],
    shapes: Shapes,
    possible: int,
    online: int,
    page: int,
    subjects: Mapping[str, str],
) -> list[MailOutcome]:
    """`subjects`: of the mails, by experiment."""
    objects, slabs = KERNELS[0], Kernel(("",), "5.10", "slabs", SEED_OBJECTS)
    lists = [most_of_lists(one, facts, shapes, possible, page) for one in (objects, slabs)]
    live = live_bytes(facts)
    orders = [
        total_with(facts, shapes, "5.10", count, page)
        for count in (lambda _: possible, counts_when_made(online))
    ]
    return [
        MailOutcome(
            subjects["lists"], "most of CPU partial lists", lists[0], lists[1], "5.15's limits"
        ),
        MailOutcome(
            subjects["slob"],
            "pages of SLOB",
            live * SLOB_ONE if live else None,
            live * SLOB_TWO if live else None,
            "live bytes by the mail's own ratios; SLUB's are above",
        ),
        MailOutcome(subjects["bulk"], "slabs", None, None, "time of calls, no memory"),
        MailOutcome(
            subjects["freeze"], "slabs", None, None, "swaps under the list's lock, no memory"
        ),
        MailOutcome(
            subjects["order"],
            "slabs",
            orders[0],
            orders[1],
            f"{possible} possible CPUs, {online} online and 1 at boot; the mail's guest saves"
            f" {mail_saves()}",
        ),
    ]
