# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Workloads on the simulated machine, by build/tools/loads-4k; tools/loads describes them."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress

from kmem.common.errors import BadUsage, KmemError
from kmem.common.tree import BUILD
from kmem.common.waiting import waiting_threads
from kmem.replay.costs import read_costs

TOOL = BUILD / "tools" / "loads-4k"
CACHES = Path(__file__).parent / "load_caches.csv"

# A run on the simulated machine does not count these, or they have no place in its time.
NO_CLOCK = ("moved_objects", "page_scans", "block_scans")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Load:
    """A run: the load, its machine, and the options of the library."""

    name: str  # messages, exchange, packets, rings
    settings: Mapping[str, int | str]  # fields of struct settings in tools/loads/loads.h
    options: Sequence[str] = ()
    tool: Path = TOOL
    caches: Path = CACHES
    costs: Mapping[str, float] = field(default_factory=read_costs)

    def line(self) -> list[str]:
        costs = {name: cost for name, cost in self.costs.items() if name not in NO_CLOCK}
        words = {**self.settings, "options": ",".join(self.options), **costs}
        return [
            str(self.tool),
            self.name,
            str(self.caches),
            *(f"{name}={value}" for name, value in words.items()),
        ]


def run(load: Load) -> dict[str, Any]:
    """The tool's document; raises KmemError with its message."""
    if not load.tool.exists():
        raise KmemError(f"{load.tool} is missing; make build makes it where libzstd is installed")
    done = subprocess.run(load.line(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip() or f"status {done.returncode}"
        kind = BadUsage if done.returncode == BadUsage.status else KmemError
        raise kind(f"lab: {reason.removeprefix('loads: ')}")
    return dict(json.loads(done.stdout))


def allocator_ns(document: Mapping[str, Any], costs: Mapping[str, float]) -> float:
    """Modelled time of the allocator in the measured part: counts by their costs, and waiting."""
    counts = document["counts"]
    return float(
        counts["list_wait_ns"] + sum(costs.get(name, 0) * count for name, count in counts.items())
    )


def run_all(
    what: str, items: Sequence[Item], work: Callable[[Item], Result], weight: Callable[[Item], int]
) -> list[Result]:
    """The results in order; the heaviest begin first, on all CPUs, under a progress bar."""
    order = sorted(range(len(items)), key=lambda index: -weight(items[index]))
    results: dict[int, Result] = {}
    console = Console(stderr=True)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        waiting_threads(os.cpu_count()) as pool,
    ):
        bar = progress.add_task(what, total=sum(map(weight, items)))

        def one(index: int) -> None:
            results[index] = work(items[index])
            progress.advance(bar, weight(items[index]))

        for _ in pool.map(one, order):
            pass
    return [results[index] for index in range(len(items))]
