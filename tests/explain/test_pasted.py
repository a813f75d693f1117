# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tables in mails as archives give them away, of failed allocations, of vmstat, and in series."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from readings import read

from kmem.common.tree import build
from kmem.explain.answers import Machine, answer
from kmem.explain.facts import facts_of
from kmem.explain.files import read_files
from kmem.explain.kernel_forms import FAILED, SLABINFO, SLABINFO_1
from kmem.explain.leaks import growths
from kmem.explain.mail import decoded
from kmem.explain.notes import notes
from kmem.explain.tool_forms import VMSTAT, ZFS
from kmem.lab import orders

REPORTS = Path(__file__).parent / "reports"


@pytest.fixture(scope="module", autouse=True)
def tool() -> None:
    build(orders.TOOL)


def test_quoted_printable_lines_keep_their_numbers() -> None:
    lines = [
        "Subject: a table",
        "Content-Type: multipart/mixed;",
        '\tboundary="part"',
        "",
        "--part",
        "Content-Transfer-Encoding: 7bit",
        "",
        "a=3D1 stays",
        "--part",
        "content-transfer-encoding: quoted-printable",
        "Content-Type: text/plain",
        "",
        "kmalloc-64=C2=A0100=",
        " 128 =",
        "64",
        "b=3D1",
        "--part--",
        "c=3D1",
    ]
    found = decoded(lines)
    assert len(found) == len(lines)
    assert found[:7] == [""] * 7
    assert found[7] == "a=3D1 stays"
    assert found[12:15] == ["kmalloc-64\xa0100 128 64", "", ""]
    assert found[15:] == ["b=1", "", "c=3D1"]
    plain = ["Slab: 12 kB", "a=3D1"]
    assert decoded(plain) == plain
    # A line that goes on at the end of the text has what there is.
    assert decoded(["Content-Transfer-Encoding: quoted-printable", "", "a=3Db="])[2] == "a=b"


@given(st.lists(st.text(st.sampled_from('a:=3D- \t\n"Content-T'), max_size=30), max_size=12))
def test_any_mail_keeps_its_number_of_lines(lines: list[str]) -> None:
    texts = ["Content-Transfer-Encoding: quoted-printable", "", *lines]
    found = decoded(texts)
    assert len(found) == len(texts)
    assert not any("\n" in text for text in found[:2])


def test_a_name_in_words_is_one_name(tmp_path: Path) -> None:
    head = "slabinfo - version: 1.1\n"
    reading = read(tmp_path, head + "file lock cache        0     42     92    0    1    1\n")
    (cache,) = reading.tables[0].caches
    assert (reading.tables[0].form, cache.name, cache.objects) == (
        SLABINFO_1,
        "file lock cache",
        42,
    )
    # Words without six numbers are prose.
    reading = read(tmp_path, head + "size-32 1 2 32 1 1 1\nit took about 12 3 4 days\n")
    assert len(reading.tables[0].caches) == 1
    assert len(reading.unread) == 1


def test_a_failed_allocation_adds_up_its_nodes(tmp_path: Path) -> None:
    text = (
        "SLUB: Unable to allocate memory on node -1,\n gfp=0x2080020(GFP_ATOMIC)\n"
        "  cache: a, object size: 232, buffer size: 256,\n default order: 2, min order: 0\n"
        "  node 0: slabs: 854, objs: 42320, free: 0\n  node 1: slabs: 400,objs: 25360, free: 294\n"
    )
    reading = read(tmp_path, text)
    ((cache,),) = (table.caches for table in reading.tables)
    assert reading.unread == []
    assert reading.tables[0].form == FAILED
    assert (cache.slabs, cache.objects, cache.active) == (1254, 67680, 67680 - 294)
    # The slabs have 54 objects on average, so some are smaller than order 2: their bytes are open.
    assert (cache.order, cache.least_order, cache.pages_per_slab) == (2, 0, None)
    fact = facts_of(cache, 4096)
    assert fact.total is not None
    assert (fact.total.value, fact.total.how) == (67680 * 256, "computed")
    (line,) = notes(answer(reading.tables[0], Machine()))
    assert line.startswith("a: not even a single page was free")
    assert "or, for a request that cannot wait (GFP_ATOMIC) or wants one node," in line
    assert "294 c free objects lie on other nodes" in line
    assert "group" not in line


def test_what_a_failed_allocation_lacked(tmp_path: Path) -> None:
    text = (
        "SLAB: Unable to allocate memory on node 0 (gfp=0xd0)\n"
        "  cache: size-65536, object size: 65536, order: 4\n"
        "  node 0: slabs: 42/42, objs: 42/42, free: 0\n"
    )
    table = read(tmp_path, text).tables[0]
    (cache,) = table.caches
    assert (cache.slabs, cache.objects, cache.pages_per_slab) == (42, 42, 16)
    (line,) = notes(answer(table, Machine()))
    assert "no 16 r pages in a row" in line
    reading = read(tmp_path, "node 0: slabs: 1, objs: 2, free: 3\n" + text)
    assert [fault.line for fault in reading.unread] == [1]
    text = "cache: a(960:b), object size: 232, buffer size: 240, default order: 1, min order: 0\n"
    table = read(tmp_path, text).tables[0]
    assert "limit" in notes(answer(table, Machine()))[0]


