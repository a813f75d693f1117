# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Results of `kmem bench hunt`: tables, notes, and the file with which a later hunt goes on."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.bench.hunt_figures import (
    Point,
    Spread,
    is_beaten,
    is_beaten_for_sure,
    kinds,
    share,
    spread,
)
from kmem.bench.suite_report import MIB, OURS, as_ratio, cpus, memory_bytes, options_line
from kmem.common.figures import Ratio
from kmem.common.machine import processor

WORST = 10  # points in a list
SLOW = 1.5  # times the fastest; points beyond it are counted


@dataclass(frozen=True)
class Hunt:
    """All that a hunt was asked for, and the points that it measured."""

    commit: str | None
    seed: int
    rounds: int
    seconds: float  # of a run on glibc's malloc
    threads: tuple[int, int]
    options: str  # KMEM_OPTIONS of the caller
    versions: dict[str, str]  # versions of the allocators that ran
    missing: dict[str, str]  # reason by the name of an allocator
    points: list[Point]

    @property
    def measured(self) -> list[Point]:
        return [point for point in self.points if point.measured]


def by_time(point: Point) -> Mapping[str, Ratio]:
    return point.time


def by_cpu(point: Point) -> Mapping[str, Ratio]:
    return point.cpu


def by_memory(point: Point) -> Mapping[str, Ratio]:
    return point.memory


def spreads(hunt: Hunt, ratios: Callable[[Point], Mapping[str, Ratio]]) -> dict[str, Spread]:
    """By allocator, over the points that libkmem and the allocator finished."""
    found = {}
    for name in hunt.versions:
        of_name = [ratios(point)[name] for point in hunt.measured if name in ratios(point)]
        if of_name:
            found[name] = spread(of_name)
    return found


def ahead(hunt: Hunt, name: str) -> tuple[int, int]:
    """Points at which a peer is ahead in time and memory, by medians and for sure."""
    beside = [point.beside[name] for point in hunt.measured if name in point.beside]
    return sum(b.ahead for b in beside), sum(b.ahead_for_sure for b in beside)


def summary(hunt: Hunt) -> dict[str, Any]:
    points = hunt.measured
    return {
        "points": len(points),
        "time": {name: asdict(value) for name, value in spreads(hunt, by_time).items()},
        "cpu": {name: asdict(value) for name, value in spreads(hunt, by_cpu).items()},
        "memory": {name: asdict(value) for name, value in spreads(hunt, by_memory).items()},
        "ahead_in_both": {
            name: dict(zip(("medians", "intervals"), ahead(hunt, name), strict=True))
            for name in hunt.versions
            if name != OURS
        },
        "unbeaten_share": {
            "medians": share(points, lambda point: not is_beaten(point)),
            "intervals": share(points, lambda point: not is_beaten_for_sure(point)),
        },
        "slow_share": share(points, is_slow),
        "kinds": [asdict(kind) for kind in kinds(points)],
    }


