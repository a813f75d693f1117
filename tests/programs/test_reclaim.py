# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Memory comes back after most of a heap was freed, by threads that then sleep or by malloc_trim.

`bench/sleeping` allocates, frees 95% at random and says what stays resident. How fast that is, is
measured by the command in docs/decisions; here it has seconds.
"""

import pytest
from dropin import DEFAULT, LIBRARIES, LOCKED, DropIn
from settings import under

MIB = 1 << 20
SLEEPING = LIBRARIES.parent / "bench" / "sleeping"
# Tables of the heap: a page map entry and a descriptor a page, an index table a slab.
TABLES = 0.02

everywhere = under(DEFAULT, LOCKED, quick=(DEFAULT, LOCKED))


def figures(dropin: DropIn, *arguments: str) -> dict[str, int]:
    finished = dropin.run([SLEEPING, "bytes=256M", *arguments], minimum=100)
    assert finished.stderr == "", finished.describe()
    return {key: int(value) for key, value in (word.split("=") for word in finished.stdout.split())}


def check_live(found: dict[str, int]) -> None:
    """At most 1.5 times the live bytes and 16 MiB."""
    assert found["slept"] <= 1.5 * found["live"] + 16 * MIB, found
    assert found["full"] > 200 * MIB, found


def check_pages(found: dict[str, int]) -> None:
    """Against the pages that live blocks lie in, without which nobody can do who does not move."""
    assert found["slept"] <= found["pages"] + TABLES * found["full"] + 16 * MIB, found


@everywhere
@pytest.mark.parametrize("way", ["wait=5000", "threads=0 trim=1"], ids=["sleep", "trim"])
def test_blocks_of_pages_freed_at_random(dropin: DropIn, way: str) -> None:
    check_live(figures(dropin, *way.split()))


@everywhere
@pytest.mark.parametrize("way", ["wait=5000", "threads=0 trim=1"], ids=["sleep", "trim"])
def test_small_blocks_freed_in_runs(dropin: DropIn, way: str) -> None:
    check_live(figures(dropin, "least=16", "most=4096", "run=1048576", *way.split()))


@everywhere
@pytest.mark.parametrize("way", ["wait=5000", "threads=0 trim=1"], ids=["sleep", "trim"])
def test_small_blocks_freed_at_random(dropin: DropIn, way: str) -> None:
    check_pages(figures(dropin, "least=16", "most=4096", *way.split()))
