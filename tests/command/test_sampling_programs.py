# SPDX-License-Identifier: Apache-2.0 OR MIT
"""scripts/sampling_programs.py measures a program under load."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.full, pytest.mark.alone]


def test_each_interval_has_a_line() -> None:
    if not (ROOT / "build" / "src" / "libkmem-malloc.so").exists():
        pytest.skip("the library is not built")
    if shutil.which("redis-benchmark") is None:
        pytest.skip("there is no redis here")
    words = ["--program", "redis", "--rounds", "6", "--part", "0.1"]
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "sampling_programs.py", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert re.fullmatch(r"redis, 6 rounds of windows of \d\.\d\d s of CPU time:", head)
    number = r"-?\d+\.\d\d"
    for size, line in zip(("512", "2048"), lines, strict=True):
        wanted = rf"  {size} KiB: {number}% \[{number}, {number}\], \d+ samples a second"
        assert re.fullmatch(wanted, line), line
