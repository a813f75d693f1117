# SPDX-License-Identifier: Apache-2.0 OR MIT
"""slabtop and vmstat as procps 4.0 translates them: heads say which sum is which.

languages.txt has the words of slabtop's four sums, of objects, slabs, caches and memory, then the
names of its columns, for each language; and the heads of `vmstat -m`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from readings import read

from kmem.common.errors import KmemError
from kmem.explain.tool_forms import SLABTOP, VMSTAT

BLOCKS = [
    block.splitlines()
    for block in (Path(__file__).parent / "languages.txt").read_text(encoding="utf-8").split("\n\n")
]
TOPS = {name.removeprefix("slabtop in "): words for name, *words in BLOCKS[:-1]}
VMSTAT_HEADS = BLOCKS[-1][1:]
COLUMNS = "OBJS ACTIVE USE OBJ SIZE SLABS OBJ/SLAB CACHE SIZE NAME"
ROW = "65536 40960 62% 0.06K 1024 64 4096K kmalloc-64\n"


@pytest.mark.parametrize("language", TOPS)
def test_sums_of_slabtop(language: str, tmp_path: Path) -> None:
    objects, slabs, caches, memory, columns = TOPS[language]
    text = (
        f" {objects}: 40960 / 65536 (62,5%)\n {slabs}: 1000 / 1024 (97,7%)\n"
        f" {caches}: 86 / 116 (74,1%)\n {memory}: 2560,00K / 4096,00K (62,5%)\n\n {columns}\n{ROW}"
    )
    reading = read(tmp_path, text)
    (table,) = reading.tables
    assert (table.form, reading.unread) == (SLABTOP, [])
    assert table.printed == {
        "active_objects": 40960,
        "objects": 65536,
        "active_slabs": 1000,
        "slabs": 1024,
        "active_caches": 86,
        "caches": 116,
        "active_bytes": 2560 * 1024,
        "bytes": 4096 * 1024,
    }


def test_sums_in_groups_of_digits(tmp_path: Path) -> None:
    """Only what has a unit is memory."""
    sums = " Active / Total Slabs (% used) : 4,321 / 5,321 (81.2%)\n"
    (table,) = read(tmp_path, f"{sums}{COLUMNS}\n{ROW}").tables
    assert table.printed == {"active_slabs": 4321, "slabs": 5321}


def test_a_word_that_is_not_known_names_no_sum(tmp_path: Path) -> None:
    (table,) = read(tmp_path, f"Wort / Wort (% viel): 86 / 116 (74,1%)\n{COLUMNS}\n{ROW}").tables
    assert table.printed == {}


@pytest.mark.parametrize("head", VMSTAT_HEADS)
def test_heads_of_vmstat(head: str, tmp_path: Path) -> None:
    rows = "dentry 42000 42021 192 21\ninode_cache 1300 1313 600 13\n"
    (table,) = read(tmp_path, f"{head}\n{rows}").tables
    assert (table.form, table.whole) == (VMSTAT, True)
    assert [(cache.objects, cache.pages_per_slab) for cache in table.caches] == [
        *((42021, 1), (1313, 2))
    ]
    # A sentence that ends in these words is none.
    with pytest.raises(KmemError):
        read(tmp_path, f"all this is said of {head}\n{rows}")