def test_vmstat_rows_need_their_head(tmp_path: Path) -> None:
    head = "Cache                       Num  Total   Size  Pages\n"
    rows = "sighand_cache 66 66 1344 3\next4_inode_cache 32421 32432 1024 16\n"
    reading = read(tmp_path, head + rows + head + "size-32 2424 2599 32 113\n" + head + rows)
    assert [table.form for table in reading.tables] == [VMSTAT] * 2
    caches = reading.tables[0].caches
    # 32 bytes, 113 of which lie in a page beside the slab's own figures.
    assert [cache.pages_per_slab for cache in caches] == [1, 4, 1]
    assert facts_of(caches[1], 4096).slabs.value == 2027  # type: ignore[union-attr]
    reading = read(tmp_path, head + "a 5 4 32 113\nb 1 4 32 0\nc 1 1 8 1\n")
    assert [fault.line for fault in reading.unread] == [2, 3]
    reading = read(tmp_path, rows + head + "c 1 1 8 1\n")
    assert [cache.name for cache in reading.tables[0].caches] == ["c"]


def test_lines_of_several_caches_at_equal_times(tmp_path: Path) -> None:
    def line(name: str, count: int) -> str:
        slabs = f"{count // 64} {count // 64} 0"
        return f"{name} {count} {count} 64 64 1 : tunables 0 0 0 : slabdata {slabs}\n"

    counts = (64 * 300, 64 * 700, 64 * 4000)
    text = "".join(line(name, count) for name in ("kmalloc-64", "filp") for count in counts)
    tables = read(tmp_path, text).tables
    assert [[cache.name for cache in table.caches] for table in tables] == [
        ["kmalloc-64", "filp"]
    ] * 3
    facts = [{c.name: facts_of(c, 4096) for c in table.caches} for table in tables]
    assert {growth.name: growth.objects for growth in growths(facts)} == {
        "kmalloc-64": counts,
        "filp": counts,
    }
    # Further caches, the last of which has a line more than there are times: it begins a table.
    tables = read(tmp_path, text + line("a", 64) * 2 + line("b", 64) * 4).tables
    assert [len(table.caches) for table in tables] == [4, 4, 4]
    # Two times of a table whose first cache stands alone once are no series.
    tables = read(tmp_path, line("a", 64) * 2 + line("b", 64)).tables
    assert [len(table.caches) for table in tables] == [1, 2]


def test_growth_of_the_access_point(tmp_path: Path) -> None:
    reading = read(tmp_path, (REPORTS / "access-point-series.txt").read_text())
    assert {table.form for table in reading.tables} == {SLABINFO}
    last = reading.tables[-1].caches[0]
    assert (len(reading.tables), last.active) == (10, 5532)
    found = growths([{c.name: facts_of(c, 4096) for c in t.caches} for t in reading.tables])
    assert [growth.name for growth in found] == ["kmalloc-4096"]


def test_older_columns_of_zfs(tmp_path: Path) -> None:
    row = "zio_buf_512 0x0042 - 512 63 65536 - 0 0 0 - 6511 6504 7075 - 410193 366693 445676\n"
    (table,) = read(tmp_path, row).tables
    (cache,) = table.caches
    assert (table.form, cache.stride_bytes, cache.slabs, cache.active) == (ZFS, 512, 6511, 366693)
    assert cache.total_bytes == 6511 * 65536
    reading = read(tmp_path, row + row.replace("7075", "x"))
    assert "expected 12 numbers" in reading.unread[0].reason


def test_caches_of_memory_groups_are_named() -> None:
    for name, count in (("caches-of-groups", "3,646,503 r"), ("etcd-2017", "1,159,809 r")):
        (table,) = read_files([REPORTS / f"{name}.txt"]).tables
        (line,) = notes(answer(table, Machine()))
        assert f"kmem_cache has {count} objects in use" in line
    (table,) = read_files([REPORTS / "power-64k-boot.txt"]).tables
    assert notes(answer(table, Machine())) == []


def test_a_part_in_base64(tmp_path: Path) -> None:
    """All of it has the number of its first line. What is no text stays as it is."""
    row = "kmalloc-64 100 128 64 64 1 : tunables 0 0 0 : slabdata 2 2 0\n"
    body = base64.encodebytes((row + "words\n" + row.replace("kmalloc-64", "filp")).encode())
    heads = "From: a\nContent-Transfer-Encoding: base64\n\n"
    reading = read(tmp_path, heads + body.decode())
    assert [cache.name for cache in reading.tables[0].caches] == ["kmalloc-64", "filp"]
    assert [(fault.line, fault.reason) for fault in reading.unread] == [
        (4, "no line of a slab table")
    ]
    picture = base64.encodebytes(bytes(range(256))).decode().splitlines()
    lines = [*heads.splitlines(), *picture]
    assert decoded(lines)[3:] == picture
