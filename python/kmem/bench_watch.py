# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench watch`: what a program pays for being watched.

The program runs on one CPU, alone and read from another CPU, in pairs whose order is drawn anew.
A poll is what `kmem info` and `kmem top` do: all figures of all caches, and of the heap.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from kmem.figures import Ratio, median_ratio
from kmem.registry import Registry, RegistryError, open_process
from kmem.setup import LIBRARY, KmemError, build, write_json
from kmem.suite import WORKLOADS
from kmem.timed import clean_environment

PAIRS_LEAST = 11
POLLED = ("mixed", "pipeline", "thread per request")
PARTS = ("median", "low", "high")  # of a ratio, in JSON
ENOUGH = 0.95  # of the wanted polls; fewer are said


@dataclass(frozen=True)
class Run:
    seconds: float
    cpu_seconds: float  # of the program alone, whatever else the machine did
    polls_per_second: float


@dataclass
class Measured:
    """A workload's runs, one of each list a pair."""

    name: str
    alone: list[Run] = field(default_factory=list)
    watched: list[Run] = field(default_factory=list)

    def ratio(self, figure: str) -> Ratio:
        return median_ratio(
            [getattr(run, figure) for run in self.watched],
            [getattr(run, figure) for run in self.alone],
        )

    @property
    def polls(self) -> float:
        return float(np.median([run.polls_per_second for run in self.watched]))


def is_running(process: int) -> bool:
    """Leaves a child that has ended to be waited for."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def open_when_made(process: int) -> Registry | None:
    """The registry of a program that has just been started; None if it ends before it has one."""
    while is_running(process):
        try:
            return open_process(process)
        except RegistryError:
            time.sleep(0.001)
    return None


def poll(registry: Registry, process: int, rate: float) -> tuple[int, float]:
    """Reads at the rate until the process ends; how often, and for how long."""
    count = 0
    start = time.monotonic()
    while is_running(process):
        registry.caches()
        registry.heap()
        count += 1
        pause = start + count / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
    return count, time.monotonic() - start


def run_once(command: Sequence[str], cpu: int, rate: float) -> Run:
    """One run on that CPU; with a rate of 0 nobody reads."""
    environment = clean_environment() | {
        "LD_PRELOAD": str(LIBRARY),
        "KMEM_OPTIONS": "registry=on",
    }
    start = time.monotonic()
    process = subprocess.Popen(
        ["/usr/bin/taskset", "--cpu-list", str(cpu), *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    polls, polled_seconds = 0, 0.0
    registry = open_when_made(process.pid) if rate else None
    if registry is not None:
        with registry:
            polls, polled_seconds = poll(registry, process.pid, rate)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise KmemError(f"bench watch: {command[0]} ended with status {process.returncode}")
    return Run(
        seconds=seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        polls_per_second=polls / polled_seconds if polled_seconds else 0.0,
    )


def measure(name: str, pairs: int, scale: float, rate: float, cpu: int, seed: int) -> Measured:
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    # Two threads on its one CPU: objects pass from one to the other.
    command = workload.command(2, scale, seed)
    measured = Measured(name)
    draw = np.random.default_rng(seed)
    run_once(command, cpu, 0)
    for _ in range(pairs):
        sides = [(measured.alone, 0.0), (measured.watched, rate)]
        for side in draw.permutation(2):
            runs, of_side = sides[side]
            runs.append(run_once(command, cpu, of_side))
    return measured


def percent(ratio: Ratio) -> str:
    return (
        f"{100 * (ratio.median - 1):+.2f}% [{100 * (ratio.low - 1):+.2f},"
        f" {100 * (ratio.high - 1):+.2f}]"
    )


def as_document(measured: Measured) -> dict[str, Any]:
    return {
        "name": measured.name,
        "polls_per_second": measured.polls,
        **{
            figure: {
                "alone": [getattr(run, figure) for run in measured.alone],
                "watched": [getattr(run, figure) for run in measured.watched],
                "ratio": [getattr(measured.ratio(figure), part) for part in PARTS],
            }
            for figure in ("seconds", "cpu_seconds")
        },
    }


def bench_watch(pairs: int, rate: float, scale: float, seed: int, json_file: Path | None) -> None:
    if pairs < PAIRS_LEAST:
        raise KmemError(f"bench watch: --pairs {pairs}: expected at least {PAIRS_LEAST}")
    if not 1 <= rate <= 100_000:
        raise KmemError(f"bench watch: --rate {rate:g}: expected 1 to 100000 polls a second")
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise KmemError("bench watch: needs two CPUs, one for the reader and one for the program")
    build()
    console = Console(soft_wrap=True, highlight=False)
    reader, target = cpus[0], cpus[-1]
    os.sched_setaffinity(0, {reader})
    load = os.getloadavg()[0]
    console.print(
        f"Programs on CPU {target}, {rate:g} polls a second from CPU {reader}, {pairs} pairs; what"
        " being watched adds, with its 95% interval"
    )
    results = []
    for name in POLLED:
        measured = measure(name, pairs, scale, rate, target, seed)
        results.append(measured)
        short = "" if measured.polls >= ENOUGH * rate else ", fewer than wanted"
        console.print(
            f"{name}: CPU time {percent(measured.ratio('cpu_seconds'))}, time"
            f" {percent(measured.ratio('seconds'))}; {measured.polls:.0f} polls a second{short}"
        )
    if load > 0.5:
        console.print(f"The machine was shared: load average {load:.1f} at the start.")
    write_json(
        json_file,
        {
            "pairs": pairs,
            "rate": rate,
            "load_average": load,
            "workloads": [as_document(measured) for measured in results],
        },
    )
