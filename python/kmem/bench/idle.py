# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench idle`: how much memory stays resident when a program has freed most of it and sleeps.

bench/sleeping.c allocates, frees and sleeps, and reads its own resident memory at the peak, after a
second and after ten. Nobody calls the allocator meanwhile. Memory is no matter of time, so several
programs sleep at once.
"""

import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from kmem.bench import peers
from kmem.bench.allocators import LIBKMEM, Allocator
from kmem.bench.crates import check_library
from kmem.bench.suite import choose_peers, commit, own_options, tell_options
from kmem.bench.timed import RunError, Timed, started
from kmem.common.files import write_json
from kmem.common.library_options import with_options
from kmem.common.tree import BUILD, build

PROGRAM = BUILD / "bench" / "sleeping"
TABLE_WIDTH = 120  # columns; a narrower terminal wraps lines, a cut figure is worse
AT_ONCE = 4  # programs that sleep at the same time
MIB = 1 << 20
FIRST_SECONDS, LAST_SECONDS = 1.0, 10.0
SMALL = ("blocks=300000", "least=16", "most=4096")
LARGE = ("bytes=256M", "least=4096", "most=65536")
FIGURES = ("live", "pages", "full", "slept", "later")  # bytes, of bench/sleeping.c


@dataclass(frozen=True)
class Load:
    """What a program allocates and keeps."""

    name: str
    stands_for: str
    words: tuple[str, ...]


def loads() -> list[Load]:
    kinds = (
        ("small, 1 in 20", "300,000 blocks of 16 B to 4 KiB, 1 in 20 stays", (*SMALL, "keep=20")),
        ("large, 1 in 16", "256 MiB of 4 to 64 KiB, 1 in 16 stays", (*LARGE, "keep=16")),
        ("small, none", "300,000 blocks of 16 B to 4 KiB, none stays", (*SMALL, "keep=0")),
    )
    # A program without threads, and one whose threads sleep.
    where = (("", "no threads", 0), (", 8 threads", "8 threads", 8))
    return [
        Load(name + suffix, f"{what}; {which}", (*words, f"threads={threads}"))
        for (name, what, words), (suffix, which, threads) in itertools.product(kinds, where)
    ]


@dataclass(frozen=True)
class Column:
    """An allocator in a setting of its own."""

    name: str
    allocator: Allocator
    extra: Mapping[str, str] = field(default_factory=dict)  # variables of the environment


def columns(allocators: Sequence[Allocator]) -> list[Column]:
    """Each allocator as it comes, and those that have a thread which gives memory back with it."""
    found = []
    for allocator in allocators:
        found.append(Column(allocator.name, allocator))
        if allocator.name.startswith("jemalloc"):
            thread = {"MALLOC_CONF": "background_thread:true"}
            found.append(Column(f"{allocator.name} with thread", allocator, thread))
        if allocator == LIBKMEM:
            thread = {"KMEM_OPTIONS": with_options("reclaim_thread=on")}
            found.append(Column(f"{allocator.name} reclaim_thread=on", allocator, thread))
    return found


@dataclass
class Results:
    """Figures of every run in bytes, by load and column, and the reasons of those that failed."""

    runs: dict[tuple[str, str], list[dict[str, int]]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def median(self, load: str, column: str, figure: str) -> float | None:
        runs = self.runs.get((load, column), [])
        if (load, column) in self.failures or not runs:
            return None
        return float(median(run[figure] for run in runs))


@dataclass
class Sleepers:
    """The programs that run now. They have sessions of their own, which Ctrl-C does not reach."""

    running: list[Timed] = field(default_factory=list)
    ended: bool = False

    @contextmanager
    def with_one(self, timed: Timed) -> Iterator[None]:
        self.running.append(timed)
        if self.ended:  # while this program started
            timed.kill()
        try:
            yield
        finally:
            self.running.remove(timed)

    def end(self) -> None:
        self.ended = True
        for timed in list(self.running):
            timed.kill()


def run_one(
    sleepers: Sleepers, folder: Path, seed: int, last_seconds: float, job: tuple[Load, Column]
) -> dict[str, int] | str:
    """The figures of a program, or the reason why there are none."""
    load, column = job
    first = min(FIRST_SECONDS, last_seconds)
    waits = (f"wait={round(1000 * first)}", f"later={round(1000 * (last_seconds - first))}")
    command: list[str | Path] = [PROGRAM, *load.words, *waits, f"seed={seed}"]
    try:
        with (
            started(folder, command, column.allocator, column.extra) as timed,
            sleepers.with_one(timed),
        ):
            said = timed.wait().output
    except RunError as error:
        return str(error)
    return {key: int(value) for key, _, value in (word.partition("=") for word in said.split())}


def measure(
    chosen: Sequence[Load],
    across: Sequence[Column],
    rounds: int,
    seed: int,
    last_seconds: float,
    folder: Path,
) -> Results:
    results = Results()
    jobs = list(itertools.product(chosen, across))
    sleepers = Sleepers()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for number in range(rounds):
                one = partial(run_one, sleepers, folder, seed + number, last_seconds)
                for (load, column), found in zip(jobs, pool.map(one, jobs), strict=True):
                    key = (load.name, column.name)
                    if isinstance(found, str):
                        results.failures[key] = found
                    else:
                        results.runs.setdefault(key, []).append(found)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            sleepers.end()
            raise
    return results


def mib(value: float | None) -> str:
    return "-" if value is None else f"{value / MIB:.1f}"


def title(results: Results, load: Load, across: Sequence[Column]) -> str:
    live = max((results.median(load.name, c.name, "live") or 0 for c in across), default=0)
    return f"{load.name}: {load.stands_for}; MiB resident, {mib(live)} live"


def table(results: Results, load: Load, across: Sequence[Column], last_seconds: float) -> Table:
    output = Table(
        "allocator",
        *("peak", "after 1 s", f"after {last_seconds:g} s", "pages with a live block"),
        box=box.SIMPLE,
    )
    for index, heading in enumerate(output.columns):
        heading.no_wrap = True
        heading.justify = "right" if index else "left"
    for column in across:
        figures = ("full", "slept", "later", "pages")
        cells = [mib(results.median(load.name, column.name, figure)) for figure in figures]
        if last_seconds < FIRST_SECONDS:  # no program slept for a second
            cells[1] = "-"
        output.add_row(column.name, *cells)
    return output


def as_rows(results: Results, last_seconds: float = LAST_SECONDS) -> list[dict[str, Any]]:
    """Medians; none after a second if the last look was before."""
    names = {"full": "peak_bytes", "slept": "after_1_s_bytes", "later": "at_the_end_bytes"}
    names |= {"live": "live_bytes", "pages": "pages_bytes"}
    untold = {"slept": None} if last_seconds < FIRST_SECONDS else {}
    return [
        {
            "load": load,
            "allocator": column,
            **{
                names[figure]: untold.get(figure, results.median(load, column, figure))
                for figure in FIGURES
            },
        }
        for load, column in results.runs
        if (load, column) not in results.failures
    ]


def show(
    results: Results,
    across: Sequence[Column],
    rounds: int,
    seconds: float,
    missing: Mapping[str, str],
) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    for load in loads():
        console.print(title(results, load, across))
        console.print(table(results, load, across, seconds))
    console.print(
        f"Medians of {rounds} rounds; memory that was resident before the first allocation is"
        " subtracted. No allocator that cannot move blocks keeps less than the pages with a live"
        " block."
    )
    tell_options(console)
    for (name, column), why in results.failures.items():
        console.print(f"{name} on {column} failed: {why}", soft_wrap=True)
    for name, why in missing.items():
        console.print(f"{name} is missing: {why}", soft_wrap=True)


def bench_idle(
    wanted_peers: str | None, rounds: int, seconds: float, seed: int, json_file: Path | None
) -> None:
    chosen_peers = choose_peers(wanted_peers)
    progress = Console(stderr=True)
    build()
    assert LIBKMEM.library is not None
    check_library(LIBKMEM.library)
    found, missing = peers.find(chosen_peers, progress)
    across = columns([LIBKMEM, *(peer.allocator for peer in found)])
    with (
        tempfile.TemporaryDirectory(prefix="kmem-idle-") as folder,
        progress.status(f"{rounds} rounds"),
    ):
        results = measure(loads(), across, rounds, seed, seconds, Path(folder))
    now = commit()
    versions = {LIBKMEM.name: f"commit {now}"}
    versions |= {peer.allocator.name: peer.version for peer in found}
    document: dict[str, object] = {
        "commit": now,
        "options": own_options(),
        "rounds": rounds,
        "seconds": seconds,
        "seed": seed,
        "cpus": len(os.sched_getaffinity(0)),
        "allocators": versions,
        "missing": missing,
        "rows": as_rows(results, seconds),
        "failures": [
            {"load": load, "allocator": column, "reason": why}
            for (load, column), why in results.failures.items()
        ],
    }
    try:
        write_json(json_file, document)
    finally:  # a full disk must not take the figures
        show(results, across, rounds, seconds, missing)
