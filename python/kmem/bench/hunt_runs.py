# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A point of `kmem bench hunt` on each allocator: how much work it is, and its figures."""

import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kmem.bench.allocators import GLIBC, Allocator
from kmem.bench.hunt_space import as_point
from kmem.bench.rounds import Report, Row, run_rows
from kmem.bench.timed import RunError, Sample, clean_environment, started
from kmem.bench.workloads import PROGRAMS
from kmem.common.errors import BadUsage
from kmem.common.tree import BUILD

DRAWN = PROGRAMS / "drawn"
LINE = BUILD / "bench" / "line"
REPEATS = 0  # of a round that other load disturbed; another point tells more
FIRST_SCALE = 0.01  # of the run that tells the pace
SCALES = (0.0005, 50.0)
TRIES = 4
STARTS = 0.002  # CPU seconds of a run that are no work
WAITING_MOST = 8  # times the time that it works: how long a run may wait, on a busy machine too
SLOWEST = 60  # times the length of a run; beyond it the run has failed


@dataclass(frozen=True)
class Found:
    """A point and the figures of each round, by the allocator's name."""

    words: str
    seconds: dict[str, list[float]]
    cpu_seconds: dict[str, list[float]]
    peak_bytes: dict[str, list[float]]
    disturbed_rounds: int
    failures: dict[str, str]
    # of a cache line between CPUs, before and after the rounds; a single CPU, and results of
    # older versions, have none
    line_ns: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, document: dict[str, Any]) -> "Found":
        """A point of a result file. Any usual error says that it is none."""
        names = [name for name in cls.__dataclass_fields__ if name in document]
        found = cls(**{name: document[name] for name in names})
        if not (isinstance(document["words"], str) and found.has_figures()):
            raise ValueError("expected a point")
        return found

    def has_figures(self) -> bool:
        """Whether all figures are of the same allocators and rounds, and are above zero."""
        by_name = (self.seconds, self.cpu_seconds, self.peak_bytes)
        rounds = [values for figures in by_name for values in figures.values()]
        return (
            all(figures.keys() == self.seconds.keys() for figures in by_name)
            and all(0 < len(values) == len(rounds[0]) for values in rounds)
            and all(0 < value < math.inf for values in [*rounds, self.line_ns] for value in values)
            and self.disturbed_rounds >= 0
            and all(isinstance(why, str) for why in self.failures.values())
        )


def line_ns() -> list[float]:
    """How long a cache line takes between CPUs now (bench/line.c); empty with a single CPU."""
    if len(os.sched_getaffinity(0)) < 2:
        return []
    done = subprocess.run([LINE], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(done.stderr.strip())
    return [float(done.stdout)]


def check_words(words: str) -> None:
    """Let the program refuse words, which costs a run of its smallest scale."""
    done = subprocess.run(
        [DRAWN, *words.split(), "scale=0.0001"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        raise BadUsage(f"bench hunt: {done.stderr.strip()}")


def run(folder: Path, words: Sequence[str], timeout: float, allocator: Allocator) -> Sample:
    with started(folder, [DRAWN, *words], allocator) as timed:
        return timed.wait(timeout=timeout)


def working_seconds(sample: Sample, threads: int) -> float:
    """How long a run would take on a machine without other load: its CPU time tells.

    Threads that wait for each other take longer than that; then the wall time tells.
    """
    parallel = min(threads, len(os.sched_getaffinity(0)))
    work = max((sample.cpu_seconds - STARTS) / parallel, STARTS / 10)
    return max(work, sample.seconds / WAITING_MOST)


def scale_for(folder: Path, words: Sequence[str], seconds: float) -> float:
    """The scale at which a run on glibc's malloc takes about this long; within SCALES."""
    scale = FIRST_SCALE
    threads = int(as_point(" ".join(words)).get("threads", 1))
    for _ in range(TRIES):
        sample = run(folder, [*words, f"scale={scale}"], SLOWEST * max(seconds, 1), GLIBC)
        work = working_seconds(sample, threads)
        scale = min(max(scale * seconds / work, SCALES[0]), SCALES[1])
        if work > seconds / 3:
            break
    return float(f"{scale:.3g}")


def measure(
    folder: Path,
    words: str,
    allocators: Sequence[Allocator],
    rounds: int,
    seconds: float,
    seed: int,
    report: Report,
) -> Found:
    """All rounds of a point; a run that fails is in `failures`."""
    try:
        if " scale=" not in f" {words}":
            report("looking for the scale")
            words += f" scale={scale_for(folder, words.split(), seconds)}"
    except RunError as error:
        return Found(words, {}, {}, {}, 0, {GLIBC.name: str(error)})
    before = line_ns()
    row = Row("drawn", words, partial(run, folder, words.split(), SLOWEST * max(seconds, 1)))
    (measured,) = run_rows([row], allocators, rounds, seed, report, REPEATS)
    return Found(
        words,
        measured.figures(rounds, lambda sample: sample.seconds),
        measured.figures(rounds, lambda sample: sample.cpu_seconds),
        measured.figures(rounds, lambda sample: sample.peak_bytes),
        sum(any(s.disturbed for s in samples.values()) for samples in measured.choose(rounds)),
        dict(measured.failures),
        before + line_ns(),
    )
