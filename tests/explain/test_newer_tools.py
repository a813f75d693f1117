# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures of forms that newer tools, and tools in other languages, print.

pasted/ has their texts, and test_carried.py looks at which lines are read; here are the numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from readings import PASTED, read, tables_of

from kmem.common.errors import KmemError
from kmem.explain.cache_forms import GDB
from kmem.explain.facts import facts_of, page_bytes_of
from kmem.explain.table import Cache, Table
from kmem.explain.tool_forms import CRASH


def total_of(table: Table, cache: Cache) -> float | None:
    fact = facts_of(cache, int(page_bytes_of(table).value))
    return fact.total.value if fact.total else None


def test_borrowed_slabs_have_no_memory_of_their_own() -> None:
    """The kernel's own table has their memory; a sum of both would count it twice."""
    (table,) = tables_of("borrowed-slabs-of-zfs")
    borrowed, own, _ = table.caches
    assert (borrowed.active, borrowed.stride_bytes, borrowed.used_bytes) == (253, 512, 253 * 512)
    assert [total_of(table, cache) for cache in table.caches] == [None, 16 << 20, None]
    assert (own.objects, own.active, own.slabs) == (16, 13, 2)


def test_a_cut_row_of_borrowed_slabs(tmp_path: Path) -> None:
    row = "alpha 0x00100 - 129536 - 512 - - - - 253 - - - -\n"
    reading = read(tmp_path, row + row.replace("253", "-"))
    assert [fault.reason for fault in reading.unread] == [
        "a line of /proc/spl/kmem/slab; expected 3 numbers between its dashes"
    ]


def test_rounded_memory_is_known_again() -> None:
    """Slabs of 1, 1, 8 and 8 pages; the head's sum is rounded, too."""
    (table,) = tables_of("german-slabtop")
    totals = [total_of(table, cache) for cache in table.caches]
    assert totals == [7302 * 4096, 479 * 4096, 1122 * 32768, 4 * 32768]
    assert table.printed["bytes"] == 63 << 20
    objects = sum((c.objects or 0) * (c.rounded_bytes or 0) for c in table.caches)
    assert objects == pytest.approx(table.printed["bytes"], rel=0.02)
    assert table.printed["objects"] == sum(c.objects or 0 for c in table.caches)


def test_rounded_memory_that_no_slabs_have(tmp_path: Path) -> None:
    """Three pages a slab are none, so the memory stays as it was printed."""
    (table,) = read(tmp_path, "300 300 100% 1.00K 1000 12 12Mi alpha\n").tables
    (cache,) = table.caches
    assert (cache.pages_per_slab, cache.total_bytes) == (None, 12 << 20)


def test_heads_in_another_language() -> None:
    (table,) = tables_of("ukrainian-slabtop")
    assert table.whole
    assert table.printed["bytes"] == 28461 * 1024
    assert table.printed["caches"] == 120


def test_words_with_shares_are_no_head(tmp_path: Path) -> None:
    row = "43812 42159 96% 0.62K 7302 6 29208K alpha\n"
    reading = read(tmp_path, row + "the OBJ/SLAB column is 6 here\nused (% of all): many / few x\n")
    assert [len(table.caches) for table in reading.tables] == [1]
    assert [fault.line for fault in reading.unread] == [2, 3]


def test_units_of_commands() -> None:
    """Those of the row, or what the last product is divided by; a head's rows are none."""
    first, later = tables_of("awk-in-megabytes")
    assert [cache.total_bytes for cache in first.caches] == [1931 << 20, 712 << 20, 64 << 20]
    assert [cache.total_bytes for cache in later.caches] == [8129 << 19, 7741 << 18]
    (table,) = tables_of("awk-twice")
    assert [cache.total_bytes for cache in table.caches] == [10**9, 112_700_000, 32768]


@pytest.mark.parametrize(
    ("printed", "row", "size"),
    [
        ("$1, $3*$4", "alpha 4096", 4096),
        ("$1, $2 * $4 / 1024", "alpha 4", 4096),
        ("$1, $4*$3/1024^2", "alpha 2", 2 << 20),
        ("$1, $3*$4/1024**3", "alpha 0.5", 1 << 29),
        ("$3*$4/1000, $1", "9 alpha", 9000),
        ('$3*$4/1048576 "MiB ", $1', "9MiB alpha", 9 << 20),
        ('$1 ": " $3*$4/1e6', "alpha: 1.5e+03", 1_500_000_000),
    ],
)
def test_a_command_says_what_its_rows_are(
    printed: str, row: str, size: int, tmp_path: Path
) -> None:
    (table,) = read(tmp_path, f"# awk '{{print {printed}}}' /proc/slabinfo\n{row}\n").tables
    assert [(cache.name, cache.total_bytes) for cache in table.caches] == [("alpha", size)]


def test_rows_without_their_command_are_none(tmp_path: Path) -> None:
    table = "alpha 100 128 64 64 1 : tunables 0 0 0 : slabdata 2 2 0\n"
    head = "# awk '{print $1, $3*$4}' /proc/slabinfo\n"
    for text in (table + "beta 4096\n", head + table + "beta 4096\n"):
        reading = read(tmp_path, text)
        assert [cache.name for table in reading.tables for cache in table.caches] == ["alpha"]
        assert len(reading.unread) == 1
    # Neither the command alone, nor one whose figures nothing says, makes a table.
    for text in (head, head + "words\n", "# awk '{print $1, $5}' /proc/slabinfo\nalpha 4\n"):
        with pytest.raises(KmemError):
            read(tmp_path, text)


