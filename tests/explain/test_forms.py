# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lines in the forms in which people paste them, and what around them is no table."""

from __future__ import annotations

import errno
import itertools
import os
import tarfile
from pathlib import Path

import pytest

from kmem.common.errors import KmemError
from kmem.explain.clean import clean
from kmem.explain.facts import facts_of
from kmem.explain.files import read_files
from kmem.explain.kernel_forms import SLABINFO, SYSFS
from kmem.explain.table import Cache, Figure, Reading, Table
from kmem.explain.tool_forms import CRASH, SLABINFO_TOOL

ROW = "kmalloc-64 100 128 64 64 1 : tunables 0 0 0 : slabdata 2 2 0"


def read(folder: Path, *texts: str) -> Reading:
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"{number}.txt")
        files[-1].write_text(text, encoding="utf-8")
    return read_files(files)


def only(folder: Path, text: str) -> Table:
    reading = read(folder, text)
    (table,) = reading.tables
    assert reading.unread == []
    return table


@pytest.mark.parametrize(
    "before",
    [
        "",
        "> > ",
        "[  178.502533] ",
        "[12345.678901][    T1] ",
        "Nov  3 10:00:01 host kernel: [  178.502533] ",
        "2024-11-03T10:00:01.123456+00:00 host kernel: ",
        "2024-11-03 10:00:01 ",
        "kern:    info: [2025-05-18T15:40:20.675652542Z]: ",
        "[Sun Nov  3 10:00:01 2024] ",
        "<6>[  178.502533] ",
        "**",
        "`",
        "/proc/slabinfo:",
        "monday/slabinfo.txt:17:",
        "| ",
        "\x1b[1m",
        "\t",
    ],
)
@pytest.mark.parametrize("behind", ["", "  ", "**", "` ", " |", " <==", "\x1b[0m", "\r"])
def test_what_is_around_a_line(before: str, behind: str, tmp_path: Path) -> None:
    table = only(tmp_path, f"{before}{ROW}{behind}\n")
    assert [(cache.name, cache.objects, cache.slabs) for cache in table.caches] == [
        ("kmalloc-64", 128, 2)
    ]


def test_names_keep_their_letters() -> None:
    for name in (":t-0000104", ":A-0000192", "size-64(DMA)", "page->ptl", "ip_vs_conn", "a&b"):
        assert clean(f"{name} 1 2") == f"{name} 1 2"


def test_a_folded_line(tmp_path: Path) -> None:
    words = ROW.split()
    for parts in ((6, 11), (4, 8, 12), (7,), (14,)):
        cuts = [0, *parts, len(words)]
        lines = [" ".join(words[a:b]) for a, b in itertools.pairwise(cuts)]
        table = only(tmp_path, "\n".join(lines))
        assert (table.caches[0].name, table.caches[0].per_slab) == ("kmalloc-64", 64)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            ROW.replace(" 128 ", " 12x ", 1),
            "a line of /proc/slabinfo with num_objs '12x': expected a number of at most 19 digits",
        ),
        (
            ROW.rsplit(" ", 1)[0],
            "a line of /proc/slabinfo with 10 numbers; expected 11",
        ),
        (
            ROW.replace("128", "9" * 20),
            f"a line of /proc/slabinfo with num_objs '{'9' * 20}': expected a number of at most"
            " 19 digits",
        ),
        ("words of a mail", "no line of a slab table"),
        ("...", "lines were cut out here"),
        ("kmalloc-64 \ufffd", "bytes that are no text in UTF-8"),
        ("x" * 5000, "5000 letters; expected at most 4000"),
        (
            "10 10 100% 1.00K 1 32 32Q kmalloc-1024",
            "a line of slabtop; expected OBJS ACTIVE USE SIZE SLABS OBJ/SLAB CACHE-SIZE NAME",
        ),
        (
            "ffff888100001400 512 5x 64 1 32k kmalloc-512",
            "a line of kmem -s with ALLOCATED '5x'; expected a number or ?",
        ),
    ],
)
def test_a_line_that_cannot_be_read(line: str, reason: str, tmp_path: Path) -> None:
    reading = read(tmp_path, f"{ROW}\n{line}\n")
    assert [(fault.line, fault.reason) for fault in reading.unread] == [(2, reason)]
    assert len(reading.tables[0].caches) == 1


