# SPDX-License-Identifier: Apache-2.0 OR MIT
"""scripts/sampling_parts.py takes parts of a sample away."""

from __future__ import annotations

import re

import pytest
from kmem_command import script_output

pytestmark = [pytest.mark.full, pytest.mark.alone]


def test_each_part_has_a_line() -> None:
    printed = script_output("sampling_parts.py", "--rounds", "12", "--pieces", "2", timeout=300)
    head, *lines = printed.splitlines()
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
