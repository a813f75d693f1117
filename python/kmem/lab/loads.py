# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Workloads on the simulated machine, by build/tools/loads-4k; tools/loads describes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmem.common.errors import BadUsage, KmemError
from kmem.common.spread import run_all as run_all  # for the experiments that run loads
from kmem.common.spread import run_program
from kmem.common.tree import BUILD
from kmem.replay.costs import read_costs

TOOL = BUILD / "tools" / "loads-4k"
CACHES = Path(__file__).parent / "load_caches.csv"

# A run on the simulated machine does not count these, or they have no place in its time.
NO_CLOCK = ("moved_objects", "page_scans", "block_scans")


@dataclass(frozen=True)
class Load:
    """A run: the load, its machine, and the options of the library."""

    name: str  # of tools/loads: messages, rings, pairs and so on
    settings: Mapping[str, int | str]  # fields of struct settings in tools/loads/loads.h
    options: Sequence[str] = ()
    tool: Path = TOOL
    caches: Path = CACHES
    costs: Mapping[str, float] = field(default_factory=read_costs)

    def line(self) -> list[str | Path]:
        costs = {name: cost for name, cost in self.costs.items() if name not in NO_CLOCK}
        words = {**self.settings, "options": ",".join(self.options), **costs}
        return [
            self.tool,
            self.name,
            self.caches,
            *(f"{name}={value}" for name, value in words.items()),
        ]


def run(load: Load) -> dict[str, Any]:
    """The tool's document; raises KmemError with its message."""
    if not load.tool.exists():
        raise KmemError(f"{load.tool} is missing; make build makes it where libzstd is installed")
    done = run_program(load.line())
    if done.status != 0:
        reason = done.messages.strip() or f"status {done.status}"
        kind = BadUsage if done.status == BadUsage.status else KmemError
        raise kind(f"lab: {reason.removeprefix('loads: ')}")
    return dict(json.loads(done.output))


def allocator_ns(document: Mapping[str, Any], costs: Mapping[str, float]) -> float:
    """Modelled time of the allocator in the measured part: counts by their costs, and waiting."""
    counts = document["counts"]
    return float(
        counts["list_wait_ns"]
        + counts["barn_wait_ns"]
        + sum(costs.get(name, 0) * count for name, count in counts.items())
    )
