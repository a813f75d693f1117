# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem demo`: real programs on glibc's malloc and on libkmem, side by side.

Each program runs on each allocator in turn: a warm-up, then three rounds, of which the tables give
medians. Every run does identical work from identical input, and a program's output must not depend
on the allocator.
"""

import heapq
import shutil
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kmem.bench.allocators import GLIBC, LIBKMEM, Allocator
from kmem.bench.crates import WHERE, check_library
from kmem.bench.program_list import PROGRAMS
from kmem.bench.programs import Run
from kmem.bench.timed import TIMED, Sample
from kmem.common.errors import KmemError, say
from kmem.common.library_options import check_options, with_options
from kmem.common.tree import LIBRARY, build, need_packages
from kmem.traces.slabinfo import parse_slabinfo

NAMES = ("sqlite3", "python3", "gcc", "redis")
SCALE = 2.0
ROUNDS = 3
CACHES = 10  # that the demo shows

# Debian's redis-server is linked with jemalloc.
AS_SHIPPED = Allocator("as shipped", None)


@dataclass
class Shown:
    """A row of the tables. `run` takes additional environment variables."""

    name: str
    run: Run
    allocators: tuple[Allocator, ...]
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def median(self, allocator: str, value: Callable[[Sample], float]) -> float | None:
        samples = self.samples.get(allocator)
        return statistics.median(map(value, samples)) if samples else None


def prepare(folder: Path) -> list[Shown]:
    """The programs, in the order of NAMES. `demo` shows the caches of the last program."""
    known = {program.name: program for program in PROGRAMS}
    shown = []
    for name in NAMES:
        own = folder / name
        own.mkdir()
        compared = (AS_SHIPPED, GLIBC, LIBKMEM) if name == "redis" else (GLIBC, LIBKMEM)
        shown.append(Shown(name, known[name].prepare(own, SCALE), compared))
    return shown


def run_rounds(console: Console, programs: list[Shown], slabinfo: Path) -> None:
    """All rounds of all programs; the very last run writes its slab table."""
    for program in programs:
        outputs = set()
        for number in range(ROUNDS + 1):
            for allocator in program.allocators:
                extra = {}
                if (program, number, allocator) == (programs[-1], ROUNDS, LIBKMEM):
                    extra["KMEM_OPTIONS"] = with_options(f"slabinfo={slabinfo}")
                what = "warm-up" if number == 0 else f"round {number} of {ROUNDS}"
                if not console.is_terminal:  # Rich shows no status without a terminal
                    say(f"{program.name}: {what} on {allocator.name}")
                with console.status(f"{program.name}: {what} on {allocator.name}"):
                    sample = program.run(allocator, extra)
                outputs.add(sample.output)
                if len(outputs) > 1:
                    raise KmemError(f"{program.name} on {allocator.name} gave another output")
                if number > 0:
                    program.samples.setdefault(allocator.name, []).append(sample)


def table(title: str, programs: list[Shown], value: Callable[[Sample], float]) -> Table:
    output = Table(title=title)
    output.add_column("program")
    for heading in ("glibc", "libkmem", "libkmem / glibc", "as shipped"):
        output.add_column(heading, justify="right")
    for program in programs:
        glibc, libkmem = program.median("glibc", value), program.median("libkmem", value)
        shipped = program.median("as shipped", value)
        ratio = f"{libkmem / glibc:.3f}" if glibc and libkmem else "-"
        cells = ["-" if cell is None else f"{cell:.2f}" for cell in (glibc, libkmem)]
        output.add_row(program.name, *cells, ratio, "" if shipped is None else f"{shipped:.2f}")
    return output


def cache_table(title: str, text: str) -> Table:
    """The caches with most memory, of a table in /proc/slabinfo's format."""
    output = Table(title=title)
    output.add_column("cache")
    for heading in ("KiB of slabs", "slabs", "objects in use", "bytes of an object"):
        output.add_column(heading, justify="right")
    caches = parse_slabinfo(text)
    for cache in heapq.nlargest(CACHES, caches, key=lambda one: one.slabs * one.pages_per_slab):
        figures = (
            cache.slabs * cache.pages_per_slab * 4,
            cache.slabs,
            cache.active_objects,
            cache.object_size,
        )
        output.add_row(cache.name, *(f"{figure:,}" for figure in figures))
    return output


def run_demo() -> None:
    check_options("demo")
    console = Console()
    say("four programs, four runs on each allocator: about two minutes")
    need_packages(*(p for program in PROGRAMS if program.name in NAMES for p in program.packages))
    build(LIBRARY, TIMED, WHERE)
    assert LIBKMEM.library is not None
    check_library(LIBKMEM.library)
    folder = Path(tempfile.mkdtemp(prefix="kmem-demo-"))
    try:
        programs = prepare(folder)
        run_rounds(console, programs, folder / "slabinfo")
        title = f"caches with most memory at the end of the last run, {programs[-1].name}"
        console.print(cache_table(title, (folder / "slabinfo").read_text()))
        heading = f"median of {ROUNDS} rounds"
        console.print(table(f"time in seconds, {heading}", programs, lambda s: s.seconds))
        console.print(
            table(f"peak memory in MiB, {heading}", programs, lambda s: s.peak_bytes / (1 << 20))
        )
        console.print(
            "redis: time of redis-benchmark, memory of the server. Debian links it\n"
            "with jemalloc (as shipped); for glibc, libc itself is preloaded.\n"
            "gcc: memory of its largest process. python3: with PYTHONMALLOC=malloc.\n"
            "A program of yours: ./kmem run -- PROGRAM, and ./kmem top in another terminal.",
            highlight=False,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