def huge_pages() -> str:
    """The kernel's setting of transparent huge pages, which decides a small program's memory."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    if "THP_enabled:\t0" in status:
        return "off for this process"
    try:
        setting = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="utf-8")
    except OSError:
        return "none"
    return setting[setting.find("[") + 1 : setting.find("]")]


def is_slow(point: Point) -> bool:
    return point.time[OURS].median > SLOW


def as_document(hunt: Hunt) -> dict[str, object]:
    return {
        "commit": hunt.commit,
        "machine": {
            "processor": processor(),
            "cpus": cpus(),
            "kernel": platform.release(),
            "memory_bytes": memory_bytes(),
            "huge_pages": huge_pages(),
        },
        "seed": hunt.seed,
        "rounds": hunt.rounds,
        "run_seconds": hunt.seconds,
        "threads": list(hunt.threads),
        "options": hunt.options,
        "allocators": hunt.versions,
        "missing": hunt.missing,
        "summary": summary(hunt),
        "points": [
            {
                **asdict(point.found),
                "time_ratio": {name: as_ratio(ratio) for name, ratio in point.time.items()},
                "cpu_ratio": {name: as_ratio(ratio) for name, ratio in point.cpu.items()},
                "memory_ratio": {name: as_ratio(ratio) for name, ratio in point.memory.items()},
            }
            for point in hunt.points
        ],
    }


# ---- Tables ------------------------------------------------------------------------------------


def figure(value: float) -> str:
    return f"{value:.2f}"


def allocator_table(hunt: Hunt) -> Table:
    what = "time, CPU time and peak memory / the least of each point"
    table = Table(title=f"{len(hunt.measured)} points: {what}", box=SIMPLE)
    table.add_column("allocator", no_wrap=True)
    for what in ("time", "CPU", "memory"):
        for column in ("mean", "median", "90%", "worst"):
            table.add_column(f"{what}\n{column}", justify="right", no_wrap=True)
    table.add_column(f"ahead of {OURS}\nin both (sure)", justify="right", no_wrap=True)
    columns = [spreads(hunt, ratios) for ratios in (by_time, by_cpu, by_memory)]
    for name in (name for name in hunt.versions if name in columns[0]):
        cells = [figure(value) for column in columns for value in astuple(column[name])]
        plain, sure = ahead(hunt, name)
        table.add_row(name, *cells, "" if name == OURS else f"{plain} ({sure})")
    return table


def kinds_table(hunt: Hunt) -> Table:
    table = Table(title=f"{OURS} by kind of work: geometric means of its ratios", box=SIMPLE)
    for column in ("word", "value"):
        table.add_column(column, no_wrap=True)
    for column in ("points", "time", "CPU time", "memory", "a peer ahead in both"):
        table.add_column(column, justify="right", no_wrap=True)
    last = ""
    for kind in kinds(hunt.measured):
        if kind.dimension != last:
            table.add_section()
        table.add_row(
            kind.dimension if kind.dimension != last else "",
            kind.value,
            str(kind.points),
            figure(kind.time),
            figure(kind.cpu),
            figure(kind.memory),
            f"{kind.beaten:.0%}",
        )
        last = kind.dimension
    return table


def worst_line(point: Point, ratios: Mapping[str, Ratio], least: str) -> str:
    ours, best = ratios[OURS], point.best(ratios)
    return (
        f"{ours.median:.2f} ({ours.low:.2f} to {ours.high:.2f}) of {best}'s {least},"
        f" point {point.number}: {point.found.words}"
    )


def worst_of(hunt: Hunt, ratios: Callable[[Point], Mapping[str, Ratio]], unit: str) -> list[str]:
    """The points with the largest ratios; a figure in seconds or MiB says how much is at stake."""

    def least(point: Point) -> str:
        found, best = point.found, point.best(ratios(point))
        if unit == "MiB":
            return f"{np.median(found.peak_bytes[best]) / MIB:.1f} MiB"
        seconds = found.seconds if ratios is by_time else found.cpu_seconds
        return f"{np.median(seconds[best]):.3f} s"

    ordered = sorted(hunt.measured, key=lambda point: -ratios(point)[OURS].median)
    return [worst_line(point, ratios(point), least(point)) for point in ordered[:WORST]]


def worst_lines(hunt: Hunt) -> list[str]:
    """The worst points of libkmem, each with the words that repeat it."""
    lines: list[str] = []
    for what, unit, ratios in (
        ("time", "s", by_time),
        ("CPU time", "s", by_cpu),
        ("memory", "MiB", by_memory),
    ):
        lines += ["", f"worst in {what}: ratio (95% interval) to the best, and the point's words"]
        lines += worst_of(hunt, ratios, unit)
    lines += ["", "worst in both: ratios in time and in memory to the peer that is ahead the most"]
    for point in sorted(hunt.measured, key=lambda point: -point.loss)[:WORST]:
        if point.loss > 1:
            beside = point.beside[point.worst_peer]
            lines.append(
                f"{1 / beside.time.median:.2f} and {1 / beside.memory.median:.2f} to"
                f" {point.worst_peer}{' (sure)' if beside.ahead_for_sure else ''},"
                f" point {point.number}: {point.found.words}"
            )
    return lines


def share_lines(hunt: Hunt) -> list[str]:
    points = hunt.measured
    unbeaten = share(points, lambda point: not is_beaten(point))
    not_for_sure = share(points, lambda point: not is_beaten_for_sure(point))
    slow = share(points, is_slow)
    return [
        f"no peer is ahead of {OURS} in time and memory at {unbeaten:.0%} of the points by medians,"
        f" at {not_for_sure:.0%} by whole 95% intervals",
        f"{OURS} takes over {SLOW:g} times the fastest's time at {slow:.0%} of the points",
    ]


def notes(hunt: Hunt) -> list[str]:
    lines = [f"{name}: {version}" for name, version in hunt.versions.items()]
    lines += [f"{name} is missing: {reason}" for name, reason in hunt.missing.items()]
    disturbed = sum(point.found.disturbed_rounds > 0 for point in hunt.points)
    if disturbed:
        lines.append(
            f"other load took CPU time in rounds of {disturbed} points; there CPU time is steadier"
        )
    ways = [ns for point in hunt.points for ns in point.found.line_ns]
    if ways:
        lines.append(f"a cache line took {min(ways):.0f} to {max(ways):.0f} ns between CPUs")
    if hunt.options:
        lines.append(options_line(hunt.options))
    lines.append(f"transparent huge pages: {huge_pages()}")
    lines.append(f"seed {hunt.seed}, medians of {hunt.rounds} rounds of {hunt.seconds:g} s")
    return lines


def failures(hunt: Hunt) -> list[str]:
    return [
        f"point {point.number} on {name} failed: {why}: {point.found.words}"
        for point in hunt.points
        for name, why in point.found.failures.items()
    ]


def show(console: Console, hunt: Hunt) -> None:
    lines = failures(hunt)
    if hunt.measured:
        console.print(allocator_table(hunt))
        console.print(kinds_table(hunt))
        lines = [*share_lines(hunt), *worst_lines(hunt), "", *lines]
    for line in [*lines, *notes(hunt)]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
