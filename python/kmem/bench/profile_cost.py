# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench profile`: how much sampling slows a program down, by interval.

The program is CPython with all its objects on malloc; it repeats a piece of work and counts it.
While it runs, this module switches sampling on and off from outside. Time is cut into windows. A
round has a window of each setting, in a newly drawn order, so that other load on the machine
disturbs all settings alike. Throughput is pieces of work for a second of the process's
CPU time, so time that other programs run on its CPU does not count.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import typer

from kmem.bench.watched import Window, watched, windows_in_turn
from kmem.common.errors import BadUsage
from kmem.common.figures import median_of_ratios
from kmem.common.files import write_json
from kmem.common.sizes import INTERVAL_MOST
from kmem.common.tree import build
from kmem.live.leases import set_value
from kmem.live.registry.file import Registry
from kmem.live.stacks import count_samples

INTERVALS = (2 << 20, 512 << 10, 128 << 10)
NOTHING = INTERVAL_MOST - 1  # an interval at which nothing is sampled
SETTLE_SECONDS = 0.2  # after a change: emptied sheaves are filled, pages purged or used again
PROGRAM = """
import json, mmap, sys
with open(sys.argv[1], "r+b") as file:
    count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
rows = [{"name": str(i), "values": list(range(i % 50)), "text": "x" * i} for i in range(500)]
while True:
    rows = json.loads(json.dumps(rows))
    table = {row["name"]: [str(value) for value in row["values"]] for row in rows}
    count[0] += 1
"""


@dataclass(frozen=True)
class Program:
    process: subprocess.Popen[bytes]
    registry: Registry
    count: npt.NDArray[np.uint64]  # of pieces of work, as it is now


@contextlib.contextmanager
def running(cpu: int) -> Iterator[Program]:
    """The program on this CPU, once it has warmed up."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "count"
        file.write_bytes(bytes(8))
        with watched(
            "bench profile: the program",
            [sys.executable, "-s", "-S", "-c", PROGRAM, str(file)],
            cpu,
            environment={"PYTHONHASHSEED": "1", "PYTHONMALLOC": "malloc"},
            writable=True,
        ) as (process, registry):
            yield Program(process, registry, np.memmap(file, np.uint64, "r"))


def cpu_seconds(process: int) -> float:
    """Time that all threads of a process have run."""
    files = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def one_window(program: Program, interval: int, seconds: float) -> Window:
    """Pieces of work and samples for a second of CPU time at this interval; 0 takes no samples.

    A new interval empties the sheaves and the end of a profile does not, so either kind of window
    begins with an interval at which nothing is sampled, and then has time to settle.
    """
    registry, count = program.registry, program.count
    set_value(registry, "profile_interval", NOTHING)
    set_value(registry, "profile_interval", interval)
    time.sleep(SETTLE_SECONDS)
    sampled = count_samples(registry)
    before, start = int(count[0]), cpu_seconds(registry.process)
    time.sleep(seconds)
    after, end = int(count[0]), cpu_seconds(registry.process)
    if start == end:
        return 0.0, 0.0
    samples = count_samples(registry) - sampled
    return (after - before) / (end - start), samples / (end - start)


def bench_profile(rounds: int, window: float, seed: int, json_file: Path | None) -> None:
    if not 0.1 <= window <= 10:
        raise BadUsage(f"bench profile: --window {window:g}: expected 0.1 to 10 seconds")
    build()
    with running(max(os.sched_getaffinity(0))) as program:
        taken = windows_in_turn(
            "bench profile: the program",
            program.process,
            (0, *INTERVALS),
            rounds,
            seed,
            lambda interval: one_window(program, interval, window),
        )
    throughput = {
        interval: [pieces for pieces, _ in windows] for interval, windows in taken.items()
    }
    samples = {
        interval: float(np.median([samples for _, samples in windows]))
        for interval, windows in taken.items()
    }
    typer.echo(
        f"Work for a second of CPU time that python3 on malloc loses by sampling, {rounds} rounds"
        f" of windows of {window:g} s, with its 95% interval"
    )
    result: dict[str, object] = {"rounds": rounds, "window": window, "program": PROGRAM}
    for interval in INTERVALS:
        ratio = median_of_ratios(throughput[interval], throughput[0])
        typer.echo(
            f"interval {interval >> 10:>5} KiB: {100 * (1 - ratio.median):.2f}%"
            f" [{100 * (1 - ratio.high):.2f}, {100 * (1 - ratio.low):.2f}],"
            f" {samples[interval]:.0f} samples a second"
        )
        result[str(interval)] = {
            "median": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
            "samples": samples[interval],
        }
    write_json(json_file, result)
