# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a profile's samples stand for, and how libkmem's size classes would round the objects.

An allocator that takes a sample every `interval` bytes on average meets an object of `size` bytes
with probability p = 1 - exp(-size / interval). A count of n samples of that size stands for n / p
objects, and its relative error is sqrt((1 - p) / n): less than two of these in 95 of 100 profiles.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kmem.explain.heap.profile import HeapProfile, Stack
from kmem.explain.process.shares import FINE_CLASSES, KERNEL_CLASSES
from kmem.explain.table import Figure, How

DEVIATIONS = 1.96  # of a normal distribution, for 95%
PAGE_BYTES = 4096
CUT_LEAST = 100  # objects, of which one more or less does not change the size
TABLES = {"fine": FINE_CLASSES, "kernel": KERNEL_CLASSES}


def given_bytes(size: float, classes: Sequence[int]) -> int:
    """What an object of so many bytes takes: its class, or whole pages beyond the largest."""
    at = bisect.bisect_left(classes, math.ceil(size))
    if at < len(classes):
        return classes[at]
    return math.ceil(size / PAGE_BYTES) * PAGE_BYTES


@dataclass(frozen=True)
class Held:
    """Objects of equal mean size; the error is of a 95% interval, relative, 0 without samples."""

    stack: Stack
    objects: float
    bytes: float
    error: float
    is_cut: bool  # the count of objects may be too small by one

    @property
    def mean(self) -> float:
        return self.stack.bytes / self.stack.objects

    @property
    def size(self) -> float:
        """The mean, for a class. Writers that scale up cut a count of objects to a whole number."""
        return self.mean * (1 - 1 / self.stack.objects) if self.is_cut else self.mean

    def rounding(self, table: str) -> float:
        """Bytes behind what was asked for, if all objects have the mean size."""
        return max(0.0, given_bytes(self.size, TABLES[table]) - self.mean) * self.objects


def held_by(stack: Stack, profile: HeapProfile) -> Held:
    mean = stack.bytes / stack.objects
    chance = -math.expm1(-mean / profile.interval) if profile.interval else 1.0
    if profile.is_scaled:
        samples, times = max(1.0, stack.objects * chance), 1.0
    else:
        samples, times = float(stack.objects), 1 / chance
    error = DEVIATIONS * math.sqrt((1 - chance) / samples)
    is_cut = profile.is_scaled and stack.objects >= CUT_LEAST
    return Held(stack, stack.objects * times, stack.bytes * times, error, is_cut)


@dataclass(frozen=True)
class Sum:
    """A sum of stacks."""

    held: tuple[Held, ...]

    @property
    def objects(self) -> float:
        return sum(one.objects for one in self.held)

    @property
    def bytes(self) -> float:
        return sum(one.bytes for one in self.held)

    @property
    def error(self) -> float:
        """Relative, of the bytes: stacks miss independently of each other."""
        squares = sum((one.bytes * one.error) ** 2 for one in self.held)
        return math.sqrt(squares) / self.bytes if self.held else 0.0

    @property
    def mean(self) -> float:
        return self.bytes / self.objects

    def rounding(self, table: str) -> float:
        return sum(one.rounding(table) for one in self.held)


@dataclass(frozen=True)
class Answers:
    """A profile with all that is computed of it."""

    profile: HeapProfile
    all: Sum
    sizes: tuple[tuple[int, Sum], ...]  # by the bytes of libkmem's finer class, ascending

    @property
    def how(self) -> How:
        """Of counts of objects: samples are scaled up by a model of how they were taken."""
        if self.profile.interval and not self.profile.is_scaled:
            return "modelled"
        return "read"

    def figure(self, value: float, *, of_sum: bool = False) -> Figure:
        how: How = "computed" if of_sum and self.how == "read" else self.how
        return Figure(value, how)


def answer(profile: HeapProfile) -> Answers:
    held = [held_by(stack, profile) for stack in profile.stacks]
    by_class: dict[int, list[Held]] = defaultdict(list)
    for one in held:
        by_class[given_bytes(one.size, FINE_CLASSES)].append(one)
    sizes = tuple((size, Sum(tuple(by_class[size]))) for size in sorted(by_class))
    return Answers(profile, Sum(tuple(held)), sizes)
