# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Worker processes that time operations, and their figures.

A worker is a program of bench/ that speaks the protocol of bench/cycles.h. All workers live through
the whole run, and the rounds go to each in turn, so that a disturbance of the machine affects all
workers alike.
"""

import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track

from kmem.common.errors import KmemError
from kmem.common.machine import processor


@dataclass
class Series:
    """A figure of a job over all rounds."""

    hz: float  # counter ticks a second
    cycles: list[float] = field(default_factory=list)  # of an operation, a value for each round

    @property
    def median(self) -> float:
        return statistics.median(self.cycles)

    @property
    def minimum(self) -> float:
        return min(self.cycles)

    def ns(self, cycles: float) -> float:
        return cycles * 1e9 / self.hz


@dataclass(frozen=True)
class Job:
    """A timing program to start. The caller's LD_PRELOAD does not reach it."""

    name: str
    command: tuple[str | Path, ...]
    environment: dict[str, str] = field(default_factory=dict)  # added to the caller's


class Worker:
    """The process of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        inherited = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self.process = subprocess.Popen(
            job.command,
            env=inherited | job.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hz = float(self._read_line().removeprefix("hz "))
        self.series: dict[str, Series] = {}

    def close(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            status = self.process.wait()
            raise KmemError(f"the worker of {self.job.name} ended with status {status}")
        return line

    def round(self, *, keep: bool) -> None:
        """Run every test once; the first round only warms caches and heap."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: the missing line reports that
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        while (line := self._read_line()) != "done":
            name, cycles = line.split()
            if keep:
                self.series.setdefault(name, Series(self.hz)).cycles.append(float(cycles))


def measure(jobs: Sequence[Job], rounds: int) -> dict[str, dict[str, Series]]:
    """Series by name of the job and of the test."""
    workers: list[Worker] = []
    try:
        for job in jobs:
            workers.append(Worker(job))
        console = Console(stderr=True)
        quiet = not console.is_terminal
        for number in track(
            range(rounds + 1), "rounds", console=console, transient=True, disable=quiet
        ):
            for worker in workers:
                worker.round(keep=number > 0)
    finally:
        for worker in workers:
            worker.close()
    return {worker.job.name: worker.series for worker in workers}


def machine(results: dict[str, dict[str, Series]]) -> dict[str, str | int | None]:
    """The machine that the figures were taken on, for result files."""
    return {
        "processor": processor(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "cycles_per_second": round(max(s.hz for t in results.values() for s in t.values())),
    }
