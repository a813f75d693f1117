# SPDX-License-Identifier: Apache-2.0 OR MIT
"""scripts/sampling_parts.py takes parts of a sample away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.full, pytest.mark.alone]


def test_each_part_has_a_line() -> None:
    if not (ROOT / "build" / "src" / "libkmem-malloc.so").exists():
        pytest.skip("the library is not built")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "sampling_parts.py", "--rounds", "12", "--pieces", "2"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head == "CPU time that sampling costs at 512 KiB, 12 rounds:"
    assert [line.split(":")[0] for line in lines] == [
        "a whole sample",
        "without functions in Python",
        "without a stack",
    ]
    number = r"-?\d+\.\d"
    for line in lines:
        wanted = rf"[^:]+: {number}% \[{number}, {number}\], mean {number}%, \d+ samples a second"
        assert re.fullmatch(wanted, line), line
