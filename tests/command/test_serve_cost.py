# SPDX-License-Identifier: Apache-2.0 OR MIT
"""scripts/serve_cost.py measures what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.alone


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], r"\d+\.\d% of a core, 3 processes, \d+ starts a second\n"),
        (["--profile"], r"\d+\.\d ms a look, with the profiler's own\n(.*\n)+.*ncalls(.*\n)+"),
    ],
)
def test_a_line(options: list[str], line: str) -> None:
    if not (ROOT / "build" / "src" / "libkmem-malloc.so").exists():
        pytest.skip("the library is not built")
    words = ["--processes", "3", "--rate", "2", "--seconds", "2", *options]
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "serve_cost.py", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(line, done.stdout), done.stdout
