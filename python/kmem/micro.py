# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench micro`: single operations of each allocator, in interleaved rounds.

What is timed is said in bench/micro.c. One worker process an allocator lives
through the whole run; rounds are asked of the workers in turn, so that what
disturbs the machine disturbs all of them alike.
"""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from kmem.allocators import GLIBC, LIBKMEM, PEERS, Allocator
from kmem.setup import BUILD, KmemError, build, need_packages

WORKER = BUILD / "bench" / "micro"
TABLE_WIDTH = 110  # columns; a narrower terminal wraps lines, a cut figure is worse


@dataclass
class Series:
    """One figure of one allocator over all rounds."""

    hz: float  # counter ticks a second
    cycles: list[float] = field(default_factory=list)  # an operation, one value a round

    @property
    def median(self) -> float:
        return statistics.median(self.cycles)

    @property
    def minimum(self) -> float:
        return min(self.cycles)

    def ns(self, cycles: float) -> float:
        return cycles * 1e9 / self.hz


class Worker:
    """A process of bench/micro under one allocator."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        if allocator.library is not None:
            environment["LD_PRELOAD"] = str(allocator.library)
        self.process = subprocess.Popen(
            [WORKER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.hz = float(self._read_line().removeprefix("hz "))
        self.series: dict[str, Series] = {}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            status = self.process.wait()
            raise KmemError(f"the worker under {self.allocator.name} ended with status {status}")
        return line

    def round(self, *, keep: bool) -> None:
        """Run every test once; the first round only warms caches and heap."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        while (line := self._read_line()) != "done":
            name, cycles = line.split()
            if keep:
                self.series.setdefault(name, Series(self.hz)).cycles.append(float(cycles))


def measure(allocators: Sequence[Allocator], rounds: int) -> dict[str, dict[str, Series]]:
    """Series by allocator and test name."""
    workers: list[Worker] = []
    try:
        for allocator in allocators:
            workers.append(Worker(allocator))
        for number in track(
            range(rounds + 1), description="rounds", console=Console(stderr=True), transient=True
        ):
            for worker in workers:
                worker.round(keep=number > 0)
    finally:
        for worker in workers:
            worker.close()
    return {worker.allocator.name: worker.series for worker in workers}


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def as_json(results: dict[str, dict[str, Series]], rounds: int, absent: Sequence[str]) -> str:
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
    document = {
        "machine": {
            "processor": processor(),
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "cycles_per_second": round(max(s.hz for t in results.values() for s in t.values())),
        },
        "rounds": rounds,
        "missing": list(absent),
        "results": rows,
    }
    return json.dumps(document, indent=1) + "\n"


def table(title: str, results: dict[str, dict[str, Series]], *, nanoseconds: bool) -> Table:
    """A row a test, a column an allocator: median and (minimum) an operation."""
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


def bench_micro(rounds: int, json_file: Path | None) -> None:
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    if json_file is not None:
        try:
            json_file.touch()  # a minute of measuring should not end in this error
        except OSError as error:
            raise KmemError(f"--json {json_file}: {error.strerror}") from None
    build()
    try:
        need_packages(*(peer.package for peer in PEERS if peer.package))
    except KmemError:
        console.print("going on without them")
    wanted = [LIBKMEM, GLIBC, *PEERS]
    absent = [allocator for allocator in wanted if allocator.missing]
    for allocator in absent:
        console.print(f"{allocator.name} is missing: no {allocator.library}", soft_wrap=True)
    results = measure([a for a in wanted if not a.missing], rounds)
    if json_file is not None:
        json_file.write_text(as_json(results, rounds, [a.name for a in absent]))
    heading = f"median (minimum) of {rounds} rounds"
    console.print(table(f"TSC cycles an operation, {heading}", results, nanoseconds=False))
    console.print(table(f"ns an operation, {heading}", results, nanoseconds=True))
    if "mimalloc" in results:
        ours, theirs = (results[name]["malloc_burst/64"].median for name in ("libkmem", "mimalloc"))
        console.print(f"malloc_burst/64, libkmem / mimalloc: {ours / theirs:.3f}")
    console.print("An operation is one allocation and one free; bench/micro.c says more.")
