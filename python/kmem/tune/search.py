# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The search: traces, goal, machine and costs, and how a trial is judged by its figures.

Time is modelled time; memory is the library's records, and the pages at the peak: of a program
those that are resident, of a kernel those in use.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmem.common.errors import KmemError
from kmem.common.files import state_of
from kmem.replay.costs import ASSUMED
from kmem.replay.derived import add_derived, memory_of, records_of
from kmem.replay.tool import tool_arguments
from kmem.tune.space import BY_ENGINE, COMMON, FIRST


@dataclass(frozen=True)
class Search:
    """The subject of a search; all of it is in the name of the study."""

    traces: tuple[Path, ...]
    states: Mapping[Path, tuple[int, ...] | None]  # of the traces and the tool as they were read
    contents: tuple[bytes, ...]
    programs: tuple[bool, ...]  # whether each is of a program, and not of a kernel
    tool: bytes
    goal: str
    seed: int
    batch: int
    options: str  # options that every set has
    machine: Mapping[str, int | None]  # cpus, nodes, repeat
    costs: Mapping[str, float]

    def name(self) -> str:
        space = {"common": COMMON, "engines": BY_ENGINE, "first": FIRST}
        identity = {
            "traces": [hashlib.sha256(content).hexdigest() for content in self.contents],
            "tool": hashlib.sha256(self.tool).hexdigest(),
            "goal": self.goal,
            "seed": self.seed,
            "batch": self.batch,
            "options": self.options,
            "machine": dict(self.machine),
            "costs": dict(self.costs),
            "space": space,
        }
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        more = f" and {len(self.traces) - 1} more" if len(self.traces) > 1 else ""
        # A name of a file is bytes, but SQLite takes text.
        first = os.fsencode(self.traces[0].name).decode(errors="replace")
        return f"{first}{more}, {self.goal}, seed {self.seed}, {digest[:16]}"

    def check_unchanged(self) -> None:
        """Raise KmemError if a replay that has just ended may have read another file.

        Its figures would be kept under a name that says whose they are.
        """
        for file, state in self.states.items():
            if state_of(file) != state:
                raise KmemError(
                    f"tune: {file}: changed since the search began; expected the same file to its"
                    " end"
                )

    def arguments(self, options: str) -> list[str]:
        machine = self.machine
        return tool_arguments(options, machine["cpus"], machine["nodes"], machine["repeat"])

    def figures(self, documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The figures of a trial that the study keeps, for each trace."""
        kept = []
        for trace, program, document in zip(self.traces, self.programs, documents, strict=True):
            add_derived(document, self.costs, ASSUMED)
            kept.append(
                {
                    "trace": trace.name,
                    "modelled_ns": document["modelled"]["ns"],
                    "peak_pages": document["peak"]["pages"],
                    "resident_pages": document["peak"]["resident_pages"],
                    "end_pages": document["end"]["pages"],
                    "metadata_bytes": records_of(document, program=program),
                    "memory_is": "resident" if program else "in use",
                    "memory_bytes": memory_of(document, program=program),
                }
            )
        return kept


def ratios_of(
    figures: Sequence[Mapping[str, Any]], defaults: Sequence[Mapping[str, Any]]
) -> tuple[float, float]:
    """Time and memory relative to the defaults, as geometric means over traces."""

    def mean(name: str) -> float:
        logarithms = [
            math.log(one[name] / other[name]) for one, other in zip(figures, defaults, strict=True)
        ]
        return round(math.exp(sum(logarithms) / len(logarithms)), 6)

    return mean("modelled_ns"), mean("memory_bytes")
