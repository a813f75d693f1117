# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Interleaved rounds: every row runs on every allocator, in a new order each round.

A round of a row is a run on each allocator. A round that other load disturbed is repeated, up to
REPEATS times for each missing round. Then the least disturbed rounds are taken, and the row says
how many of them were disturbed. An allocator on which a run fails takes no further part in that
row.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from kmem.bench.allocators import GLIBC, Allocator
from kmem.bench.timed import RunError, Sample, Watch
from kmem.common.figures import ROUNDS_FOR_BOUNDS, Ratio, ratios_to_best

REPEATS = 2

Report = Callable[[str], None]
Round = dict[str, Sample]  # by the allocator's name


@dataclass(frozen=True)
class Row:
    """A program to run, and the kind of work that it stands for."""

    name: str
    stands_for: str
    run: Callable[[Allocator], Sample]  # raises RunError
    memory_of: str = ""  # name of the process to take the peak of, if there are several


@dataclass
class Measured:
    """A row and its runs."""

    row: Row
    allocators: Sequence[Allocator]
    calm: list[Round] = field(default_factory=list)
    disturbed: list[Round] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # reason by the allocator's name
    output: str | None = None

    def warm_up(self) -> None:
        """Run once without counting: this brings files into memory, and gives the right output."""
        try:
            self.output = self.row.run(GLIBC).output
        except RunError as error:
            self.failures = {allocator.name: str(error) for allocator in self.allocators}

    def live(self) -> list[Allocator]:
        return [allocator for allocator in self.allocators if allocator.name not in self.failures]

    def run_on(self, allocator: Allocator) -> Sample:
        watch = Watch()
        sample = self.row.run(allocator)
        disturbed = watch.disturbed()
        if sample.output != self.output:
            raise RunError(f"gave another output: {first_difference(sample.output, self.output)}")
        return replace(sample, disturbed=disturbed)

    def measure(self, order: np.random.Generator, report: Report) -> None:
        """Run the row on each allocator that is left."""
        live = self.live()
        samples: Round = {}
        for index in order.permutation(len(live)):
            allocator = live[index]
            report(f"{self.row.name} on {allocator.name}")
            try:
                samples[allocator.name] = self.run_on(allocator)
            except RunError as error:
                self.failures[allocator.name] = str(error)
        if samples:
            spoiled = any(sample.disturbed for sample in samples.values())
            (self.disturbed if spoiled else self.calm).append(samples)

    def choose(self, rounds: int) -> list[Round]:
        """The rounds that count: calm rounds first, then rounds with the fewest disturbed runs."""
        fewest = sorted(
            self.disturbed, key=lambda samples: sum(s.disturbed for s in samples.values())
        )
        return (self.calm + fewest)[:rounds]

    def figures(self, rounds: int, value: Callable[[Sample], float]) -> dict[str, list[float]]:
        """A figure of each round, for each allocator that finished all rounds."""
        chosen = self.choose(rounds)
        names = [allocator.name for allocator in self.live()] if chosen else []
        return {name: [value(samples[name]) for samples in chosen] for name in names}


def first_difference(text: str, expected: str | None) -> str:
    """The first line that differs, shortened."""
    lines, others = text.splitlines(), (expected or "").splitlines()
    for line, other in zip(lines, others, strict=False):
        if line != other:
            return f"{line[:80]!r} instead of {other[:80]!r}"
    return f"{len(lines)} lines instead of {len(others)}"


@dataclass(frozen=True)
class Result:
    """A measured row, reduced to figures by the allocator's name."""

    name: str
    stands_for: str
    memory_of: str
    rounds: int
    disturbed_rounds: int
    failures: dict[str, str]
    medians: dict[str, Sample]  # median of each figure alone
    time: dict[str, Ratio]  # ratio to the fastest
    memory: dict[str, Ratio]  # ratio to the leanest
    over_time: dict[str, Ratio]  # of memory over time; empty if a run was too short for a sample


def reduce(measured: Measured, rounds: int) -> Result:
    chosen = measured.choose(rounds)
    hardened = [allocator.name for allocator in measured.allocators if allocator.hardened]

    def medians(value: Callable[[Sample], float]) -> dict[str, float]:
        figures = measured.figures(rounds, value)
        return {name: float(np.median(values)) for name, values in figures.items()}

    seconds, cpu = medians(lambda s: s.seconds), medians(lambda s: s.cpu_seconds)
    peak = medians(lambda s: s.peak_bytes)
    minor, major = medians(lambda s: s.minor_faults), medians(lambda s: s.major_faults)
    over_time = measured.figures(rounds, lambda s: s.mib_seconds)
    mib_seconds = medians(lambda s: s.mib_seconds)
    seen = all(value > 0 for values in over_time.values() for value in values)
    return Result(
        measured.row.name,
        measured.row.stands_for,
        measured.row.memory_of,
        len(chosen),
        sum(any(s.disturbed for s in samples.values()) for samples in chosen),
        dict(measured.failures),
        {
            name: Sample(
                seconds[name],
                cpu[name],
                round(peak[name]),
                round(minor[name]),
                round(major[name]),
                mib_seconds=mib_seconds[name],
            )
            for name in seconds
        },
        ratios_to_best(measured.figures(rounds, lambda s: s.seconds), hardened),
        ratios_to_best(measured.figures(rounds, lambda s: s.peak_bytes), hardened),
        ratios_to_best(over_time, hardened) if seen else {},
    )


def prefixed(report: Report, prefix: str, what: str) -> None:
    report(f"{prefix}: {what}")


def run_rows(
    rows: Iterable[Row],
    allocators: Sequence[Allocator],
    rounds: int,
    seed: int,
    report: Report,
    repeats: int = REPEATS,
) -> list[Measured]:
    """All rounds of all rows. The seed chooses the orders."""
    order = np.random.default_rng(seed)
    measured = [Measured(row, allocators) for row in rows]
    for row in measured:
        report(f"{row.row.name}, warm-up")
        row.warm_up()
    for number in range(1, rounds + 1):
        for row in measured:
            row.measure(order, partial(prefixed, report, f"round {number}"))
    for _ in range(repeats):
        for row in measured:
            for _ in range(rounds - len(row.calm)):
                row.measure(order, partial(prefixed, report, "again, it was disturbed"))
    return measured


def measure_rows(
    rows: Iterable[Row],
    allocators: Sequence[Allocator],
    rounds: int,
    seed: int,
    report: Report,
) -> list[Result]:
    """All rounds of all rows, reduced to figures."""
    return [reduce(row, rounds) for row in run_rows(rows, allocators, rounds, seed, report)]


def check_rounds(rounds: int) -> str:
    """A warning if there are too few rounds for bounds, else nothing."""
    if rounds >= ROUNDS_FOR_BOUNDS:
        return ""
    return f"{rounds} rounds; no row counts as over a bound with fewer than {ROUNDS_FOR_BOUNDS}"
