# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench watch`: how much a reader of its registry slows a program down.

The program runs on one CPU and a reader on another. Time is cut into short windows. A round has
three, in a newly drawn order: without a reader; with a reader of a stopped process of that program;
with a reader of the running process. The last two windows differ only in the process that is read,
so their difference is the cost of being watched. The difference of the first two is the cost of a
busy neighbour on this machine, whatever the neighbour does. Throughput is the number of blocks that
the program makes in a window, by its own count; a round in which it made none in a window is taken
again, as the machine's other work kept it from running. A poll reads everything that `kmem info`
and `kmem top` read: all figures of all caches, and of the heap.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from kmem.bench.watched import Window, watched, windows_in_turn
from kmem.bench.workloads import WORKLOADS
from kmem.common.errors import BadUsage, KmemError
from kmem.common.figures import Ratio, median_of_ratios
from kmem.common.files import write_json
from kmem.common.tree import build
from kmem.live.registry.caches import read_caches
from kmem.live.registry.file import Registry
from kmem.live.registry.heap import read_heap

POLLED = ("mixed", "pareto", "batch random", "pipeline")
PARTS = ("median", "low", "high")  # of a ratio, in JSON
ENOUGH = 0.95  # share of the wanted polls; a warning tells of fewer
WORKER = np.dtype({"names": ["made"], "formats": ["<u8"], "offsets": [24], "itemsize": 128})
ENDLESS = 1000  # scale of the work, which at 1 takes a few seconds


@dataclass
class Measured:
    """Blocks that a program makes in a second; each list has a figure of each round."""

    name: str
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)  # the reader reads another process
    watched: list[float] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)  # a second, while it was watched

    @property
    def cost(self) -> Ratio:
        """Throughput while the program is watched, relative to that beside another's reader."""
        return median_of_ratios(self.watched, self.beside)

    @property
    def neighbour(self) -> Ratio:
        return median_of_ratios(self.beside, self.alone)


@dataclass(frozen=True)
class Program:
    process: subprocess.Popen[bytes]
    registry: Registry
    counts: npt.NDArray[np.void]  # of its threads, as they are now

    def made(self) -> int:
        return int(self.counts["made"].sum())


@contextlib.contextmanager
def running(name: str, cpu: int, seed: int) -> Iterator[Program]:
    """A workload that does not end, on this CPU, once it has warmed up."""
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    with tempfile.TemporaryDirectory() as directory:
        counts = Path(directory) / "counts"
        # Two threads on this CPU, so that objects pass from thread to thread.
        command = [*workload.command(2, ENDLESS, seed), f"progress={counts}"]
        with watched(f"bench watch: {name}", command, cpu) as (process, registry):
            yield Program(process, registry, np.memmap(counts, WORKER, "r"))


def poll(registry: Registry, rate: float, seconds: float) -> float:
    """Read at this rate for a time; the number of reads in a second."""
    start = time.monotonic()
    count = 0
    while True:
        read_caches(registry)
        read_heap(registry)
        count += 1
        now = time.monotonic()
        if now >= start + seconds:
            return count / (now - start)
        time.sleep(max(start + count / rate - now, 0))


def one_window(target: Program, read: Registry | None, rate: float, seconds: float) -> Window:
    """The blocks a second that the target makes while @read is read, and the polls a second."""
    before, start = target.made(), time.monotonic()
    polls = 0.0
    if read is None:
        time.sleep(seconds)
    else:
        polls = poll(read, rate, seconds)
    after, end = target.made(), time.monotonic()
    return (after - before) / (end - start), polls


def measure(name: str, rounds: int, rate: float, window: float, cpu: int, seed: int) -> Measured:
    with running(name, cpu, seed) as other:
        other.process.send_signal(signal.SIGSTOP)
        with running(name, cpu, seed) as target:
            read = (None, other.registry, target.registry)
            alone, beside, watched = windows_in_turn(
                f"bench watch: {name}",
                target.process,
                range(len(read)),
                rounds,
                seed,
                lambda side: one_window(target, read[side], rate, window),
            ).values()
    return Measured(
        name,
        alone=[blocks for blocks, _ in alone],
        beside=[blocks for blocks, _ in beside],
        watched=[blocks for blocks, _ in watched],
        polls=[polls for _, polls in watched],
    )


def percent(ratio: Ratio) -> str:
    """The throughput that is lost, and its interval."""
    return (
        f"{100 * (1 - ratio.median):.2f}% [{100 * (1 - ratio.high):.2f},"
        f" {100 * (1 - ratio.low):.2f}]"
    )


def as_document(measured: Measured) -> dict[str, Any]:
    return {
        "name": measured.name,
        "polls_per_second": float(np.median(measured.polls)),
        "blocks_per_second": {
            side: getattr(measured, side) for side in ("alone", "beside", "watched")
        },
        "watched_by_beside": [getattr(measured.cost, part) for part in PARTS],
        "beside_by_alone": [getattr(measured.neighbour, part) for part in PARTS],
    }


def bench_watch(rounds: int, rate: float, window: float, seed: int, json_file: Path | None) -> None:
    if not 1 <= rate <= 100_000:
        raise BadUsage(f"bench watch: --rate {rate:g}: expected 1 to 100000 polls a second")
    if not 0.01 <= window <= 10:
        raise BadUsage(f"bench watch: --window {window:g}: expected 0.01 to 10 seconds")
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise KmemError("bench watch: needs two CPUs, one for the reader and one for the program")
    build()
    console = Console(soft_wrap=True, highlight=False)
    reader, target = cpus[0], cpus[-1]
    os.sched_setaffinity(0, {reader})
    load = os.getloadavg()[0]
    console.print(
        f"Programs on CPU {target}, {rate:g} polls a second from CPU {reader}, {rounds} rounds of"
        f" windows of {window:g} s; throughput lost, with its 95% interval: by being watched, to"
        " that beside a reader of another process; and by such a reader, to that alone"
    )
    results = []
    for name in POLLED:
        measured = measure(name, rounds, rate, window, target, seed)
        results.append(measured)
        polls = float(np.median(measured.polls))
        short = "" if polls >= ENOUGH * rate else ", fewer than wanted"
        console.print(
            f"{name}: watched {percent(measured.cost)}, reader beside"
            f" {percent(measured.neighbour)}; {polls:.0f} polls a second{short}"
        )
    if load > 0.5:
        console.print(f"The machine was shared: load average {load:.1f} at the start.")
    write_json(
        json_file,
        {
            "rounds": rounds,
            "rate": rate,
            "window": window,
            "load_average": load,
            "workloads": [as_document(measured) for measured in results],
        },
    )
