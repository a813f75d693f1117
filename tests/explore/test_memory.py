# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The explorer's memory models find the weak outcomes that they allow, and no others; its reduction
runs each class of equal schedules once."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

EXPLORER = Path(__file__).resolve().parents[2] / "build/tests/explore/explore"
# The models that allow the outcome (scenarios/litmus.c).
ALLOWED: dict[str, set[str]] = {
    "mp_relaxed": {"ra"},
    "mp_release_acquire": set(),
    "mp_no_acquire": {"ra"},
    "mp_no_release": {"ra"},
    "mp_fences": set(),
    "mp_sequence": set(),
    "mp_no_sequence": {"ra"},
    "sb_release_acquire": {"tso", "ra"},
    "sb_fences": set(),
    "sb_add": {"ra"},
    "iriw_acquire": {"ra"},
    "iriw_fences": set(),
    "coherence": set(),
    "passed_on": set(),
}


@pytest.mark.parametrize("memory", ["sc", "tso", "ra"])
@pytest.mark.parametrize("name", ALLOWED)
def test_litmus(name: str, memory: str) -> None:
    if not EXPLORER.exists():
        pytest.skip(f"{EXPLORER} is not built: configure with -Dtests=true")
    # Four threads have too many schedules for more.
    preemptions = "1" if name.startswith("iriw") else "2"
    bounds = ["--preemptions", preemptions, "--delays", "2"]
    done = subprocess.run(
        [EXPLORER, f"litmus_{name}", "--memory", memory, *bounds],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (memory in ALLOWED[name]), done.stdout + done.stderr
    assert ("not true: " in done.stdout) == (memory in ALLOWED[name])


# Orders of each pair of accesses to a word of which one is a write: those without a cycle.
CLASSES = {"mp_relaxed": 3, "sb_release_acquire": 3, "iriw_acquire": 15, "coherence": 6}


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str) -> None:
    if not EXPLORER.exists():
        pytest.skip(f"{EXPLORER} is not built: configure with -Dtests=true")
    done = subprocess.run(
        [EXPLORER, f"litmus_{name}", "--all"], capture_output=True, text=True, check=True
    )
    found = re.search(r": all: (\d+) executions", done.stdout)
    assert found and int(found[1]) == CLASSES[name], done.stdout
