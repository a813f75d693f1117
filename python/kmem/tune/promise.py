# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an option set promises of a program, in bytes and seconds, and as shares of its process.

A ratio of malloc's figures is no ratio of a process's: a process has its code, stacks and mappings,
and spends most of its time elsewhere. A difference is a figure of both. A replay gives equal
figures each time, and a program does not: its interval goes from the least to the most of several
recordings and further, by as much as replays have been wrong about programs that were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kmem.common.figures import Change, range_of

MIB = 1 << 20

# How wrong replays have been about the eight programs of kmem lab heaps, with four sets of options
# (docs/tuning.md): by pages of the library's own code and records that a program makes resident as
# it happens, and by a share of the heap: threads meet CPUs in another way each time, blocks are not
# written whole, and while freed pages wait for their way back the process reads more code, by its
# speed, so that its peak comes after the heap's. Six other programs, which had no part in these
# numbers, kept to half a MiB and 2% of the heap in 23 of 24 checks.
FIXED_BYTES = 0.5 * MIB
HEAP_SHARE = 0.03
# Assumed costs of a step are right by such factors. A program's own time is in no replay.
TIME_FACTORS = (0.1, 2.5)
# A page that becomes resident is a fault of up to so long, which no replay counts.
FAULT_SECONDS = 2.5e-6
PAGE_BYTES = 4096


@dataclass(frozen=True)
class Promise:
    """Changes from the defaults; memory that becomes less is negative."""

    peak_bytes: Change  # resident at the peak
    cpu_seconds: Change  # modelled

    def as_json(self) -> dict[str, Any]:
        return {
            "peak_bytes": self.peak_bytes.as_json(),
            "cpu_seconds": self.cpu_seconds.as_json(),
        }


def margin(defaults: Sequence[Mapping[str, Any]]) -> float:
    """Bytes by which the promise of memory may be wrong.

    A heap that differs from recording to recording differs so between two sets of options, too.
    """
    heaps = [float(one["memory_bytes"]) for one in defaults]
    return FIXED_BYTES + HEAP_SHARE * float(np.median(heaps)) + (max(heaps) - min(heaps)) / 2


def promise_of(
    figures: Sequence[Mapping[str, Any]], defaults: Sequence[Mapping[str, Any]]
) -> Promise:
    """By figures of a trial, of several traces of one program."""

    def change(name: str, unit: float) -> Change:
        return range_of(
            [(one[name] - other[name]) / unit for one, other in zip(figures, defaults, strict=True)]
        )

    memory, time = change("memory_bytes", 1), change("modelled_ns", 1e9)
    if memory.reach == time.reach == 0:
        return Promise(memory, time)  # the options change nothing
    ends = [end * factor for end in (time.low, time.high) for factor in TIME_FACTORS]
    least = min(ends) + min(0.0, memory.low) / PAGE_BYTES * FAULT_SECONDS
    most = max(ends) + max(0.0, memory.high) / PAGE_BYTES * FAULT_SECONDS
    return Promise(memory.wider(margin(defaults)), Change(time.median, least, most))


# Recordings do not say which bytes of a block were written, and a replay writes all of them.
UNWRITTEN = (
    "engine=slob: a replay counts blocks as written whole. A program that leaves parts of its large"
    " blocks unwritten may have less of both: gcc was promised 0.7 MiB less and had 0.2 less, and"
    " clang 2.0 MiB more and had 0.2 more."
)


def doubts_of(kmem_options: str) -> list[str]:
    """What is known to make a promise wrong, for the options that it was seen with."""
    return [UNWRITTEN] if "engine=slob" in kmem_options.split(",") else []


def signed(change: Change, unit: float, digits: int) -> str:
    """As -0.31 (-0.35 to -0.30); a single value without an interval."""
    middle, low, high = (
        f"{value / unit:+,.{digits}f}" for value in (change.median, change.low, change.high)
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def share_text(change: Change, whole: float | None) -> str:
    return "" if whole is None else f", {signed(change.share(whole), 0.01, 1)}% of it"


def lines_of(
    promise: Promise, traces: int, resident_bytes: float | None, cpu_seconds: float | None
) -> list[str]:
    """For people: in MiB and ms, and as shares of a process whose figures are known."""
    over = f", by {traces} traces" if traces > 1 else ""
    memory = signed(promise.peak_bytes, MIB, 2)
    time = signed(promise.cpu_seconds, 1e-3, 2)
    lines = [
        f"promise: {memory} MiB resident at the peak"
        f"{share_text(promise.peak_bytes, resident_bytes)}; {time} ms of CPU time, modelled"
        f"{share_text(promise.cpu_seconds, cpu_seconds)}{over}"
    ]
    missing = [
        option
        for option, value in (("--resident", resident_bytes), ("--cpu-seconds", cpu_seconds))
        if value is None
    ]
    if missing:
        lines.append(
            f"What share of the process that is, {' and '.join(missing)} of the program on the"
            " defaults tell" + ("s." if len(missing) == 1 else ".")
        )
    return lines
