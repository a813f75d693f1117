# SPDX-License-Identifier: Apache-2.0 OR MIT
"""scripts/serve_cost.py measures what it says."""

from __future__ import annotations

import re

import pytest
from kmem_command import script_output

pytestmark = pytest.mark.alone


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], r"\d+\.\d% of a core, 3 processes, \d+ starts a second\n"),
        (["--profile"], r"\d+\.\d ms a look, with the profiler's own\n(.*\n)+.*ncalls(.*\n)+"),
    ],
)
def test_a_line(options: list[str], line: str) -> None:
    words = ["--processes", "3", "--rate", "2", "--seconds", "2", *options]
    printed = script_output("serve_cost.py", *words, timeout=120)
    assert re.fullmatch(line, printed), printed
