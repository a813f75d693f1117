# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Loads that `kmem lab synth` makes of slab tables."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmem.common.tree import ROOT
from kmem.explain.synth import Plan, Wanted, plan_of, synthesise
from kmem.explain.synth_check import check_report, table_of
from kmem.explain.table import Cache, Table
from kmem.lab.replays import Job, replay
from kmem.traces import file as tr
from kmem.traces.slabinfo import HEADER_LINE, VERSION_LINE

SLUB = "kernel=6.12"


def line(name: str, active: int, objects: int, size: int, each: int, pages: int) -> str:
    slabs = -(-objects // each)
    return (
        f"{name} {active} {objects} {size} {each} {pages} : tunables 0 0 0"
        f" : slabdata {slabs} {slabs} 0"
    )


TABLE = "\n".join(
    [
        VERSION_LINE,
        HEADER_LINE,
        line("dentry", 9000, 10500, 192, 21, 1),
        line("inode_cache", 2600, 2600, 608, 26, 4),
        line("empty", 0, 0, 64, 64, 1),
        line("kmalloc-cg-64", 640, 1280, 64, 64, 1),
        line("kmalloc-64", 3200, 3200, 64, 64, 1),
        "",
    ]
)


def kmem(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-E", "-P", "-m", "kmem", "lab", "synth", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def living(trace: tr.Trace) -> dict[str, int]:
    """Objects by cache at the end of a trace."""
    sign = pl.when(pl.col("operation") == tr.ALLOC).then(1).otherwise(-1)
    rows = trace.named().group_by("cache").agg(sign.sum().alias("live"))
    return dict(rows.select("cache", "live").iter_rows())


def test_the_steady_state_is_the_tables(tmp_path: Path) -> None:
    table, out = tmp_path / "slabinfo.txt", tmp_path / "load.ktrace"
    table.write_text(TABLE)
    done = kmem(table, "--out", out, "--cpus", "4")
    assert done.returncode == 0, done.stderr
    assert "on 4 CPUs; at the end 4 caches" in done.stderr
    rows = {row["name"]: row for row in replay(Job(out, SLUB))["caches"]}
    assert set(rows) == {"dentry", "inode_cache", "kmalloc-cg-64", "kmalloc-64"}
    for name, slabs, active in (
        ("dentry", 500, 9000),
        ("inode_cache", 100, 2600),
        ("kmalloc-cg-64", 20, 640),
        ("kmalloc-64", 50, 3200),
    ):
        row = rows[name]
        assert slabs <= row["slabs"] <= 1.25 * slabs, name
        # Half of a slab is free on each CPU, which the table counts as active.
        held = 4 * (row["objects_per_slab"] - 1) / 2
        assert row["inuse"] == pytest.approx(active - held, abs=4), name


def test_free_objects_are_in_slabs_with_others() -> None:
    """The partial share: no slab of the table is empty, although a third of its objects is free."""
    cache = Wanted("foo", 256, 16, slots=1600, live=1000, held=0)
    trace = synthesise([Plan((cache,), (), 1.0)], 1, calls=0)
    freed = set(trace.records.filter(pl.col("operation") == tr.FREE)["object"])
    born = trace.records.filter(pl.col("operation") == tr.ALLOC)["object"].to_list()
    assert len(born) == 1600
    assert len(freed) == 600
    for first in range(0, 1600, 16):
        assert set(born[first : first + 16]) - freed


def test_a_second_table_is_reached_from_the_first() -> None:
    first = Table("", "", 0, [Cache("foo", 320, 320, 128, per_slab=32), Cache("bar", 64, 64, 64)])
    second = Table("", "", 0, [Cache("foo", 640, 500, 128, per_slab=32)])
    trace = synthesise([plan_of(table, 2) for table in (first, second)], 2)
    assert living(trace) == {"foo": 500, "bar": 0}


def test_equal_seeds_give_equal_loads() -> None:
    table = Table("", "", 0, [Cache("foo", 320, 200, 128, per_slab=32)])
    one, again, other = (synthesise([plan_of(table, 2)], 2, seed=seed) for seed in (1, 1, 2))
    assert one.records.equals(again.records)
    assert not one.records.equals(other.records)


def test_a_smaller_load_has_the_tables_free_share() -> None:
    """Of 512 CPUs and pages of 64 KiB: slabs of CPUs are a part of all, in a smaller load too."""
    per_slab, slabs = 341, 40_000
    slots = per_slab * slabs
    cache = Cache("dentry", slots, slots - 7, 192, per_slab=per_slab, pages_per_slab=1)
    table = Table("", "", 0, [cache])
    whole = plan_of(table, 512, 65536, slots).caches[0]
    plan = plan_of(table, 512, 65536, 100_000)
    (small,) = plan.caches
    assert plan.share < 0.01
    assert small.slabs == round(slabs * plan.share)
    assert whole.held > 0
    assert small.live / small.slots == pytest.approx(whole.live / whole.slots, abs=0.01)
    assert living(synthesise([plan], 512, page_bytes=65536))["dentry"] == small.live


def test_a_large_table_is_made_smaller(tmp_path: Path) -> None:
    table, out = tmp_path / "slabinfo.txt", tmp_path / "load.ktrace"
    table.write_text(TABLE)
    done = kmem(table, "--out", out, "--cpus", "1", "--objects", "1758")
    assert done.returncode == 0, done.stderr
    assert "10% of the table's objects" in done.stderr
    assert sum(living(tr.read_trace(out)).values()) == pytest.approx(1544, rel=0.1)


def test_a_line_that_is_not_read_is_said(tmp_path: Path) -> None:
    """The cache of the line is not in the load."""
    table, out = tmp_path / "slabinfo.txt", tmp_path / "load.ktrace"
    table.write_text(TABLE.replace("inode_cache 2600", "inode_cache many"))
    done = kmem(table, "--out", out, "--cpus", "1")
    assert done.returncode == 0, done.stderr
    assert "at the end 3 caches" in done.stderr
    assert f"kmem: 1 line not read: {table}:4: " in done.stderr
    table.write_text(TABLE)
    assert "not read" not in kmem(table, "--out", out, "--cpus", "1").stderr


def test_the_name_of_a_table_may_be_any_bytes(tmp_path: Path) -> None:
    table, out = tmp_path / os.fsdecode(b"slab\xff.txt"), tmp_path / "load.ktrace"
    table.write_text(TABLE)
    done = kmem(table, "--out", out, "--cpus", "1")
    assert done.returncode == 0, done.stderr
    assert tr.read_trace(out).source == "kmem lab synth slab\ufffd.txt, seed 1"


def test_a_stream_keeps_what_its_file_had(tmp_path: Path) -> None:
    """Opened again, the file behind standard output was cut to nothing."""
    table, out = tmp_path / "slabinfo.txt", tmp_path / "load.ktrace"
    table.write_text(TABLE)
    assert kmem(table, "--out", out, "--cpus", "1").returncode == 0
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    words = [sys.executable, "-E", "-P", "-m", "kmem", "lab", "synth", table]
    with log.open("ab") as stream:
        subprocess.run(
            [*words, "--out", "/dev/stdout", "--cpus", "1"],
            stdout=stream,
            stderr=subprocess.DEVNULL,
            check=True,
            cwd=ROOT,
        )
    assert log.read_bytes() == b"before\n" + out.read_bytes()


FIGURE = st.integers(0, 3000)


@settings(max_examples=25, deadline=None)
@given(
    caches=st.lists(
        st.builds(
            Cache,
            st.sampled_from(["foo", "bar", "kmalloc-64", "kmalloc-cg-64"]),
            objects=st.none() | FIGURE,
            active=st.none() | FIGURE,
            stride_bytes=st.none() | FIGURE,
            per_slab=st.none() | st.integers(0, 64),
            pages_per_slab=st.none() | st.integers(0, 8),
            slabs=st.none() | FIGURE,
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda cache: cache.name,
    ),
    cpus=st.integers(1, 70),
    most=st.integers(1, 5000),
)
def test_any_table_gives_a_sound_load(
    tmp_path_factory: pytest.TempPathFactory, caches: list[Cache], cpus: int, most: int
) -> None:
    plan = plan_of(Table("", "", 0, caches), cpus, objects_most=most)
    if not plan.caches:
        return
    trace = synthesise([plan], cpus, calls=200)
    file = tmp_path_factory.mktemp("load") / "load.ktrace"
    tr.write_trace(file, trace)
    tr.read_trace(file)  # checks ids, CPUs and lives
    live = living(trace)
    for cache in plan.caches:
        plain = cache.name == "kmalloc-64" and cache.stride_bytes == 64
        assert live.get("kmalloc" if plain else cache.name, 0) == cache.live


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected SLABINFO, or --check"),
        (["TABLE"], "expected --out TRACE"),
        (["TABLE", "--out", "OUT", "--page-size", "5"], "--page-size 5: expected 4096"),
        (["TABLE", "--out", "OUT", "--quick"], "--quick is for --check"),
        (["TABLE", "--check"], "--check has tables of its own"),
        (["--check", "--cpus", "4"], "--cpus is for SLABINFO, not for --check"),
        (["--check", "--page-size", "4096"], "--page-size is for SLABINFO"),
        (["--check", "--objects", "10"], "--objects is for SLABINFO"),
        (["--check", "--calls", "0"], "--calls is for SLABINFO"),
        (["--check", "--seed", "2"], "--seed is for SLABINFO"),
        (["/nowhere", "--out", "OUT"], "kmem: lab synth: /nowhere: No such file"),
        (["DAMAGED", "--out", "OUT"], "DAMAGED: is cut off; expected a whole file"),
        (["TABLE", "--out", "/nowhere/x"], "--out /nowhere/x:"),
        (["EMPTY", "--out", "OUT"], "no cache with objects and a size"),
    ],
)
def test_wrong_words_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    for name, text in (
        ("TABLE", TABLE),
        ("EMPTY", "\n".join([VERSION_LINE, HEADER_LINE, line("empty", 0, 0, 64, 64, 1)])),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "DAMAGED").write_bytes(gzip.compress(TABLE.encode())[:-9])
    own = ("TABLE", "EMPTY", "DAMAGED", "OUT")
    places = [str(tmp_path / word) if word in own else word for word in words]
    done = kmem(*places)
    assert done.returncode != 0
    assert done.stderr.startswith("kmem: lab synth: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "OUT").exists()


def test_the_check_says_how_policies_are_ranked() -> None:
    document = check_report(quick=True).document
    assert len(document["rows"]) == 3
    for row in document["rows"]:
        pages, made = row["slab_pages"]
        assert pages <= made <= 1.25 * pages, row["trace"]
    assert document["summary"]["ns"]["least"] > 0.8
    assert document["summary"]["pages"]["least"] > 0.4


def test_the_checks_table_has_the_replays_figures() -> None:
    row = {
        "name": "foo",
        "objects": 320,
        "active": 300,
        "stride_bytes": 128,
        "objects_per_slab": 32,
        "order": 1,
        "slabs": 10,
    }
    (cache,) = table_of({"caches": [row, {**row, "slabs": 0}]}).caches
    assert (cache.objects, cache.active, cache.stride_bytes) == (320, 300, 128)
    assert (cache.per_slab, cache.pages_per_slab, cache.slabs) == (32, 2, 10)
