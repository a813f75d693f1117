# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Many replays of traces, several at once; their figures do not depend on that."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from kmem.common.errors import KmemError
from kmem.common.spread import run_all
from kmem.replay.costs import ASSUMED, read_costs
from kmem.replay.derived import add_derived
from kmem.replay.tool import run, tool_arguments

# Options of the library.
KERNEL = "classes=kernel,order_rule=5.10"
SLUB = f"engine=slub,sheaf_capacity=0,{KERNEL}"  # as kernels had it until 6.17

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


@dataclass(frozen=True)
class Job:
    """A replay."""

    trace: Path
    options: str  # of the library
    cpus: int | None = None  # of the trace
    repeat: int | None = None  # copies of the trace
    page_kib: int = 4
    moments: int = 0


def progress(items: Iterable[Item], what: str, total: int) -> Iterable[Item]:
    """The items, with a bar on standard error if that is a terminal."""
    console = Console(stderr=True)
    quiet = not console.is_terminal
    return track(items, what, total, console=console, transient=True, disable=quiet)


def replay(job: Job) -> dict[str, Any]:
    arguments = tool_arguments(job.options, job.cpus, None, job.repeat)
    if job.moments:
        arguments = [f"moments={job.moments}", *arguments]
    try:
        document, _ = run(job.trace, arguments, page_kib=job.page_kib)
    except KmemError as error:
        raise KmemError(f"{job.trace.name}, {job.options}: {error}") from None
    add_derived(document, read_costs(), ASSUMED)
    return document


def replay_all(jobs: Mapping[Key, Job], what: str) -> dict[Key, dict[str, Any]]:
    """The documents of all jobs, by their keys."""
    return dict(zip(jobs, run_all(what, list(jobs.values()), replay), strict=True))
