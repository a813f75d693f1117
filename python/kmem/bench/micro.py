# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench micro`: single operations of each allocator, in interleaved rounds.

bench/micro.c defines the operations. Where a program's files lie in physical memory changes the
time of a pair, and every process sees that effect until the files are copied again. So each
allocator gets PLACES worker processes, one after another, each started from fresh copies of the
files. The effect of a place is up to a factor of 2.5.
"""

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from kmem.bench import peers
from kmem.bench.allocators import LIBKMEM, Allocator, preloadable
from kmem.bench.suite import choose_peers, own_options, tell_options
from kmem.bench.worker import Job, Series, machine, measure
from kmem.common.files import write_json
from kmem.common.tree import BUILD, build

WORKER = BUILD / "bench" / "micro"
PLACES = 6
TABLE_WIDTH = 270  # columns; a narrower terminal wraps lines, a cut figure is worse


# Operations of libkmem, each with the peers' operation that it is compared with. The best peer
# counts.
AGAINST_BEST = (
    ("malloc_burst/64", "malloc_burst/64"),
    ("malloc_many/64", "malloc_many/64"),
    ("malloc_many_mixed/64", "malloc_many_mixed/64"),
    ("malloc_pair/64", "malloc_pair/64"),
    ("kmem_cache_pair/64", "malloc_pair/64"),
    ("kmem_inline_pair/64", "malloc_pair/64"),
    ("kmem_view_pair/64", "malloc_pair/64"),
    ("call_pair/64", "malloc_pair/64"),
    ("malloc_remote/64", "malloc_remote/64"),
    ("aligned_pair/64", "aligned_pair/64"),
    ("realloc_moved/64", "realloc_moved/64"),
    ("realloc_inside/64", "realloc_inside/64"),
    ("usable_size/64", "usable_size/64"),
    ("malloc_pair/65536", "malloc_pair/65536"),
    ("kmem_cache_remote/64", "malloc_remote/64"),
)


def against_best(
    results: dict[str, dict[str, Series]], ours: str, theirs: str, apart: Collection[str] = ()
) -> str | None:
    """A line with the ratio of medians, or None if libkmem or all peers have no figure.

    The allocators in `apart` do not count as peers.
    """
    others = {
        name: tests[theirs].median
        for name, tests in results.items()
        if name != LIBKMEM.name and name not in apart
    }
    series = results[LIBKMEM.name].get(ours)
    if series is None or not others:
        return None
    best = min(others, key=lambda name: others[name])
    ratio = series.median / others[best]
    return f"{ours} of libkmem / {theirs} of the best other ({best}): {ratio:.3f}"


def job(allocator: Allocator, folder: Path) -> Job:
    """A worker that runs from copies of its files in the folder. The C library is not copied."""
    worker = Path(shutil.copy(WORKER, folder / allocator.name))
    if allocator.library is None:
        return Job(allocator.name, (worker,))
    library = Path(shutil.copy(allocator.library, folder / f"{allocator.name}.so"))
    return Job(allocator.name, (worker,), {"LD_PRELOAD": preloadable(library)})


def measure_in_places(
    allocators: Sequence[Allocator], rounds_each: int
) -> dict[str, dict[str, Series]]:
    """Figures as from `measure`, of so many rounds in each place."""
    results: dict[str, dict[str, Series]] = {}
    for _ in range(PLACES):
        with TemporaryDirectory(prefix="micro-", dir=WORKER.parent) as folder:
            jobs = [job(allocator, Path(folder)) for allocator in allocators]
            for name, tests in measure(jobs, rounds_each).items():
                for test, series in tests.items():
                    known = results.setdefault(name, {}).setdefault(test, Series(series.hz))
                    known.cycles.extend(series.cycles)
    return results


def as_document(
    results: dict[str, dict[str, Series]], rounds: int, absent: Sequence[str]
) -> dict[str, object]:
    """The result file. `cycles` and `ns` are medians of an operation."""
    rows = [
        {
            "name": name,
            "allocator": allocator,
            "cycles": round(series.median, 3),
            "ns": round(series.ns(series.median), 3),
            "cycles_min": round(series.minimum, 3),
            "ns_min": round(series.ns(series.minimum), 3),
        }
        for allocator, tests in results.items()
        for name, series in tests.items()
    ]
    return {
        "machine": machine(results),
        "options": own_options(),
        "rounds": rounds,
        "missing": list(absent),
        "results": rows,
    }


def table(title: str, results: dict[str, dict[str, Series]], *, nanoseconds: bool) -> Table:
    """A row for each test, a column for each allocator: median and (minimum) of an operation."""
    output = Table(title=title)
    output.add_column("operation", no_wrap=True)
    for allocator in results:
        output.add_column(allocator, justify="right", no_wrap=True)
    names = dict.fromkeys(name for tests in results.values() for name in tests)
    for name in names:
        cells = []
        for tests in results.values():
            series = tests.get(name)
            if series is None:
                cells.append("-")
                continue
            median, minimum = series.median, series.minimum
            if nanoseconds:
                median, minimum = series.ns(median), series.ns(minimum)
            cells.append(f"{median:.1f} ({minimum:.1f})")
        output.add_row(name, *cells, end_section=name.endswith("/1024"))
    return output


def show(
    console: Console,
    results: dict[str, dict[str, Series]],
    rounds: int,
    hardened: Collection[str],
) -> None:
    heading = f"median (minimum) of {rounds} rounds"
    console.print(table(f"TSC cycles an operation, {heading}", results, nanoseconds=False))
    console.print(table(f"ns an operation, {heading}", results, nanoseconds=True))
    for ours, theirs in AGAINST_BEST:
        if line := against_best(results, ours, theirs, hardened):
            console.print(line)
    console.print("Of a pair an operation is one allocation and one free; bench/micro.c says more.")
    tell_options(console)


def bench_micro(wanted_peers: str | None, rounds: int, json_file: Path | None) -> None:
    chosen = choose_peers(wanted_peers)
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    build()
    found, missing = peers.find(chosen, Console(stderr=True))
    for name, why in missing.items():
        console.print(f"{name} is missing: {why}", soft_wrap=True)
    allocators = [LIBKMEM, *(peer.allocator for peer in found)]
    rounds_each = -(-rounds // PLACES)
    rounds = rounds_each * PLACES  # what the figures are of
    results = measure_in_places(allocators, rounds_each)
    hardened = [allocator.name for allocator in allocators if allocator.hardened]
    try:
        write_json(json_file, as_document(results, rounds, list(missing)))
    finally:  # a full disk must not take the figures
        show(console, results, rounds, hardened)
