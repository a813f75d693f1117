# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench tails`: how long single calls of malloc and free take, up to the longest.

bench/tails.c measures a setting in a process. Each round runs every setting on every allocator, in
a new order, and a figure is the median of the rounds.
"""

import os
import platform
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from kmem.bench import peers
from kmem.bench.allocators import LIBKMEM, Allocator
from kmem.bench.crates import check_library
from kmem.bench.suite import choose_peers, commit, own_options, tell_options, words_of
from kmem.bench.timed import RunError, Watch, timed_run
from kmem.common.errors import BadUsage
from kmem.common.files import write_json
from kmem.common.machine import processor
from kmem.common.tree import BUILD, build

PROGRAM = BUILD / "bench" / "tails"
TABLE_WIDTH = 150  # columns; a narrower terminal wraps lines, a cut figure is worse
CALLS = ("malloc", "free")
SETTINGS = {
    "busy": "a thread replaces blocks all the time",
    "shared": "threads do so, and every other block is freed by the next thread",
    "idle": "a thread sleeps, allocates a burst of blocks, and frees them",
    "bursts": "threads do so at once, and every other block is freed by the next thread",
}
TIMES = ("p50", "p99", "p99.9", "p99.99", "largest", "clean")  # nanoseconds
COUNTS = ("calls", "long", "preempted", "waited", "faulted")
BEHIND = 1.25  # times of the best allocator at a percentile, above which libkmem is behind
SCALES = (0.001, 100.0)

Figures = dict[str, float]  # of the calls of a kind in a run, by the names above


@dataclass(frozen=True)
class Run:
    """What bench/tails.c printed. `known`: the kernel told switches and page faults."""

    overhead_ns: float
    known: bool
    calls: dict[str, Figures]


def parse_run(text: str) -> Run:
    lines = {}
    for line in text.splitlines():
        name, *words = line.split()
        lines[name] = {key: float(value) for key, _, value in (w.partition("=") for w in words)}
    overhead = lines.pop("overhead")
    return Run(overhead["ns"], overhead["known"] == 1, {call: lines[call] for call in CALLS})


def command(setting: str, threads: int, scale: float, seed: int) -> list[str | Path]:
    words = [f"setting={setting}", f"threads={threads}", f"seed={seed}"]
    words += [f"calls={max(round(500_000 * scale), 1)}", f"count={max(round(20 * scale), 1)}"]
    return [PROGRAM, *words]


@dataclass
class Results:
    """Runs by setting and allocator, and the reasons of those that failed."""

    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def median(self, setting: str, name: str, call: str, figure: str) -> float | None:
        """None if the allocator failed."""
        runs = self.runs.get((setting, name), [])
        if (setting, name) in self.failures or not runs:
            return None
        return float(median(run.calls[call][figure] for run in runs))


def measure(
    allocators: Sequence[Allocator],
    settings: Sequence[str],
    rounds: int,
    threads: int,
    scale: float,
    seed: int,
    folder: Path,
) -> Results:
    order = random.Random(seed)
    results = Results()
    pairs = [(setting, allocator) for setting in settings for allocator in allocators]
    for number in range(rounds):
        for setting, allocator in order.sample(pairs, len(pairs)):
            key = (setting, allocator.name)
            if key in results.failures:
                continue
            words = command(setting, threads, scale, seed + number)
            try:
                said = timed_run(folder, words, allocator).output
            except RunError as error:
                results.failures[key] = str(error)
                continue
            results.runs.setdefault(key, []).append(parse_run(said))
    return results


def as_rows(results: Results) -> list[dict[str, Any]]:
    """A row for each setting, allocator and call, with medians and with the figures of all runs."""
    return [
        {
            "setting": setting,
            "allocator": name,
            "call": call,
            **{
                f"{figure}_ns" if figure in TIMES else figure: results.median(
                    setting, name, call, figure
                )
                for figure in (*TIMES, *COUNTS)
            },
            "largest_ns_of_runs": [run.calls[call]["largest"] for run in runs],
        }
        for (setting, name), runs in results.runs.items()
        if (setting, name) not in results.failures
        for call in CALLS
    ]


def cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def table(results: Results, setting: str, call: str, names: Sequence[str]) -> Table:
    output = Table(
        "allocator",
        *("median", "p99", "p99.9", "p99.99", "largest", "largest clean"),
        *("over 20 us", "waited", "faulted", "preempted"),
        box=box.SIMPLE,
        title=f"{setting}: {call}, ns ({SETTINGS[setting]})",
        title_justify="left",
    )
    for column in output.columns[1:]:
        column.justify = "right"
    for name in names:
        figures = (*TIMES, "long", "waited", "faulted", "preempted")
        values = [results.median(setting, name, call, figure) for figure in figures]
        output.add_row(
            name,
            *map(cell, values[: len(TIMES)]),
            *("-" if value is None else f"{value:,.0f}" for value in values[len(TIMES) :]),
        )
    return output


def behind(results: Results, settings: Sequence[str], others: Sequence[str]) -> list[str]:
    """The places in which libkmem is over BEHIND times the best of the others, worst first."""
    found = []
    for setting in settings:
        for call in CALLS:
            for figure in TIMES:
                ours = results.median(setting, LIBKMEM.name, call, figure)
                theirs = {
                    name: value
                    for name in others
                    if (value := results.median(setting, name, call, figure)) is not None
                }
                if ours is None or not theirs:
                    continue
                best = min(theirs, key=lambda name: theirs[name])
                ratio = ours / max(theirs[best], 0.1)  # a call that takes no time at all
                if ratio > BEHIND:
                    found.append(
                        (
                            ratio,
                            f"{setting} {call} {figure}: {cell(ours)} ns, {ratio:.2f} times"
                            f" {best}'s",
                        )
                    )
    return [line for _, line in sorted(found, reverse=True)]


def show(
    results: Results,
    settings: Sequence[str],
    allocators: Sequence[Allocator],
    rounds: int,
    *,
    disturbed: bool,
) -> None:
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    names = [a.name for a in sorted(allocators, key=lambda allocator: allocator.hardened)]
    for setting in settings:
        for call in CALLS:
            console.print(table(results, setting, call, names))
    runs = [run for some in results.runs.values() for run in some]
    overhead = median(run.overhead_ns for run in runs) if runs else 0
    lines = [
        f"Medians of {rounds} rounds. {overhead:.1f} ns are subtracted from every call, the median"
        " of an empty measurement. Calls in which the thread was preempted count in the last column"
        " only. Clean: neither preempted, nor waiting, nor with a page fault."
    ]
    if any(not run.known for run in runs):
        lines.append(
            "The kernel did not tell switches and page faults of all runs: there, the largest and"
            " the largest clean call may be any of them."
        )
    if disturbed:
        lines.append("Other processes took CPU time meanwhile: the longest calls are too long.")
    others = [a.name for a in allocators if a.name != LIBKMEM.name and not a.hardened]
    places = behind(results, settings, others)
    lines += [f"libkmem over {BEHIND:g} times the best, {place}" for place in places]
    lines += [f"{name} in {setting}: {why}" for (setting, name), why in results.failures.items()]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    tell_options(console)


def choose_settings(only: str | None) -> list[str]:
    chosen = list(SETTINGS) if only is None else words_of(only)
    for name in chosen or [""]:
        if name not in SETTINGS:
            raise BadUsage(f"bench tails: --only {only}: there are {', '.join(SETTINGS)}")
    return [name for name in SETTINGS if name in chosen]


def as_document(
    results: Results, versions: Mapping[str, str], missing: Mapping[str, str]
) -> dict[str, Any]:
    runs = [run for some in results.runs.values() for run in some]
    return {
        "machine": {
            "processor": processor(),
            "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
        },
        "allocators": dict(versions),
        "missing": dict(missing),
        "overhead_ns": median(run.overhead_ns for run in runs) if runs else None,
        "known": all(run.known for run in runs),
        "rows": as_rows(results),
        "failures": [
            {"setting": setting, "allocator": name, "reason": why}
            for (setting, name), why in results.failures.items()
        ],
    }


def bench_tails(
    wanted_peers: str | None,
    only: str | None,
    rounds: int,
    threads: int,
    scale: float,
    seed: int,
    json_file: Path | None,
) -> None:
    if not SCALES[0] <= scale <= SCALES[1]:
        raise BadUsage(f"bench tails: --scale {scale:g}; expected {SCALES[0]:g} to {SCALES[1]:g}")
    chosen = choose_peers(wanted_peers)
    settings = choose_settings(only)
    progress = Console(stderr=True)
    build()
    assert LIBKMEM.library is not None
    check_library(LIBKMEM.library)
    found, missing = peers.find(chosen, progress)
    allocators = [LIBKMEM, *(peer.allocator for peer in found)]
    watch = Watch()
    with (
        tempfile.TemporaryDirectory(prefix="kmem-tails-") as folder,
        progress.status(f"{rounds} rounds"),
    ):
        results = measure(allocators, settings, rounds, threads, scale, seed, Path(folder))
    disturbed = watch.disturbed()
    now = commit()
    versions = {LIBKMEM.name: f"commit {now}"}
    versions |= {peer.allocator.name: peer.version for peer in found}
    document = as_document(results, versions, missing)
    head: dict[str, Any] = {
        "commit": now,
        "options": own_options(),
        "rounds": rounds,
        "threads": threads,
        "scale": scale,
        "seed": seed,
    }
    try:
        write_json(json_file, head | {"disturbed": disturbed} | document)
    finally:  # a full disk must not take the figures
        show(results, settings, allocators, rounds, disturbed=disturbed)
        for name, why in missing.items():
            progress.print(f"{name} is missing: {why}", highlight=False, soft_wrap=True)
