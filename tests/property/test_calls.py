# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Random sequences of all calls on every back end: contents stay, alignment is kept, bulk calls
give all or nothing, limits hold to the byte, counts are exact at rest (machine.py, model.py).

A heap is a process of its own, so a crash is shrunk as any other failure is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from heap import LIBRARY, Server
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import Calls

# Few objects in sheaves and arrays, so that short sequences get beyond them.
OPTIONS = [
    "engine=slub",
    "engine=slub,sheaf_capacity=4,cpu_partial=8",
    "engine=slab",
    "engine=slab,limit=6",
    "engine=slob",
    "engine=slub,debug=FZP",
]
MORE_OPTIONS = [
    *OPTIONS,
    "engine=slub,slots=locked,sheaf_capacity=3,check=sheaf,classes=kernel",
    "engine=slub,sheaf_capacity=0,cpu_partial=0,min_partial=0,purge_delay=0",
    "engine=slub,slub_min_order=2,sheaf_capacity=1,slot_cache_max=0,huge_cache_max=0",
    "engine=slub,freeze=eager,cpu_partial_accounting=objects,stats=1,sheaf_capacity=2",
    "engine=slub,numa_fake=2,sheaf_capacity=4",
    "engine=slub,debug=FZPU,numa_fake=2,slots=locked,classes=kernel,min_partial=0",
    "engine=slab,numa_fake=2,limit=4",
    "engine=slab,slots=locked,limit=3,check=sheaf,classes=kernel",
    "engine=slob,slots=locked,slob_breaks=300",
]


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if not LIBRARY.exists():
        pytest.fail(f"{LIBRARY} is missing: run `make build` first", pytrace=False)
    server = Server(request.param, tmp_path)
    yield server
    server.close()


def run(server: Server, options: str, *, examples: int, steps: int, random: bool) -> None:
    run_state_machine_as_test(
        lambda: Calls(server, options),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not random,
            database=None,
            deadline=None,
            print_blob=random,
            report_multiple_bugs=False,  # shrinking one takes minutes already
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(("server", "options"), [(o, o) for o in OPTIONS], indirect=["server"])
def test_calls(server: Server, options: str) -> None:
    """The same examples every time."""
    run(server, options, examples=100, steps=60, random=False)


@pytest.mark.full
@pytest.mark.parametrize(("server", "options"), [(o, o) for o in MORE_OPTIONS], indirect=["server"])
def test_more_calls(server: Server, options: str) -> None:
    """Others every time."""
    run(server, options, examples=300, steps=100, random=True)