def test_a_line_of_version_1_that_cannot_be_read(tmp_path: Path) -> None:
    text = "slabinfo - version: 1.1\ninode_cache 5 8 512 1 1 1\ndentry_cache 5 8 x 1 1 1\n"
    reading = read(tmp_path, text)
    assert [fault.reason for fault in reading.unread] == [
        "a line of /proc/slabinfo 1.1 with objsize 'x': expected a number of at most 19 digits"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing in it"),
        ("\n\n", "nothing in it"),
        ("hello\n", "line 1: no line of a slab table"),
        ("MemTotal: 5 kB\n", "/proc/meminfo alone"),
    ],
)
def test_a_file_without_a_table(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(KmemError, match="explain: ") as error:
        read(tmp_path, text)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_a_table(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(KmemError, match="no folder of a cache in it; expected a slab table"):
        read_files([tmp_path])


def test_a_folder_that_only_root_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /sys/kernel/slab: the folders of its caches are seen, and no attribute is read."""
    (tmp_path / "dentry").mkdir()
    (tmp_path / "dentry" / "order").write_text("0\n")

    def refuse(file: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), file)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(
        KmemError, match=r"no attribute of a cache could be read, .*/dentry/order: Permission"
    ):
        read_files([tmp_path])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KmemError, match=r"nothing\.txt: No such file or directory"):
        read_files([tmp_path / "nothing.txt"])


def test_moments_of_a_file(tmp_path: Path) -> None:
    """A head, or the first cache again, begins the next moment."""
    head = "slabinfo - version: 2.1\n"
    other = ROW.replace("kmalloc-64", "dentry")
    for text in (f"{head}{ROW}\n{other}\n" * 3, f"{ROW}\n{other}\n" * 3, f"{ROW}\n" * 3):
        reading = read(tmp_path, text)
        assert len(reading.tables) == 3
        assert len({len(table.caches) for table in reading.tables}) == 1


def test_meminfo_of_each_moment(tmp_path: Path) -> None:
    text = f"Slab: 10 kB\nslabinfo - version: 2.1\n{ROW}\n"
    reading = read(tmp_path, text + text.replace("10", "20"))
    assert [table.memory["Slab"] for table in reading.tables] == [10, 20]


def test_meminfo_in_a_file_of_its_own(tmp_path: Path) -> None:
    reading = read(tmp_path, f"{ROW}\n", "MemTotal: 9 kB\nSlab: 8 kB\nHugePages_Total: 0\n")
    assert reading.tables[0].memory == {"MemTotal": 9, "Slab": 8}
    assert reading.unread == []


def test_two_forms_in_a_file(tmp_path: Path) -> None:
    crash = "ffff888100001400 512 5 64 1 32k kmalloc-512"
    forms = [table.form for table in read(tmp_path, f"{ROW}\n{crash}\n").tables]
    assert forms == [SLABINFO, CRASH]


def test_losses_are_no_caches(tmp_path: Path) -> None:
    row = "dentry 100 192 20480 5/0/0 21 0 0 93 a"
    text = f"Slabcache Totals\nSlabs sorted by size (1)\n{row}\nSlabs sorted by loss (1)\n{row}\n"
    table = only(tmp_path, text)
    assert (table.form, len(table.caches)) == (SLABINFO_TOOL, 1)


def test_pasted_sysfs(tmp_path: Path) -> None:
    """`grep . */*`, with and without its folder; a count has its nodes behind it."""
    lines = ["order:1", "objs_per_slab:32", "slab_size:256", "objects:60 N0=40 N1=20"]
    lines += ["total_objects:64 N0=32 N1=32", "slabs:2 N0=1 N1=1", "reclaim_account:0", "ctor:"]
    for folder in ("", "./", "/sys/kernel/slab/"):
        table = only(tmp_path, "\n".join(f"{folder}kmalloc-256/{line}" for line in lines[:-1]))
        assert table.form == SYSFS
        assert table.caches == [
            Cache(
                "kmalloc-256",
                objects=64,
                active=60,
                stride_bytes=256,
                per_slab=32,
                pages_per_slab=2,
                slabs=2,
                reclaimable=False,
                file=str(tmp_path / "0.txt"),
                line=1,
            )
        ]
    reading = read(tmp_path, f"kmalloc-256/{lines[0]}\nkmalloc-256/slabs:many\n")
    assert [fault.reason for fault in reading.unread] == ["attribute slabs: cannot read 'many'"]


def test_a_cache_with_several_names_counts_once(tmp_path: Path) -> None:
    """In a folder the names are links; `grep . */*` follows them."""
    values = {"slabs": "3", "order": "0", "slab_size": "64", "objs_per_slab": "64"}
    folder = tmp_path / "slab"
    for name in (":0000064", "dentry"):
        (folder / name).mkdir(parents=True)
        for attribute, text in values.items():
            (folder / name / attribute).write_text(f"{text if name[0] == ':' else '5'}\n")
    for alias in ("anon_vma", "kmalloc-64"):
        (folder / alias).symlink_to(":0000064")
    expected = [("dentry", 5), ("kmalloc-64", 3)]
    (table,) = read_files([folder]).tables
    assert sorted((cache.name, cache.slabs) for cache in table.caches) == expected
    lines = [
        f"{place.name}/{file.name}:{file.read_text().strip()}"
        for place in sorted(folder.iterdir())
        for file in sorted(place.iterdir())
    ]
    found = only(tmp_path, "\n".join(lines)).caches
    assert sorted((cache.name, cache.slabs) for cache in found) == expected
    packed = tmp_path / "slab.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(folder, "slab")
    (table,) = read_files([packed]).tables
    assert sorted((cache.name, cache.slabs) for cache in table.caches) == expected


def test_a_folder_of_a_machine(tmp_path: Path) -> None:
    """As sosreport keeps it."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys/kernel/slab/dentry").mkdir(parents=True)
    (tmp_path / "sys/kernel/slab/dentry/slabs").write_text("3\n")
    (tmp_path / "proc/slabinfo").write_text(f"{ROW}\n")
    (tmp_path / "proc/meminfo").write_text("Slab: 9 kB\n")
    reading = read_files([tmp_path])
    assert {(table.form, table.memory["Slab"]) for table in reading.tables} == {
        (SLABINFO, 9),
        (SYSFS, 9),
    }


def test_a_slab_that_its_objects_do_not_fill(tmp_path: Path) -> None:
    """A thousand objects of 8 bytes leave room in 8 KiB for more, and no distance explains it."""
    table = only(tmp_path, "ffff888100001400 8 5 1000 1 8k short\n")
    assert facts_of(table.caches[0], 4096).stride == Figure(8, "computed")
    table = only(tmp_path, "ffff888100001400 256 5 51 1 16k nf_conntrack\n")
    assert facts_of(table.caches[0], 4096).stride == Figure(320, "computed")


def test_attributes_below_the_names_of_files(tmp_path: Path) -> None:
    """As `head` and `tail` print several files."""
    text = """\
==> /sys/kernel/slab/kmalloc-512/objs_per_slab <==
32

==> /sys/kernel/slab/kmalloc-512/slab_size <==
512

==> /sys/kernel/slab/kmalloc-512/slabs <==
46 N0=46
==> ./dentry/slabs <==
9 N0=9
"""
    table = only(tmp_path, text)
    assert [(cache.name, cache.slabs, cache.per_slab) for cache in table.caches] == [
        ("kmalloc-512", 46, 32),
        ("dentry", 9, None),
    ]


def test_rows_that_lost_the_ends_of_their_lines(tmp_path: Path) -> None:
    """As a chat has them. What is in front of the first row is no row."""
    other = ROW.replace("kmalloc-64", "dentry")
    table = only(tmp_path, f"{ROW} {other} {ROW.replace('kmalloc-64', 'filp')}\n")
    assert [cache.name for cache in table.caches] == ["kmalloc-64", "dentry", "filp"]
    table = only(
        tmp_path, "Unreclaimable slab info: Name Used Total\na 1KB 2KB b 3KB 4KB c 5KB 6KB\n"
    )
    assert [(cache.name, cache.total_bytes) for cache in table.caches] == [
        ("a", 2048),
        ("b", 4096),
        ("c", 6144),
    ]
    top = "  640   630  98%    0.50K     20       32      320K "
    table = only(tmp_path, f"{top}kmalloc-512 {top.strip()} dentry\n")
    assert [cache.name for cache in table.caches] == ["kmalloc-512", "dentry"]


def test_numbers_that_blanks_split_are_not_read(tmp_path: Path) -> None:
    """12 800 may be one number or two."""
    reading = read(tmp_path, f"{ROW}\n{ROW.replace('kmalloc-64 100 128', 'filp 12 800 12 928')}\n")
    assert [cache.name for cache in reading.tables[0].caches] == ["kmalloc-64"]
    assert [fault.line for fault in reading.unread] == [2]


def test_a_row_that_was_cut_takes_nothing_of_the_next(tmp_path: Path) -> None:
    head = "  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n"
    row = "640 630 98% 0.50K 20 32 320K"
    reading = read(tmp_path, f"{head}{row} a\n640 630 98% 0.50K 20 32\n{row} b\n")
    assert [cache.name for cache in reading.tables[0].caches] == ["a", "b"]
    assert [fault.line for fault in reading.unread] == [3]


def test_rows_in_two_columns_are_not_read(tmp_path: Path) -> None:
    """As `diff -y` has them: whose row is whose is not known."""
    later = ROW.replace(" 100 ", " 110 ")
    reading = read(tmp_path, f"{ROW}\n{ROW}   |   {later}\n")
    assert [len(table.caches) for table in reading.tables] == [1]
    assert [fault.line for fault in reading.unread] == [2]


def test_a_front_that_lines_share(tmp_path: Path) -> None:
    """Six columns look like nothing else only without what stands in front of them."""
    rows = [f"kmalloc-{8 << n} {100 + n} 512 {8 << n} {512 >> n} 1" for n in range(4)]
    for front in ("node7 slab: ", "12:00:01 INFO slabs - ", "; ", "rem "):
        table = only(tmp_path, "".join(f"{front}{row}\n" for row in rows))
        assert [cache.name for cache in table.caches] == [row.split()[0] for row in rows]
    # Lines that begin alike and are rows keep their begin.
    table = only(tmp_path, "".join(f"size-{n} 1 2 3 4 5 1 : 1 2\n" for n in range(5)))
    assert {cache.name for cache in table.caches} == {f"size-{n}" for n in range(5)}


def test_figures_of_a_report_without_their_begin(tmp_path: Path) -> None:
    row = "SlabObj:     256  Full   :     111   Redzoning     : Off  Used : 2004992"
    reading = read(tmp_path, f"{ROW}\n{row}\n")
    assert [fault.reason for fault in reading.unread] == [
        "figures of a cache; expected their first line before"
    ]


def test_caches_of_a_report(tmp_path: Path) -> None:
    """Each report has a line of its name; what a debugged cache has behind its objects is shown."""
    text = "".join(
        f"Slabcache: {name} Aliases: 0 Order : 1 Objects: {objects}\n"
        f"Object : 256 Total : 4 Sanity Checks : On Total: 32768\n"
        f"SlabObj: 320 Full : 1 Redzoning : On Used : {256 * objects}\n"
        f"SlabSiz: 8192 Partial: 2 Poisoning : Off Loss : 1\n"
        f"Loss : 64 CpuSlab: 1 Tracking : On Lalig: 1\n"
        f"Align : 8 Objects: 25 Tracing : Off Lpadd: 1\n"
        for name, objects in (("alpha", 70), ("beta", 80))
    )
    table = only(tmp_path, text)
    assert [(cache.name, cache.active, cache.debug) for cache in table.caches] == [
        ("alpha", 70, "FZU"),
        ("beta", 80, "FZU"),
    ]
    (cache, _) = table.caches
    assert (cache.object_bytes, cache.stride_bytes, cache.slab_bytes) == (256, 320, 8192)
    assert (cache.slabs, cache.partial_slabs, cache.cpu_slabs, cache.per_slab) == (4, 2, 1, 25)
    assert (cache.total_bytes, cache.used_bytes) == (32768, 256 * 70)


def test_bytes_of_windows_that_are_blanks(tmp_path: Path) -> None:
    file = tmp_path / "table.txt"
    file.write_bytes(ROW.replace(" ", "\u00a0").encode("cp1252") + b"\n\xe9t\xe9\n")
    reading = read_files([file])
    assert [cache.name for cache in reading.tables[0].caches] == ["kmalloc-64"]
    assert [fault.reason for fault in reading.unread] == ["bytes that are no text in UTF-8"]
