# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The model of the drain protocol holds, and each step of it that is left out is missed by it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parent / "drain.pml"


def errors(folder: Path, *left_out: str) -> int:
    """Errors that spin finds in all states of the model with two rounds of each thread."""
    if not shutil.which("spin"):
        pytest.skip("spin is not installed (Debian package spin)")
    macros = [f"-D{name}" for name in left_out]
    subprocess.run(["spin", "-DROUNDS=2", *macros, "-a", str(MODEL)], cwd=folder, check=True)
    subprocess.run(["gcc", "-w", "-DSAFETY", "-o", "pan", "pan.c"], cwd=folder, check=True)
    done = subprocess.run(
        ["./pan", "-m100000"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "error: max search depth too small" not in done.stdout
    found = re.search(r"errors: (\d+)", done.stdout)
    assert found, done.stdout + done.stderr
    return int(found[1])


def test_the_drain_protocol_holds(tmp_path: Path) -> None:
    assert errors(tmp_path) == 0


@pytest.mark.parametrize(
    "step", ["NO_STOP", "NO_STOP_CHECK", "NO_FIRST_FENCE", "NO_SECOND_FENCE", "NO_COMPARE"]
)
def test_each_step_is_needed(tmp_path: Path, step: str) -> None:
    assert errors(tmp_path, step) > 0
