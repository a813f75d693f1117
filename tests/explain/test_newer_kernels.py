# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures of what newer kernels print.

pasted/ has their texts, and test_carried.py looks at which lines are read; here are the numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from readings import PASTED, read, tables_of

from kmem.common.errors import KmemError


def test_objects_in_use_of_a_failed_allocation() -> None:
    """Free objects are the others of "used/all" where the kernel does not count them."""
    ((slab, slub),) = (table.caches for table in tables_of("failed-without-free"))
    assert (slab.slabs, slab.objects, slab.active) == (121 + 21, 1936 + 336, 1913 + 336)
    assert (slub.slabs, slub.objects, slub.active) == (41, 1312, 1305)


def test_a_node_without_any_count_of_free_objects(tmp_path: Path) -> None:
    """SLUB has always counted them, so such a line was cut."""
    text = (PASTED / "failed-without-free.txt").read_text().replace(", free: 7", "")
    reading = read(tmp_path, text)
    assert [cache.objects for cache in reading.tables[0].caches] == [2272, 0]
    assert reading.unread[-1].reason == "no line of a slab table"


ROW = "alpha 100 128 64 64 1 : tunables 0 0 0 : slabdata 2 2 0\n"
NODES = (
    "Node 0 Slab: 300 kB\nNode 0 SUnreclaim: 200 kB\nNode 1 Slab: 40 kB\nNode 1 SUnreclaim: 4 kB\n"
)


def test_memory_of_nodes_adds_up(tmp_path: Path) -> None:
    """A node alone is not the machine, whose own line counts if it is there."""
    summed = {"Slab": 340, "SUnreclaim": 204}
    assert read(tmp_path, NODES + ROW).tables[0].memory == summed
    for text in ("Slab: 350 kB\n" + NODES, NODES + "Slab: 350 kB\n"):
        assert read(tmp_path, text + ROW).tables[0].memory == {**summed, "Slab": 350}
    tables = read(tmp_path, (NODES + ROW) * 2).tables
    assert [table.memory for table in tables] == [summed, summed]


def test_columns_of_slabs_without_tunables(tmp_path: Path) -> None:
    """Of awk, of a memory image's reader, of a list; what does not add up is no row."""
    for text in (
        "alpha 100 128 64 64 1 2 2\n",
        "alpha 100 128 64 64 1 2 2 0\n",
        "| alpha | 100 | 128 | 64 | 64 | 1 | 2 | 2 |\n",
        "name,active_objs,num_objs,objsize,objperslab,pagesperslab,active_slabs,num_slabs\n"
        "alpha,100,128,64,64,1,2,2\n",
        ROW.replace(" :", ""),
    ):
        (table,) = read(tmp_path, text).tables
        (cache,) = table.caches
        assert (cache.name, cache.objects, cache.slabs) == ("alpha", 128, 2)
    for wrong in (
        "alpha 100 128 64 64 1 3 2",
        "alpha 100 128 64 64 1 1 1",
        "alpha 1 2 64 64 1 9 9",
    ):
        reading = read(tmp_path, ROW + wrong + "\n")
        assert [fault.line for fault in reading.unread] == [2]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("   127664128    31168 mm/page_ext.c:270 func:alloc_page_ext", "/proc/allocinfo"),
        ("[ 1.5] 51.1 MiB 3139 mm/slub.c:2319 func:alloc_slab_page", "/proc/allocinfo"),
        ("  512 4 drivers/a.c:7 [alpha] func:alpha_probe", "/proc/allocinfo"),
        ("Nov  3 10:00:01 host kernel: slab_unreclaimable 30600", "memory.stat"),
        ("   3124 alpha_alloc+0x1c/0x200 age=1/2/3 pid=1-4000 cpus=0-3", "alloc_calls"),
        ("7 alpha_alloc+0x1c/0x200 [alpha] waste=70/10 age=1 pid=1", "alloc_calls"),
        ("[ 1.0] excessive unreclaimable slab but cannot dump stats", "could not lock"),
        ("CACHE                            ALLOCS      BYTES", "slabratetop"),
        ("Name Objects Alloc Free %Fast Fallb O CmpX UL", "slabinfo -D"),
        ("unreferenced object 0xffff888100001400 (size 64):", "kmemleak"),
        ("unreferenced object (percpu) 0x605f0c (size 64):", "kmemleak"),
        ("STAT 1:chunk_size 96", "memcached"),
        ("Active:1234 inactive:567 dirty:0 free:890 slab:2345 mapped:12", "old out-of-memory"),
        (":at-0000104  <- alpha beta_cache", "slabinfo -a"),
        ("slab,host=a alpha_size=4096i,beta_1_size=0i 1651049129000000000", "telegraf"),
        ("ITEM                   SIZE  LIMIT     USED     FREE      REQ FAIL SLEEP", "FreeBSD"),
    ],
)
def test_reports_that_have_no_caches(line: str, reason: str, tmp_path: Path) -> None:
    """Beside a table and alone, below words that nobody knows."""
    reading = read(tmp_path, ROW + line + "\n")
    assert [reason in fault.reason for fault in reading.unread] == [True]
    with pytest.raises(KmemError, match="line 2: ") as error:
        read(tmp_path, f"some words\n{line}\n")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_sums_of_an_out_of_memory_report_alone(tmp_path: Path) -> None:
    sums = "[ 1.0]  slab_reclaimable:6574 slab_unreclaimable:123456\n"
    with pytest.raises(KmemError, match='expected its caches, below "Unreclaimable slab info:"'):
        read(tmp_path, "[ 1.0] Mem-Info:\n" + sums)
    with pytest.raises(KmemError, match="line 2: the kernel could not lock its list"):
        read(tmp_path, sums + "[ 1.0] excessive unreclaimable slab but cannot dump stats\n")


def test_the_log_of_a_router(tmp_path: Path) -> None:
    stamp = "Sun Nov  2 09:17:38 2025 kern.info kernel: [155610.130992] "
    lines = ("Unreclaimable slab info:", "Name Used Total", "alpha-256 1234KB 1300KB")
    for text in ("".join(f"{stamp}{line}\n" for line in lines), stamp + ROW):
        reading = read(tmp_path, text)
        assert reading.tables[0].caches[0].name.startswith("alpha")
        assert reading.unread == []


def test_words_for_lines_that_were_cut_out(tmp_path: Path) -> None:
    for line in ("**output-omitted**", "[... truncated ...]", "--- 30 rows", "(rows omitted)"):
        reading = read(tmp_path, ROW + line + "\n")
        expected = "no line of a slab table" if "30" in line else "lines were cut out here"
        assert [fault.reason for fault in reading.unread] == [expected]