def test_a_sum_below_the_rows(tmp_path: Path) -> None:
    head = "$ awk '{print $1, $3*$4/1024}' /proc/slabinfo\n"
    (table,) = read(tmp_path, head + "alpha 12\nbeta 4\nTotal: 16\n").tables
    assert [cache.name for cache in table.caches] == ["alpha", "beta"]
    assert table.printed == {"bytes": 16384}


def test_metrics_make_caches() -> None:
    (table,) = tables_of("node-exporter")
    assert [(cache.objects, cache.active, cache.per_slab) for cache in table.caches] == [
        (1_207_000, 1_206_000, 21),
        (5120, 5000, 512),
    ]
    assert table.memory == {"Slab": 235470848 >> 10}
    # Slabs are as many as the objects need: 57,477 and 10 pages.
    assert [total_of(table, cache) for cache in table.caches] == [57477 * 4096, 10 * 4096]


def test_metrics_of_hosts_and_times(tmp_path: Path) -> None:
    """Hosts are no times of each other. A figure again is of the next time."""
    line = 'node_slabinfo_objects{{instance="{}",slab="alpha"}} {}\n'
    text = "".join(line.format(host, count) for count in (7, 9) for host in ("a:9100", "b:9100"))
    tables = read(tmp_path, text).tables
    forms = [f"metrics of /proc/slabinfo (instance {host}:9100)" for host in "abab"]
    assert [table.form for table in tables] == forms
    assert [table.caches[0].objects for table in tables] == [7, 7, 9, 9]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('node_slabinfo_objects{slab="beta"} 1.5', "a metric of beta with '1.5'; expected a count"),
        ('node_slabinfo_objects{slab="beta"}', "a metric of beta with ''; expected a count"),
        ('node_slabinfo_objects{slab="beta"} 1e30', "a metric of beta with '1e30'"),
        ("node_slabinfo_objects 12", "a metric without a cache; expected a label slab"),
        (
            'node_slabinfo_colour{slab="beta"} 1',
            "a metric 'colour'; expected one of active_objects",
        ),
        ('node_slabinfo_objects{slab="be', "no line of a slab table"),
    ],
)
def test_metrics_that_cannot_be_read(line: str, reason: str, tmp_path: Path) -> None:
    reading = read(tmp_path, 'node_slabinfo_objects{slab="alpha"} 5\n' + line + "\n")
    assert [fault.line for fault in reading.unread] == [2]
    assert reason in reading.unread[0].reason


def test_sums_alone_are_named(tmp_path: Path) -> None:
    text = "Slabcache Totals\nMemory used: 27918336 # Loss : 500000 MRatio: 1%\n"
    with pytest.raises(KmemError, match="only the sums of a report"):
        read(tmp_path, text)


def test_addresses_with_their_base(tmp_path: Path) -> None:
    """Of crash's columns, and of the listing of gdb, which ends in objects and pages of a slab."""
    crash = "0xffff888100001400 512 5 64 1 32k kmalloc-512\n"
    older = "0xffff888100001400 kmalloc-512 512 5 64 1 32k\n"
    unknown = "0xffff888100001400 512 ? ? ? 32k kmalloc-512\n"
    for row in (crash, older, unknown):
        (table,) = read(tmp_path, row).tables
        (cache,) = table.caches
        assert (table.form, cache.name, cache.object_bytes) == (CRASH, "kmalloc-512", 512)
        assert cache.slab_bytes == 32768
    (table,) = read(tmp_path, "0xffff888100001400 kmalloc-512 60 64 512 64 8\n").tables
    assert (table.form, table.caches[0].per_slab) == (GDB, 64)


def test_an_arrow_at_the_end_of_a_line(tmp_path: Path) -> None:
    text = "Slab: 12 kB <--------\nalpha 1 2 64 64 1 : tunables 0 0 0 : slabdata 1 1 0 <==\n"
    reading = read(tmp_path, text)
    assert (reading.tables[0].memory, reading.unread) == ({"Slab": 12}, [])


@pytest.mark.parametrize(
    "name",
    [
        *("awk-in-megabytes", "awk-twice", "borrowed-slabs-of-zfs", "failed-without-free"),
        *("german-slabtop", "node-exporter", "tasks-of-phones", "ukrainian-slabtop"),
    ],
)
def test_cut_texts(name: str, tmp_path: Path) -> None:
    """Wherever a paste ends or begins, it is read or refused in one line."""
    text = (PASTED / f"{name}.txt").read_text()
    for at in range(0, len(text), len(text) // 40):
        for part in (text[:at], text[at:], text[:at] + text[at + 7 :]):
            try:
                read(tmp_path, part)
            except KmemError as error:
                assert "\n" not in str(error)


def test_a_cut_row_of_slabinfo_is_none_of_sdb(tmp_path: Path) -> None:
    """Five columns of either tool look alike, in another order."""
    head = "name entry_size objs mem_used util\n"
    (table,) = read(tmp_path, head + "alpha 1104 35224 37.1MB 99\n").tables
    assert [(cache.objects, cache.used_percent) for cache in table.caches] == [(35224, 99)]
    with pytest.raises(KmemError):
        read(tmp_path, "dentry 29484 192 5.7M 592\n")
    reading = read(tmp_path, head + "alpha 1104 35224 37.1MB 99\nbeta 192 100 18.8KB 120\n")
    assert [fault.line for fault in reading.unread] == [3]


def test_shares_are_of_a_whole(tmp_path: Path) -> None:
    head = "slab mem objs slabs\nused active active\n"
    reading = read(tmp_path, head + "alpha 104 MB 98.59% 100.00%\nbeta 109 MB 103.00% 100.00%\n")
    assert [cache.name for cache in reading.tables[0].caches] == ["alpha"]
    assert [(fault.line, fault.reason) for fault in reading.unread] == [
        (4, "shares of 103.00% and 100.00%; expected at most 100%")
    ]
