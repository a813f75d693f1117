# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The figures of a hunt: ratios of each point to its best, and the peers that are ahead in both."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kmem.bench.hunt_runs import Found
from kmem.bench.hunt_space import as_point
from kmem.bench.suite_report import OURS
from kmem.common.figures import Ratio, geometric_mean, median_ratio, ratios_to_best

FAR_NS = 100  # of a cache line between CPUs; cores with a cache in common take less
ROUNDS_FOR_SURE = 3  # with fewer, an interval is the range of what a disturbance left


@dataclass(frozen=True)
class Beside:
    """A peer beside libkmem at a point: the peer's figures divided by ours."""

    time: Ratio
    memory: Ratio

    @property
    def ahead(self) -> bool:
        """The peer's medians are less in time and in memory."""
        return self.time.median < 1 and self.memory.median < 1

    @property
    def ahead_for_sure(self) -> bool:
        """So are the whole intervals, from enough rounds."""
        enough = self.time.rounds >= ROUNDS_FOR_SURE
        return enough and self.time.high < 1 and self.memory.high < 1

    @property
    def least_loss(self) -> float:
        """Our figure divided by the peer's, in time or in memory, where it is less."""
        return min(1 / self.time.median, 1 / self.memory.median)


@dataclass(frozen=True)
class Point:
    """A point, its place in the hunt from 1 on, and its ratios by the allocator's name."""

    number: int
    found: Found
    time: dict[str, Ratio]  # to the fastest
    cpu: dict[str, Ratio]  # of CPU time, to the least
    memory: dict[str, Ratio]  # to the leanest
    beside: dict[str, Beside]

    @property
    def measured(self) -> bool:
        """Libkmem and a peer finished it."""
        return bool(self.beside)

    def best(self, ratios: Mapping[str, Ratio]) -> str:
        return min(ratios, key=lambda name: ratios[name].median)

    @property
    def worst_peer(self) -> str:
        """The peer that is ahead the most in both."""
        return max(self.beside, key=lambda name: self.beside[name].least_loss)

    @property
    def loss(self) -> float:
        """How far that peer is ahead in both; below 1 if none is."""
        return self.beside[self.worst_peer].least_loss


def beside_ours(found: Found) -> dict[str, Beside]:
    if OURS not in found.seconds:
        return {}
    return {
        name: Beside(
            median_ratio(found.seconds[name], found.seconds[OURS]),
            median_ratio(found.peak_bytes[name], found.peak_bytes[OURS]),
        )
        for name in found.seconds
        if name != OURS
    }


def as_ratios(number: int, found: Found) -> Point:
    return Point(
        number,
        found,
        ratios_to_best(found.seconds),
        ratios_to_best(found.cpu_seconds),
        ratios_to_best(found.peak_bytes),
        beside_ours(found),
    )


@dataclass(frozen=True)
class Spread:
    """Ratios of an allocator over points."""

    mean: float  # geometric
    median: float
    high: float  # 90th percentile
    worst: float


def spread(ratios: Iterable[Ratio]) -> Spread:
    values = [ratio.median for ratio in ratios]
    return Spread(
        geometric_mean(values),
        float(np.median(values)),
        float(np.percentile(values, 90)),
        max(values),
    )


@dataclass(frozen=True)
class Kind:
    """The points that share a value of a dimension."""

    dimension: str
    value: str
    points: int
    time: float  # our mean ratio to the fastest
    cpu: float  # in CPU time
    memory: float  # our mean ratio to the leanest
    beaten: float  # share of points with a peer that is ahead in both


def share(points: Sequence[Point], holds: Callable[[Point], bool]) -> float:
    return sum(map(holds, points)) / len(points) if points else 0.0


def is_beaten(point: Point) -> bool:
    return any(beside.ahead for beside in point.beside.values())


def is_beaten_for_sure(point: Point) -> bool:
    return any(beside.ahead_for_sure for beside in point.beside.values())


def value_of(dimension: str, value: object) -> str:
    """Sizes in bytes are put together by powers of 16, or each would have a point or two."""
    text = str(value)
    if dimension not in ("least", "most", "live") or not text.isdecimal():
        return text
    low = 1
    while low * 16 <= int(text):
        low *= 16
    return f"{low}-{low * 16 - 1}"


def kinds(points: Sequence[Point]) -> list[Kind]:
    """Means for each value of each dimension with several values."""
    measured = [(as_point(point.found.words), point) for point in points if point.measured]
    dimensions = dict.fromkeys(name for words, _ in measured for name in words)
    rows: list[Kind] = []
    for dimension in (name for name in dimensions if name not in ("scale", "seed")):
        groups: dict[str, list[Point]] = {}
        for words, point in measured:
            if dimension in words:
                groups.setdefault(value_of(dimension, words[dimension]), []).append(point)
        rows += kinds_of(dimension, groups)
    by_line: dict[str, list[Point]] = {}
    for _, point in measured:
        if point.found.line_ns:
            by_line.setdefault(line_of(point.found.line_ns), []).append(point)
    return rows + kinds_of("line", by_line)


def kinds_of(dimension: str, groups: Mapping[str, list[Point]]) -> list[Kind]:
    """None if all points are alike."""
    values = sorted(groups, key=first_number) if len(groups) > 1 else []
    return [kind_of(dimension, value, groups[value]) for value in values]


def line_of(line_ns: Sequence[float]) -> str:
    """Whether the CPUs had a cache in common while a point was measured."""
    if max(line_ns) < FAR_NS:
        return f"0-{FAR_NS - 1} ns"
    return f"{FAR_NS} ns or more" if min(line_ns) >= FAR_NS else f"{FAR_NS} ns at times"


def first_number(value: str) -> tuple[int, str]:
    start = value.partition("-")[0]
    return (int(start), "") if start.isdecimal() else (0, value)


def kind_of(dimension: str, value: str, points: list[Point]) -> Kind:
    return Kind(
        dimension,
        value,
        len(points),
        geometric_mean([point.time[OURS].median for point in points]),
        geometric_mean([point.cpu[OURS].median for point in points]),
        geometric_mean([point.memory[OURS].median for point in points]),
        share(points, is_beaten),
    )
