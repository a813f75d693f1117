# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay`: figures that follow from a trace by hand, sums that must agree on every back end,
the same document every time, and recorded boots beside the kernel's own slab table."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from traces import event, random_traces, trace_of

from kmem.common.errors import KmemError
from kmem.replay.costs import modelled_ns, read_costs
from kmem.replay.recorded import options_for
from kmem.traces import file as tr
from kmem.traces.slabinfo import HEADER_LINE, VERSION_LINE

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "build" / "tools" / "replay"
TRACES = Path(tr.__file__).parent
ENGINES = ["slub", "slab", "slob"]
PAGE = 4096


def tool(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOL, path, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def replay(path: Path, *arguments: str) -> dict[str, Any]:
    done = tool(path, *arguments)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def replay_trace(folder: Path, trace: tr.Trace, *arguments: str) -> dict[str, Any]:
    path = folder / "one.ktrace"
    tr.write_trace(path, trace)
    return replay(path, *arguments)


def kmem(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "kmem", "replay", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_sums_agree(document: dict[str, Any]) -> None:
    """Every byte of a slab page is asked for, or is waste of one kind."""
    end, waste = document["end"], document["waste_bytes"]
    kinds = ("rounding", "slab_tails", "partial_slabs", "per_cpu")
    assert end["slab_pages"] * PAGE == end["asked_bytes"] + sum(waste[kind] for kind in kinds)
    large = end["asked_large_bytes"] + waste["large_rounding"]
    assert end["large_pages"] * PAGE == large
    assert end["pages"] == end["slab_pages"] + end["large_pages"]
    assert document["peak"]["pages"] >= end["pages"]
    if "slob" not in document:
        assert sum(cache["pages"] for cache in document["caches"]) == end["slab_pages"]
    for cache in document["caches"]:
        states = cache["states"]
        assert sum(states.values()) == cache["slabs"]
        assert cache["inuse"] <= cache["active"] <= cache["objects"] or cache["engine"] == "slob"


# ---- By hand ------------------------------------------------------------------------------------


def test_no_events(tmp_path: Path) -> None:
    for engine in ENGINES:
        document = replay_trace(tmp_path, trace_of([]), f"options=engine={engine}")
        assert document["end"]["pages"] == document["peak"]["pages"] == 0
        assert document["counts"]["calls"] == 0


def test_slabs_of_a_cache(tmp_path: Path) -> None:
    """100 objects of 128 bytes are four slabs of 32; the last 36 leave one empty and one cut."""
    rows = [event(i, tr.ALLOC, i, 128, cache=2) for i in range(100)]
    rows += [event(100 + i, tr.FREE, 99 - i, 128, cache=2) for i in range(36)]
    options = "options=sheaf_capacity=0,cpu_partial=0,min_partial=0,slub_max_order=0"
    document = replay_trace(tmp_path, trace_of(rows, ["things"]), options)
    (cache,) = document["caches"]
    assert (cache["name"], cache["stride_bytes"], cache["objects_per_slab"]) == ("things", 128, 32)
    assert document["peak"]["pages"] == 4
    # The CPU slab stays, also without objects; slab 3 lost all of its objects and went.
    assert (cache["inuse"], cache["slabs"]) == (64, 3)
    assert cache["states"] == {"cpu": 1, "cpu_partial": 0, "partial": 0, "empty": 0, "full": 2}
    assert document["waste_bytes"]["per_cpu"] == 32 * 128
    assert document["counts"]["slow_calls"] == document["counts"]["calls"] == 136


def test_rounding_and_tails(tmp_path: Path) -> None:
    """A stride of 704 with 650 bytes asked for: five in a page, 576 bytes behind them."""
    rows = [(i, 650, 704, 1, i, 0, 0, 0, 2, tr.ALLOC) for i in range(5)]
    options = "options=sheaf_capacity=0,slub_max_order=0"
    document = replay_trace(tmp_path, trace_of(rows, ["things"]), options)
    assert document["caches"][0]["stride_bytes"] == 704
    assert document["waste_bytes"]["rounding"] == 5 * 54
    assert document["waste_bytes"]["slab_tails"] == PAGE - 5 * 704


def test_resident_pages(tmp_path: Path) -> None:
    """Slabs that fill a sheaf are in use and not resident; freed pages stay until they go back."""
    one = [event(0, tr.ALLOC, 0, 100)]
    peak = replay_trace(tmp_path, trace_of(one))["peak"]
    assert (peak["resident_pages"], peak["pages"] > 1) == (1, True)
    # A part of a large block is a page, and huge blocks are outside of the heap.
    rows = [event(0, tr.ALLOC, 0, 9 * PAGE + 1), event(1, tr.ALLOC, 1, 64 << 20)]
    for engine in ENGINES:
        peak = replay_trace(tmp_path, trace_of(rows), f"options=engine={engine}")["peak"]
        assert peak["resident_pages"] == 10 + (64 << 20) // PAGE

    def after(step_ns: int) -> int:
        """MiB: of two blocks of 8 MiB one is freed; a longer one comes when that may be back."""
        mib = 1 << 20
        few = mib + PAGE  # no class of pages, whose blocks would rest
        rows = [event(0, tr.ALLOC, i, 8 * mib) for i in range(2)] + [event(0, tr.FREE, 0, 8 * mib)]
        for i in range(2, 400):
            rows += [event(i * step_ns, tr.ALLOC, i, few), event(i * step_ns, tr.FREE, i, few)]
        rows.append(event(400 * step_ns, tr.ALLOC, 400, 16 * mib))
        peak = replay_trace(tmp_path, trace_of(rows))["peak"]
        assert peak["pages"] == 24 * mib // PAGE
        return int(peak["resident_pages"]) * PAGE // mib

    assert after(1) == 32
    assert 24 <= after(50_000_000) <= 28


def test_kept_blocks_are_not_in_use(tmp_path: Path) -> None:
    """A freed block that the heap keeps is in use neither at a moment nor at the peak."""
    # The block of 15 pages takes new ones, and the last finds those of the first.
    sizes = {0: 10, 1: 1, 2: 10, 3: 15, 4: 10}
    steps = [(tr.PAGE_ALLOC, 0), (tr.PAGE_ALLOC, 1), (tr.PAGE_ALLOC, 2), (tr.PAGE_FREE, 0)]
    steps += [(tr.PAGE_FREE, 2), (tr.PAGE_ALLOC, 3), (tr.PAGE_FREE, 3), (tr.PAGE_ALLOC, 4)]
    rows = [event(0, kind, number, sizes[number] * PAGE) for kind, number in steps]
    in_use = [10, 11, 21, 11, 1, 16, 1, 11]
    for engine in ENGINES:
        document = replay_trace(
            tmp_path, trace_of(rows), "moments=8", f"options=engine={engine},classes=kernel"
        )
        assert [moment["pages"] for moment in document["moments"]] == in_use
        assert [moment["large_pages"] for moment in document["moments"]] == in_use
        peak = document["peak"]
        assert (peak["pages"], peak["slab_pages"], peak["step"]) == (21, 0, 2)


def test_sizes_go_to_the_classes(tmp_path: Path) -> None:
    rows = [event(i, tr.ALLOC, i, 100) for i in range(3)]
    document = replay_trace(tmp_path, trace_of(rows), "options=classes=kernel")
    assert [cache["name"] for cache in document["caches"]] == ["kmalloc-128"]
    assert document["caches"][0]["inuse"] == 3
    document = replay_trace(tmp_path, trace_of(rows), "options=classes=fine")
    assert document["caches"][0]["stride_bytes"] == 112


def test_large_sizes_and_pages(tmp_path: Path) -> None:
    rows = [
        event(0, tr.ALLOC, 0, 100_000),
        event(1, tr.PAGE_ALLOC, 1, 2 * PAGE),
        event(2, tr.PAGE_ALLOC, 2, 3 * PAGE),
        event(3, tr.PAGE_FREE, 1, 2 * PAGE),
        event(4, tr.ALLOC, 3, 64 << 20),
        event(5, tr.FREE, 3, 64 << 20),
    ]
    for engine in ENGINES:
        trace = trace_of(rows, ["a kernel's"])
        document = replay_trace(tmp_path, trace, f"options=engine={engine}")
        assert document["end"]["large_pages"] == document["end"]["pages"] == 25 + 3
        assert document["peak"]["large_pages"] == 25 + 3 + (64 << 20) // PAGE
        assert document["peak"]["step"] == 4
        assert_sums_agree(document)


@pytest.mark.parametrize(
    ("options", "classes"),
    [("", True), ("engine=slab", False), ("engine=slob", False), ("classes=kernel", False)],
)
def test_programs_have_classes_of_pages(tmp_path: Path, options: str, classes: bool) -> None:
    """Blocks of 17 pages are malloc's objects of 20, of which one rests; kmalloc has none."""
    rows = [event(i, tr.ALLOC, i, 66_000) for i in range(100)] + [event(100, tr.FREE, 0, 66_000)]
    document = replay_trace(tmp_path, trace_of(rows), f"options={options}")
    assert ("kmalloc-80k" in [cache["name"] for cache in document["caches"]]) == classes
    assert_sums_agree(document)
    end = document["end"]
    assert (end["large_pages"], end["asked_large_bytes"]) == (
        (0, 0) if classes else (99 * 17, 99 * 66_000)
    )
    assert (end["pages"] >= 100 * 20) == classes
    assert document["peak"]["resident_pages"] == 100 * 17
    kernel = replay_trace(tmp_path, trace_of(rows, ["a kernel's"]), f"options={options}")
    assert kernel["end"]["large_pages"] == 99 * 17


@pytest.mark.parametrize(
    ("operation", "size"), [(tr.ALLOC, 200), (tr.ALLOC, 40_000), (tr.PAGE_ALLOC, 3 * PAGE)]
)
def test_unknown_requests_are_what_was_given(tmp_path: Path, operation: int, size: int) -> None:
    """Also of memory by size and of pages, as of objects of caches."""
    known = trace_of([event(0, operation, 0, size)])
    records = known.records.with_columns(requested=pl.lit(0, pl.UInt64))
    unknown = replace(known, records=records)
    document = replay_trace(tmp_path, unknown)
    assert document["end"]["pages"] > 0
    assert document == replay_trace(tmp_path, known)


def test_the_peak_may_come_beside_a_huge_block(tmp_path: Path) -> None:
    rows = [event(0, tr.ALLOC, 0, 64 << 20)]
    rows += [event(1 + i, tr.ALLOC, 1 + i, 4096, cache=2) for i in range(100)]
    rows += [event(101, tr.FREE, 0, 64 << 20)]
    rows += [event(102 + i, tr.ALLOC, 101 + i, 4096, cache=2) for i in range(20)]
    trace = trace_of(rows, ["pages"])
    document = replay_trace(tmp_path, trace, "options=sheaf_capacity=0,slub_max_order=0")
    assert document["peak"]["pages"] == (64 << 20) // PAGE + 100
    assert document["peak"]["step"] == 100
    assert document["end"]["pages"] == 120


def test_slob_counts_as_the_mail_does(tmp_path: Path) -> None:
    """kmalloc has a header of 8 bytes; objects of caches have none (S7-40, S7-43, S7.6)."""
    rows = [event(i, tr.ALLOC, i, 100) for i in range(10)]
    rows += [event(10 + i, tr.ALLOC, 10 + i, 96, cache=2) for i in range(10)]
    rows += [event(20, tr.ALLOC, 20, 5000), event(21, tr.ALLOC, 21, 5000, cache=3)]
    trace = trace_of(rows, ["small", "big"])
    document = replay_trace(tmp_path, trace, "options=engine=slob")
    assert document["end"]["allocated_bytes"] == 10 * 108 + 10 * 96
    assert document["end"]["large_pages"] == 2 + 2
    assert document["slob"]["used_pages"] == 1 + 4
    assert document["end"]["pages"] == document["slob"]["total_pages"]
    assert_sums_agree(document)


def test_orphans_are_left_out_and_implied_frees_are_not(tmp_path: Path) -> None:
    rows = [
        event(0, tr.ORPHAN, 0, 64),
        event(1, tr.ALLOC, 1, 64),
        event(2, tr.IMPLIED, 1, 64),
        event(3, tr.ALLOC, 2, 64),
    ]
    document = replay_trace(tmp_path, trace_of(rows))
    counts = document["trace"]
    assert (counts["allocations"], counts["frees"], counts["implied_frees"]) == (2, 1, 1)
    assert counts["orphans_left_out"] == 1
    assert sum(cache["inuse"] for cache in document["caches"]) == 1


def test_one_name_with_two_sizes_is_two_caches(tmp_path: Path) -> None:
    rows = [event(i, tr.ALLOC, i, 1000 + 200 * i, cache=2) for i in range(2)]
    document = replay_trace(tmp_path, trace_of(rows, ["UDP"]))
    assert [cache["name"] for cache in document["caches"]] == ["UDP", "UDP:1200"]


def test_many_sizes_of_a_name(tmp_path: Path) -> None:
    """Each size of each name is a cache of its own, however often it comes."""
    sizes = [8 * size for size in range(1, 1001)]
    rows = [
        event(0, tr.ALLOC, i, sizes[i // 2 % 1000], cache=2 + i % 2) for i in range(4 * len(sizes))
    ]
    document = replay_trace(tmp_path, trace_of(rows, ["one", "two"]))
    names = [
        name + again for again in ("", *(f":{n}" for n in sizes[1:])) for name in ("one", "two")
    ]
    assert [cache["name"] for cache in document["caches"]] == names
    assert {cache["inuse"] for cache in document["caches"]} == {2}


def test_more_sizes_of_a_name_than_caches(tmp_path: Path) -> None:
    """The tool's time goes with the records, and not with their number times that of sizes."""
    sizes, count = 65_000, 2_000_000
    numbers = pl.int_range(count, eager=True)
    given = 8 * (1 + numbers % sizes)
    columns = dict.fromkeys(tr.COLUMNS, pl.repeat(0, count, eager=True))
    columns |= {"object": numbers, "given": given, "cache": pl.repeat(2, count, eager=True)}
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, tr.Trace(pl.DataFrame(columns), ["kmalloc", "?", "c"], ["?"], count, 1))
    done = tool(path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "replay: cannot make cache c:" in done.stderr


def test_copies_use_cpus_of_their_own(tmp_path: Path) -> None:
    """On the other CPU a free takes the slab's word from the CPU that has it."""
    rows = []
    for i in range(400):
        rows.append(event(2 * i, tr.ALLOC, i, 128, cpu=0, cache=2))
    for i in range(400):
        rows.append(event(800 + i, tr.FREE, i, 128, cpu=1, cache=2))
    trace = trace_of(rows, ["things"], cpus=2)
    options = "options=sheaf_capacity=0"
    one = replay_trace(tmp_path, trace, options)
    assert one["counts"]["remote_words"] > 0
    on_one_cpu = replay_trace(tmp_path, trace, "cpus=1", options)
    assert on_one_cpu["counts"]["remote_words"] == 0
    assert on_one_cpu["counts"]["list_handed_over"] == 0
    many = replay_trace(tmp_path, trace, "cpus=8", "repeat=4", options)
    assert many["counts"]["calls"] == 4 * one["counts"]["calls"]
    assert many["machine"] == {
        "cpus": 8,
        "nodes": 1,
        "repeat": 4,
        "page_bytes": PAGE,
        "options": "sheaf_capacity=0",
    }
    # Without copies the other CPUs have nothing to do.
    idle = replay_trace(tmp_path, trace, "cpus=8", "options=sheaf_capacity=0,slub_min_objects=16")
    busy = replay_trace(tmp_path, trace, "cpus=2", "options=sheaf_capacity=0,slub_min_objects=16")
    assert idle["counts"] == busy["counts"]
    nodes = replay_trace(tmp_path, trace, "cpus=8", "repeat=4", "nodes=4", options)
    assert nodes["counts"]["remote_words_node"] == 0  # both CPUs of a copy are of one node
    nodes = replay_trace(tmp_path, trace, "cpus=2", "nodes=2", options)
    assert nodes["counts"]["remote_words_node"] == nodes["counts"]["remote_words"] > 0


# ---- Any trace ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    ["engine=slub", "engine=slub,sheaf_capacity=0,classes=kernel", "engine=slab", "engine=slob"],
)
@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(trace=random_traces())
def test_sums_agree(
    tmp_path_factory: pytest.TempPathFactory, options: str, trace: tr.Trace
) -> None:
    document = replay_trace(tmp_path_factory.mktemp("replay"), trace, f"options={options}")
    assert_sums_agree(document)
    counts = document["trace"]
    if "slob" not in document:
        # What lives: objects of caches, and sizes that have a class.
        inuse = sum(cache["inuse"] for cache in document["caches"])
        assert inuse <= counts["allocations"] - counts["frees"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["boot-6.1tiny-slub-64M", "boot-6.1tiny-slob-64M"])
def test_sums_agree_for_recorded_traces(name: str, engine: str) -> None:
    path = TRACES / f"{name}.slt.zst"
    for arguments in ([], ["cpus=4", "repeat=4", "nodes=2"]):
        document = replay(path, f"options=engine={engine}", *arguments)
        assert_sums_agree(document)
        asked = document["end"]["asked_bytes"] + document["end"]["asked_large_bytes"]
        records = tr.read_trace(path).records
        kinds = records["operation"] & tr.OPERATION_MASK
        # A cache that had no size yet when the event was recorded: the stride is all there is.
        sizes = records.select(
            pl.when(pl.col("requested") == 0).then("given").otherwise("requested")
        ).to_series()
        live = sizes.filter(kinds == tr.ALLOC).sum() - sizes.filter(kinds == tr.FREE).sum()
        assert asked == live * document["machine"]["repeat"]


def test_the_same_document_every_time(tmp_path: Path) -> None:
    trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
    for engine in ENGINES:
        arguments = ("cpus=6", "repeat=5", "nodes=2", f"options=engine={engine}")
        first, second = tool(trace, *arguments), tool(trace, *arguments)
        assert first.returncode == 0
        assert first.stdout == second.stdout
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        assert kmem(trace, "--json", file, "--set", "freeze=eager").returncode == 0
    assert files[0].read_bytes() == files[1].read_bytes()


# ---- The command --------------------------------------------------------------------------------


def test_document_and_table(tmp_path: Path) -> None:
    file = tmp_path / "replay.json"
    trace = TRACES / "boot-6.1tiny-slob-64M.slt.zst"
    done = kmem(trace, "--engine", "slob", "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    end, counts = document["end"], document["counts"]
    assert end["optimum_pages"] == document["slob"]["used_pages"]
    assert end["optimum_pages"] == -(-end["allocated_bytes"] // PAGE) + end["large_pages"]
    expected = 100 * (end["pages"] - end["optimum_pages"]) / end["optimum_pages"]
    assert document["overhead_percent"] == pytest.approx(expected, abs=0.01)
    assert document["peak_overhead_percent"] == document["peak"]["overhead_percent"]
    # Three lists; the mail's two took 6% with the same bytes.
    assert len(document["slob"]["lists"]) == 3
    assert document["overhead_percent"] <= 6
    assert document["fast_path_share"] == 0
    scans = {name: document["slob"][name] for name in ("page_scans", "block_scans")}
    assert document["modelled"]["ns"] == round(modelled_ns(counts | scans, read_costs()))
    assert document["modelled"]["costs"] == "assumed"
    for figure in (f"{document['overhead_percent']}%", f"{end['pages']:,}", "assumed costs"):
        assert figure in done.stdout
    assert "seconds" not in file.read_text()


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    """Also where the library that makes tables has a meaning for them; none moves the cursor."""
    names = ["[/x]", "a[red]b", "1:100:2", "e\x1b[31mf"]
    rows = [event(i, tr.ALLOC, i, 64 + 8 * i, cache=2 + i) for i in range(len(names))]
    path = tmp_path / "[y]:100:.ktrace"
    tr.write_trace(path, trace_of(rows, names))
    simulated = kmem(path, "--set", "slob_breaks=64:100:512")
    real = kmem(path, "--real-time", "--rounds", "1", "--compare", "[/z].stats=1")
    for done, shown in (
        (simulated, ["[/x]", "a[red]b", "1:100:2", "e?[31mf", "slob_breaks=64:100:512"]),
        (real, ["[/z].stats=1"]),
    ):
        assert done.returncode == 0, done.stderr
        assert all(name in done.stdout for name in (*shown, path.name)), done.stdout


def test_names_of_traces_may_be_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.ktrace")
    tr.write_trace(path, trace_of([event(0, tr.ALLOC, 0, 64)]))
    done = subprocess.run(
        [sys.executable, "-m", "kmem", "replay", path],
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\udcff.ktrace on 1 CPU" in done.stdout


def test_slubs_own_fast_path(tmp_path: Path) -> None:
    """Without sheaves: alloc and free in turn stay on the CPU slab but for the first call."""
    rows = []
    for i in range(50):
        rows += [event(2 * i, tr.ALLOC, i, 64, cache=2), event(2 * i + 1, tr.FREE, i, 64, cache=2)]
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, trace_of(rows, ["things"]))
    file = tmp_path / "replay.json"
    assert kmem(path, "--set", "sheaf_capacity=0,stats=1", "--json", file).returncode == 0
    document = json.loads(file.read_text())
    assert document["fast_path_share"] == 0
    assert document["statistics"] == {
        "alloc_fastpath": 49,
        "alloc_slowpath": 1,
        "free_fastpath": 50,
        "free_slowpath": 0,
    }
    assert document["slub_fast_path_share"] == 0.99
    assert kmem(path, "--json", file).returncode == 0
    assert "statistics" not in json.loads(file.read_text())


def test_a_table_of_costs_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    costs = tmp_path / "costs.csv"
    for text, reason in (
        ("", "expected a table with columns count and ns"),
        ("name;cost\ncalls;7\n", "expected columns count and ns, not 'name;cost'"),
        ("count,ns\ncalls,dear\n", "calls costs 'dear'; expected 0 to 1e9 ns"),
        ("count,ns\ncalls\n", "calls costs ''; expected 0 to 1e9 ns"),
        ("count,ns\ncalls,-1\n", "calls costs -1; expected 0 to 1e9 ns"),
        ("count,ns\ncalls,2,5\n", "'calls,2,5': expected columns count,ns"),
        ("count,ns\ncompare_swap,9\n", "'compare_swap' is no count; expected compare_swaps"),
        ("count,ns\ncalls ,9\n", "'calls ' is no count; expected calls"),
        ("ns,count\n9\n", "'' is no count; expected a name of assumed_costs.csv"),
    ):
        costs.write_text(text)
        with pytest.raises(KmemError, match=re.escape(f"costs {costs}: {reason}")):
            read_costs(costs)


def test_costs_are_read(tmp_path: Path) -> None:
    costs = tmp_path / "costs.csv"
    costs.write_text("# mine\ncount,ns\ncalls,7\n")
    file = tmp_path / "replay.json"
    trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
    assert kmem(trace, "--costs", costs, "--json", file).returncode == 0
    document = json.loads(file.read_text())
    assert document["modelled"]["ns"] == 7 * document["counts"]["calls"]
    assert 0.5 < document["fast_path_share"] < 1
    # Each count of a replay may have a cost, also those that have none in the assumed costs.
    costs.write_text("count,ns\n" + "".join(f"{name},1\n" for name in document["counts"]))
    assert read_costs(costs) == dict.fromkeys(document["counts"], 1)
    costs.write_text("count,ns\ncalls,1e9\n")
    assert read_costs(costs) == {"calls": 1e9}
    twice = "count,ns\ncalls,7\ncalls,8\n"
    for wrong in ("count,ns\ncalls,x\n", "count,ns\ncalls,-1\n", "calls,7\n", "", twice):
        costs.write_text(wrong)
        with pytest.raises(KmemError):
            read_costs(costs)


@pytest.mark.parametrize("name", ["boot-6.1tiny-slub-64M", "boot-6.1cloud-128M"])
def test_recorded_boot_beside_its_slab_table(tmp_path: Path, name: str) -> None:
    file = tmp_path / "replay.json"
    slabinfo = TRACES / f"{name}.slabinfo.txt"
    done = kmem(TRACES / f"{name}.slt.zst", "--slabinfo", slabinfo, "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    recorded = document["recorded"]
    assert_sums_agree(document)
    kernel = sum(
        int(line.split()[14]) * int(line.split()[5])
        for line in slabinfo.read_text().splitlines()[2:]
    )
    assert recorded["kernel_pages"] == kernel
    assert abs(recorded["pages"] - kernel) <= 0.05 * kernel
    large = [row for row in recorded["caches"] if row["kernel_pages"] > 5]
    near = [row for row in large if abs(row["pages"] / row["kernel_pages"] - 1) <= 0.1]
    assert len(near) >= 0.9 * len(large)
    assert (recorded["large_caches"], recorded["large_caches_within"]) == (len(large), len(near))
    # Sizes and orders are the kernel's; one table entry a byte costs two objects of 256.
    assert set(recorded["other_layout"]) <= {"kmalloc-16", "kmalloc-cg-16"}
    assert {row["why"] for row in recorded["map"]} <= {
        "name",
        "site and size",
        "only one of the size",
    }
    for group in recorded["map"]:
        if group["why"] != "name":
            assert f"{group['name']} " in done.stdout


def test_slabinfo_of_nothing_known(tmp_path: Path) -> None:
    trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
    wrong = tmp_path / "slabinfo"
    wrong.write_text("no table\n")
    empty = tmp_path / "empty"
    empty.write_text(f"{VERSION_LINE}\n{HEADER_LINE}\n")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"slabinfo\xff\n")
    many = tmp_path / "many"
    many.write_text(
        f"{VERSION_LINE}\n{HEADER_LINE}\nx 1000000000000 1000000000000 4001 1 1 : tunables 0 0 0"
        " : slabdata 1000000000000 1000000000000 0\n"
    )
    for file, reason in (
        (wrong, "not the two first lines of a slab table: 'no table'; expected 'slabinfo - "),
        (empty, "no cache in it has a slab"),
        (damaged, "byte 8: expected text in UTF-8"),
        (many, "1,000,000,000,000 objects that the trace lacks; expected at most 4,294,"),
        (tmp_path / "missing", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        done = kmem(trace, "--slabinfo", file)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"kmem: replay: --slabinfo {file}: {reason}")


def table(folder: Path, lines: Sequence[str]) -> Path:
    file = folder / "slabinfo"
    file.write_text("\n".join([VERSION_LINE, HEADER_LINE, *lines, ""]))
    return file


def cache_line(name: str, objects: int) -> str:
    return f"{name} {objects} {objects} 8 512 1 : tunables 0 0 0 : slabdata {objects} {objects} 0"


def test_objects_of_a_table_beyond_memory(tmp_path: Path) -> None:
    trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
    done = kmem(trace, "--slabinfo", table(tmp_path, [cache_line("x", 3_000_000)]))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(
        "3,000,000 objects that the trace lacks: it takes .* --memory 1099M allows it", done.stderr
    ), done.stderr


def test_more_caches_in_a_table_than_ids(tmp_path: Path) -> None:
    trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
    lines = [cache_line(f"c{number}", 1) for number in range(65_600)]
    done = kmem(trace, "--slabinfo", table(tmp_path, lines))
    assert (done.returncode, done.stdout) == (1, "")
    assert "caches with those of the trace; expected at most 65,536" in done.stderr
    assert "Traceback" not in done.stderr


def test_memory(tmp_path: Path) -> None:
    """The line of a refused trace says what is enough for the same command."""
    path = tmp_path / "one.ktrace"
    trace = trace_of([event(0, tr.ALLOC, 0, 64)])
    trace.objects = 10_000_000
    tr.write_trace(path, trace)
    done = kmem(path)
    assert (done.returncode, done.stdout) == (1, "")
    match = re.search(r"it takes \d+ bytes of memory, .* --memory (\d+M) allows it", done.stderr)
    assert match, done.stderr
    done = kmem(path, "--memory", match[1])
    assert done.returncode == 0, done.stderr
    for texts, expected in (
        (("", "1X", "1.5G", "010"), "expected a number of bytes, with K, M, G or T if wanted"),
        (("0", "0K", "-1", "99999999999999999T"), "expected 1 to 18446744073709551615 bytes"),
    ):
        for text in texts:
            done = kmem(path, "--memory", text)
            assert (done.returncode, done.stdout) == (2, "")
            assert f"--memory {text}: {expected}\n" in done.stderr


def test_copies_beyond_memory(tmp_path: Path) -> None:
    """Objects of copies count as the file's memory; a CPU for each of a copy's takes none."""
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, trace_of([event(i, tr.ALLOC, i, 8) for i in range(2000)]))
    done = kmem(path, "--repeat", "65536")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"repeat=65536: it takes 104\d{7} bytes of memory, .* --memory", done.stderr)
    rows = [event(0, tr.ALLOC, 0, 64), event(1, tr.FREE, 0, 64, cpu=65535)]
    tr.write_trace(path, trace_of(rows, cpus=65536))
    assert replay(path, "repeat=65536")["counts"]["calls"] == 2 * 65536


def test_a_pipe_is_no_trace(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in (["replay", pipe], ["export", pipe, "--out", tmp_path / "out.csv"]):
        command = [ROOT / "kmem", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode != 0 and "expected a regular file" in done.stderr, done
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--cpus", "0"], "cpus=0"),
        (["--cpus", "8193"], "cpus=8193"),
        (["--nodes", "9", "--cpus", "16"], "nodes=9"),
        (["--nodes", "2", "--cpus", "1"], "nodes"),
        (["--repeat", "0"], "repeat=0"),
        (["--set", "nonsense=1"], "nonsense"),
        (["--set", "freeze=never"], "freeze=never"),
        (["--set", "slabinfo=-"], "option slabinfo=-: a replay writes no such file"),
        (["--set", "stats=1,attrs=x"], "option attrs=x: a replay writes no such file"),
        (["--real-time", "--compare", "record=x"], "option record=x: a replay writes no"),
        (["--set", "protect=hardened"], "option protect=hardened: a replay has no hardened"),
        (["--real-time", "--compare", "protect=hardened"], "option protect=hardened: a replay"),
        (["--slabinfo", "x", "--cpus", "2"], "--cpus 2: expected none with --slabinfo"),
        (["--slabinfo", "x", "--cpus", "0"], "--cpus 0: expected none with --slabinfo"),
        (["--costs", "/no/such/file"], "/no/such/file"),
    ],
)
def test_bad_input_is_named(arguments: list[str], named: str) -> None:
    done = kmem(TRACES / "boot-6.1tiny-slub-64M.slt.zst", *arguments)
    assert done.returncode == (1 if "/no/such/file" in arguments else 2)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("kmem: ")
    assert named in line
    assert "the default stays" not in line  # nothing goes on with it


def test_a_kernel_in_a_file_has_its_own_classes(tmp_path: Path) -> None:
    """As one in the text; a name that only looks like the option leaves the classes alone."""
    trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
    for name, options in (("options", "kernel=6.12"), ("kernel=6.12", "sheaf_capacity=0")):
        given = tmp_path / name
        given.write_text(f"{options}\n")
        plain, of_file = (replay(trace, f"options={text}") for text in (options, f"@{given}"))
        del plain["machine"], of_file["machine"]
        assert plain == of_file
        added = options_for([options])[:-1]  # where a slab table stands beside
        assert options_for([f"@{given}"]) == (*added, f"@{given}")


def test_options_in_a_file_are_refused_as_others(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("kept\n")
    given = tmp_path / "options"
    for content, named in (
        (f"# a comment\nstats=1,slabinfo={table}\n", f"option slabinfo={table}: a replay writes"),
        ("protect=hardened", "option protect=hardened: a replay has no hardened blocks"),
    ):
        given.write_text(content)
        for further in ([], ["--real-time"]):
            trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
            done = kmem(trace, "--set", f"@{given}", *further)
            assert (done.returncode, done.stdout) == (2, "")
            assert named in done.stderr
    assert table.read_text() == "kept\n"


def test_bad_traces_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.ktrace"
    for content in (b"", b"nothing that could be a trace"):
        path.write_bytes(content)
        done = kmem(path)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"kmem: replay: {path}: byte 0: ")
    for argument in ("cpus", "=1", "cpus=1x", "speed=2"):
        done = tool(TRACES / "boot-6.1tiny-slub-64M.slt.zst", argument)
        assert done.returncode == 2
        assert argument.split("=")[-1] in done.stderr


def test_names_in_messages_move_no_cursor(tmp_path: Path) -> None:
    path = tmp_path / "one.ktrace"
    tr.write_trace(path, trace_of([event(0, tr.ALLOC, 0, 1 << 33, cache=2)], ["a\x1b[2Jb"]))
    done = kmem(path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kmem: replay: record 0: an object of cache a\\x1b[2Jb has ")


def test_a_trace_that_ends_too_late(tmp_path: Path) -> None:
    """The simulated machine's clock begins at 1,000 seconds."""
    path = tmp_path / "late.ktrace"
    most = (1 << 64) - 1 - 10**12
    for last in (most, most + 1, (1 << 64) - 1):
        rows = [event(0, tr.ALLOC, 0, 64), event(last, tr.FREE, 0, 64)]
        tr.write_trace(path, trace_of(rows))
        done = kmem(path)
        assert done.returncode == (last > most)
        if last > most:
            reason = f"the trace ends at {last} ns; expected at most {most}"
            assert done.stderr == f"kmem: replay: {reason}\n"


# ---- Costs --------------------------------------------------------------------------------------


def test_calibration_is_a_table_of_costs(tmp_path: Path) -> None:
    file = tmp_path / "[red]costs[b].csv"
    done = subprocess.run(
        [ROOT / "kmem", "lab", "calibrate", "--out", file],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"\nkmem replay --costs {file} uses these\n")
    costs = read_costs(file)
    assert set(read_costs()) < set(costs) == set(read_costs()) | {"slow_paths"}
    # Nothing that is measured takes no time at all; the rest of a slow path may be lost in noise.
    # What a further node costs is the share of the assumed costs, and some of these are 0.
    free = {"slow_paths"} | {
        name for name, ns in read_costs().items() if ns == 0 and name.endswith("_node")
    }
    assert all(ns > 0 for name, ns in costs.items() if name not in free)
    assert "measured by kmem lab calibrate" in file.read_text()
    replayed = tmp_path / "replay.json"
    trace = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
    assert kmem(trace, "--costs", file, "--json", replayed).returncode == 0
    assert json.loads(replayed.read_text())["modelled"]["costs_ns"] == costs


def test_a_calibration_is_whole_on_a_narrow_terminal() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    code = (
        "from kmem.lab import calibrate;"
        "calibrate.build = lambda: None;"
        "calibrate.measure = lambda: dict.fromkeys(calibrate.read_costs(), 123.4)"
        " | dict.fromkeys(('moved_calls', 'bare_calls', 'locks'), 1234.5);"
        "calibrate.show_calibration(None)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=theirs, env=environment, cwd=ROOT, check=False
    )
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the terminal's other end is closed
        while part := os.read(ours, 4096):
            text += part
    os.close(ours)
    assert done.returncode == 0
    assert "list_locks" in text.decode()
    assert "1234.5" in text.decode()
    assert "\u2026" not in text.decode()


def test_calibration_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "costs.csv"
    done = subprocess.run(
        [ROOT / "kmem", "lab", "calibrate", "--out", file],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"kmem: lab calibrate: --out {file}: No such file or directory\n"
