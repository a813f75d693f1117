# SPDX-License-Identifier: Apache-2.0 OR MIT
"""scripts/sampling_programs.py measures a program under load."""

from __future__ import annotations

import re
import shutil

import pytest
from kmem_command import script_output

pytestmark = [pytest.mark.full, pytest.mark.alone]


def test_each_interval_has_a_line() -> None:
    if shutil.which("redis-benchmark") is None:
        pytest.skip("there is no redis here")
    words = ["--program", "redis", "--rounds", "6"]
    printed = script_output("sampling_programs.py", *words, timeout=300)
    head, *lines = printed.splitlines()
    assert re.fullmatch(r"redis, 6 rounds of windows of \d+ ms of CPU time:", head)
    number = r"-?\d+\.\d\d"
    for size, line in zip(("512", "2048"), lines, strict=True):
        wanted = rf"  {size} KiB: {number}% \[{number}, {number}\], \d+ samples a second"
        assert re.fullmatch(wanted, line), line
