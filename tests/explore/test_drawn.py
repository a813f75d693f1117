# SPDX-License-Identifier: Apache-2.0 OR MIT
"""On drawn programs of loads, stores, read-modify-writes and locks the reduced search leaves the
same memories at each bound as the search of every schedule; without a bound, as that of classes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

EXPLORER = Path(__file__).resolve().parents[2] / "build/tests/explore/explore"
PREEMPTIONS = {"drawn_two": 3, "drawn_three": 1, "drawn_same_cpu": 2}


def compare(name: str, seed: int, *bounds: str) -> str:
    """What is printed; asserts that the searches agree."""
    if not EXPLORER.exists():
        pytest.skip(f"{EXPLORER} is not built: configure with -Dtests=true")
    done = subprocess.run(
        [EXPLORER, f"litmus_{name}", "--compare", *bounds],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "EXPLORE_DRAW": str(seed)},
    )
    assert done.returncode == 0, f"EXPLORE_DRAW={seed}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", PREEMPTIONS)
def test_bounded_searches_reach_the_same(name: str) -> None:
    bounds = ("--preemptions", str(PREEMPTIONS[name]))
    outputs = [compare(name, seed, *bounds) for seed in range(1, 13)]
    memories = [int(one) for text in outputs for one in re.findall(r"executions leave (\d+)", text)]
    assert max(memories) > 5, "the programs' threads meet"


@pytest.mark.parametrize("name", PREEMPTIONS)
def test_searches_without_a_bound_reach_the_same(name: str) -> None:
    for seed in range(1, 7):
        compare(name, seed, "--all")
