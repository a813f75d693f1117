# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The explorer's memory models find the weak outcomes that they allow, and no others."""

from __future__ import annotations

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
