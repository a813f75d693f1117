# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a line of a report can be, and how its numbers are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kmem.explain.table import Boot, Cache


@dataclass(frozen=True)
class Head:
    """The first line of a table; a second head begins the table of a later moment."""

    form: str
    below_totals: bool = False  # the names of columns, without totals those of a part


@dataclass(frozen=True)
class Totals:
    """Sums that the report prints; bytes and objects."""

    values: Mapping[str, float]


@dataclass(frozen=True)
class Memory:
    """A line of /proc/meminfo, in KiB, or of a node's."""

    name: str
    kib: int
    node: int | None = None


@dataclass(frozen=True)
class Attribute:
    """A file of /sys/kernel/slab."""

    cache: str
    name: str
    text: str


@dataclass(frozen=True)
class Part:
    """A figure of a cache that has a line for each of its figures."""

    form: str  # with the labels that tables differ in
    cache: str
    field: str  # of Cache
    value: int


@dataclass(frozen=True)
class Adds:
    """Further figures of the cache before: those of a node, or the order of its slabs."""

    slabs: int = 0
    objects: int = 0
    free: int = 0
    order: int | None = None
    least_order: int | None = None


@dataclass(frozen=True)
class Figures:
    """A line of a cache's own report: further fields of the cache before, and of its debugging."""

    values: Mapping[str, int]
    debug: str = ""  # a letter of slab_debug
    first: bool = False  # such a line begins a report


@dataclass(frozen=True)
class Passed:
    """A line of a known form without a figure that is used here."""


@dataclass(frozen=True)
class Skips:
    """Lines of other figures follow, up to the next head."""


@dataclass(frozen=True)
class Bad:
    """A line that begins as one of a form, and cannot be read."""

    reason: str


Item = (
    Head | Totals | Memory | Attribute | Part | Adds | Figures | Passed | Skips | Bad | Boot | Cache
)

DIGITS = 19  # of a number of 64 bits
NUMBER = re.compile(rf"\d{{1,{DIGITS}}}", re.ASCII)
DECIMAL = re.compile(r"\d{1,15}(?:\.\d{1,3}|,\d{1,2})?", re.ASCII)
# Digits in groups of three, as some tools and locales print them, and a unit.
GROUPED = re.compile(r"\d{1,3}(?:([,.'\u2019_])\d{3})(?:\1\d{3}){0,5}([KMGTk]?i?B?%?)", re.ASCII)


def is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None


def ungrouped(word: str) -> str:
    """12,345 and 1.234.567 without marks; 1.234K may have decimals."""
    match = GROUPED.fullmatch(word)
    if match is None or (match[1] == "." and match[2] and word.count(".") == 1):
        return word
    return word.replace(match[1], "")


def decimal(text: str) -> float | None:
    """A number with a point or, by some locales, a comma; no tool prints three digits behind it."""
    text = ungrouped(text) if "," in text else text
    return float(text.replace(",", ".")) if DECIMAL.fullmatch(text) else None


# What follows a number, and its bytes; the tool slabinfo counts in thousands.
BINARY = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
THOUSANDS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def sized(text: str, units: Mapping[str, int]) -> float | None:
    """Bytes of 14.1M, 64k, 2.7GB, 3KiB or 5Gi."""
    unit = text.lstrip("0123456789.,")
    value = decimal(text.removesuffix(unit))
    scale = units.get(unit.upper().removesuffix("B").removesuffix("I") or unit.upper())
    return None if value is None or scale is None else value * scale


def wanted(fields: list[str], names: tuple[str, ...]) -> str:
    """Why fields are not the numbers that they should be."""
    for name, text in zip(names, fields, strict=False):
        if not is_number(text):
            return f"{name} {text[:40]!r}: expected a number of at most {DIGITS} digits"
    return f"{len(fields)} numbers; expected {len(names)}"
