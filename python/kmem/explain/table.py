# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A slab table as it was read: nothing here is computed.

A figure that the form does not print is None. facts.py computes figures, policies.py models them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

How = Literal["read", "computed", "modelled"]


@dataclass(frozen=True)
class Figure:
    """A number, and where it comes from."""

    value: float
    how: How

    def as_json(self) -> dict[str, float | str]:
        return {"value": self.value, "how": self.how}


@dataclass(frozen=True)
class Cache:
    """A cache's line. Objects, if no unit is named."""

    name: str
    objects: int | None = None  # that its slabs hold, free or not
    active: int | None = None
    stride_bytes: int | None = None  # from an object to the next
    rounded_bytes: float | None = None  # the stride as slabtop prints it, by 10.24 bytes
    object_bytes: int | None = None  # without padding and debugging
    per_slab: int | None = None
    pages_per_slab: int | None = None
    slab_bytes: int | None = None
    slabs: int | None = None
    partial_slabs: int | None = None  # on lists of nodes
    cpu_slabs: int | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    used_percent: float | None = None
    reclaimable: bool | None = None
    debug: str = ""  # letters of slab_debug that the form names
    cpu_partial: int | None = None
    slab_allocator: bool = False  # the form or the line says SLAB
    order: int | None = None  # of slabs as the kernel wants them; it may have taken smaller ones
    least_order: int | None = None  # that it takes when memory is short
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Boot:
    """What SLUB says of the machine when it starts, and of the orders that it may choose."""

    cpus: int  # that the machine can have
    nodes: int
    least_order: int
    greatest_order: int
    least_objects: int  # of a slab; 0: by the count of CPUs


@dataclass
class Table:
    """The caches of a form at a moment, in the order of the lines."""

    form: str
    file: str
    line: int
    caches: list[Cache] = field(default_factory=list)
    printed: dict[str, float] = field(default_factory=dict)  # totals that the report itself prints
    memory: dict[str, int] = field(default_factory=dict)  # /proc/meminfo beside it, in KiB
    boot: Boot | None = None  # of a log beside it
    whole: bool = False  # has the form's head, so no line is missing in front of it


@dataclass(frozen=True)
class Unread:
    """A line that no form has."""

    file: str
    line: int
    reason: str
    follows: bool = False  # no line of the file was read since the unread one before


@dataclass
class Reading:
    """What was read of all files."""

    tables: list[Table] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
