# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Slab memory at the moments of a hackbench: while it forks, passes messages and ends.

A mail says what it read during a hackbench and not when. `fit_share` finds the moment in one
setting; `mean_at` then says what the other settings have at that moment. A moment is a share of
the processes forked, of the messages passed, or of the processes ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

PHASES = ("forked", "messages", "ended")
FIELDS = ("run", "ns", *PHASES, "reaped", "slab_kib", "live_kib")

Curve = Mapping[str, Sequence[int]]
Moment = tuple[str, float]  # a phase and a share of it


def as_columns(points: Sequence[Mapping[str, int]]) -> dict[str, list[int]]:
    return {name: [point[name] for point in points] for name in FIELDS}


def phase_of(curve: Curve, index: int, processes: int) -> set[str]:
    """The phases that a sample lies in; the one between two phases lies in both."""
    forked, messages, ended = (curve[phase][index] for phase in PHASES)
    phases = set()
    if not messages and not ended:
        phases.add("forked")
    if forked == processes:
        phases |= {"messages", "ended"}
    return phases


def samples(curve: Curve, phase: str, run: int) -> list[tuple[float, int]]:
    """Shares of the phase, from 0 to 1, and the memory there in KiB."""
    processes = max(curve["forked"])
    chosen = [
        index
        for index, number in enumerate(curve["run"])
        if number == run and phase in phase_of(curve, index, processes)
    ]
    whole = max(curve[phase])
    return [(curve[phase][index] / whole, curve["slab_kib"][index]) for index in chosen]


def at(points: Sequence[tuple[float, int]], share: float) -> float:
    """Between two samples, on the straight line."""
    for (left, low), (right, high) in pairwise(points):
        if left <= share <= right and left < right:
            return low + (high - low) * (share - left) / (right - left)
    return float(points[0][1] if share < points[0][0] else points[-1][1])


def mean_at(curve: Curve, moment: Moment) -> float:
    """Memory in KiB, mean of the runs."""
    phase, share = moment
    runs = sorted(set(curve["run"]))
    return sum(at(samples(curve, phase, run), share) for run in runs) / len(runs)


def fit_share(curve: Curve, phase: str, kib: float) -> float | None:
    """Where the mean of the runs first passes @kib, to a thousandth; None if it never does."""
    runs = [samples(curve, phase, run) for run in sorted(set(curve["run"]))]
    means = [sum(at(points, step / 1000) for points in runs) / len(runs) for step in range(1001)]
    for step, (before, after) in enumerate(pairwise(means), start=1):
        if min(before, after) <= kib <= max(before, after):
            return step / 1000 if abs(after - kib) < abs(before - kib) else (step - 1) / 1000
    return None
