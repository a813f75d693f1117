# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a program on engine slob makes resident of the library's own tables."""

from __future__ import annotations

import subprocess
import sys

from kmem.bench.allocators import LIBKMEM

RESIDENT_BSS = """
lines = open("/proc/self/smaps").read().splitlines()
heads = [n for n, line in enumerate(lines) if line.split()[0].count("-") == 1 and ":" in line]
heads = [n for n in heads if not lines[n].split()[0].endswith(":")]
ours = [n for n in heads if "libkmem-malloc" in lines[n]]
behind = heads[heads.index(ours[-1]) + 1]
rss = next(line for line in lines[behind:] if line.startswith("Rss:"))
print(rss.split()[1] if len(lines[behind].split()) == 5 else "other")
"""


def test_engine_slob_leaves_its_tables_untouched() -> None:
    """Tables of nine lists are 216 KiB; the three that there are write to a third of them."""
    resident = {}
    for options in ("", "engine=slob"):
        done = subprocess.run(
            [sys.executable, "-S", "-c", RESIDENT_BSS],
            env={"LD_PRELOAD": str(LIBKMEM.library), "KMEM_OPTIONS": options},
            capture_output=True,
            text=True,
            check=True,
        )
        resident[options] = int(done.stdout)
    assert resident["engine=slob"] < resident[""] + 110
