# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What an option set promises of a program, in bytes and seconds, and as shares of its process.

A ratio of malloc's figures is no ratio of a process's: a process has its code, stacks and mappings,
and spends most of its time elsewhere. A difference is a figure of both. Its interval goes from the
least to the most of several recordings, because a replay itself gives equal figures each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmem.common.figures import Change, range_of

MIB = 1 << 20


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


def promise_of(
    figures: Sequence[Mapping[str, Any]], defaults: Sequence[Mapping[str, Any]]
) -> Promise:
    """By figures of a trial, of several traces of one program."""

    def change(name: str, unit: float) -> Change:
        return range_of(
            [(one[name] - other[name]) / unit for one, other in zip(figures, defaults, strict=True)]
        )

    return Promise(change("memory_bytes", 1), change("modelled_ns", 1e9))


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
    over = f", from least to most of {traces} traces" if traces > 1 else ""
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
