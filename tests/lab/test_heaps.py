# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The recorded heaps of real programs: their files, windows of longer traces, and the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from kmem.common.errors import BadUsage
from kmem.lab import heap_list
from kmem.lab.heaps import POLICIES, chosen
from kmem.traces import file as tr

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "command"))
from kmem_command import kmem


@pytest.mark.parametrize("heap", heap_list.HEAP_LIST, ids=lambda heap: heap.name)
def test_files(heap: heap_list.Heap) -> None:
    """Small and sound: every free has its allocation, and sizes are known."""
    assert heap.trace.stat().st_size <= 200_000
    trace = tr.read_trace(heap.trace)
    assert 10_000 < trace.records.height <= heap_list.EVENTS_MOST
    kinds = trace.records["operation"] & tr.OPERATION_MASK
    assert set(kinds.unique()) == {tr.ALLOC, tr.FREE}
    assert trace.records.filter(kinds == tr.ALLOC)["object"].is_unique().all()


def test_programs_that_were_held_back_have_no_part_in_the_set() -> None:
    """They can be checked by name alone, and have no trace to show."""
    kept = {heap.name for heap in heap_list.HEAP_LIST}
    names = [heap.name for heap in heap_list.HELD_BACK]
    assert not kept & set(names)
    assert not any(heap.trace.exists() for heap in heap_list.HELD_BACK)
    assert [heap.name for heap in chosen([], check=True)] == [h.name for h in heap_list.HEAP_LIST]
    assert [heap.name for heap in chosen(names, check=True)] == names
    for name in names:
        with pytest.raises(BadUsage, match=f"{name}: expected one of .* without --check"):
            chosen([name])
    with pytest.raises(BadUsage, match=r"nothing: expected one of [^\n]*haproxy$"):
        chosen(["nothing"], check=True)


def made_up(lives: int) -> tr.Trace:
    """Every other object lives until the end; the others die at once."""
    rows = []
    for number in range(lives):
        rows.append((number, tr.ALLOC))
        if number % 2:
            rows.append((number, tr.FREE))
    count = len(rows)
    values = {name: np.zeros(count, kind) for name, kind in tr.COLUMNS.items()}
    values["time"] = np.arange(count, dtype=np.uint64)
    values["object"] = np.array([row[0] for row in rows], np.uint32)
    values["operation"] = np.array([row[1] for row in rows], np.uint8)
    values["requested"] = values["object"].astype(np.uint64) + 1
    return tr.Trace(pl.DataFrame(values), ["kmalloc", "?"], ["?"], lives, 1)


def test_window(tmp_path: Path) -> None:
    """The objects that live at the window's begin come first, once each, and sizes stay theirs."""
    trace = made_up(1000)
    cut = heap_list.window(trace, 600)
    assert cut.records.height == 600
    tr.write_trace(tmp_path / "cut.ktrace", cut)
    again = tr.read_trace(tmp_path / "cut.ktrace")  # which checks the lives
    assert again.records["time"].is_sorted()
    first = again.records.filter(pl.col("time") == 0)["requested"]
    begin = int(cut.source.removesuffix(" on").rsplit(" ", 1)[1].rstrip(","))
    before = trace.records[:begin]
    dead = before.filter(pl.col("operation") == tr.FREE)["object"]
    alive = before.filter(~pl.col("object").is_in(dead.implode()))["requested"]
    assert first.to_list()[: alive.len()] == alive.to_list()
    whole = trace.records[begin : begin + 600 - alive.len()]
    assert again.records["requested"][alive.len() :].to_list() == whole["requested"].to_list()
    assert heap_list.window(trace, 10_000) is trace


def test_command(tmp_path: Path) -> None:
    done = kmem("lab", "heaps", "sqlite", "--json", tmp_path / "heaps.json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "heaps.json").read_text())["rows"]
    assert row["events"] == tr.read_trace(heap_list.HEAPS / "sqlite.ktrace").records.height
    assert set(row["policies"]) == set(POLICIES)
    for one in row["policies"].values():
        assert one["peak_pages"] >= one["peak_slab_pages"] > 0
        assert one["resident_pages"] * 4096 > row["peak_live_bytes"]
        assert one["peak_pages"] * 4096 >= row["peak_live_bytes"] // 2
        assert one["modelled_ns"] > 0


def test_check_on_the_program(tmp_path: Path) -> None:
    sqlite = next(heap for heap in heap_list.HEAP_LIST if heap.name == "sqlite")
    if missing := sqlite.program.missing():
        pytest.skip(f"needs {missing[0]}")
    options = "sheaf_capacity=32"
    file = tmp_path / "check.json"
    done = kmem("lab", "heaps", "sqlite", "--check", options, "--rounds", "3", "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert (document["options"], document["rounds"]) == (options, 3)
    for figure in ("cpu_seconds", "peak_bytes"):
        one = document["rows"][0][figure]
        assert 0 < one["low"] <= one["ratio"] <= one["high"]
        assert one["verdict"] in ("agrees", "differs", "cannot be told")
        for change in (one["promise"], one["seen"], one["noise"]):
            assert change["low"] <= change["change"] <= change["high"]
    # The whole process has other memory than malloc's.
    assert document["rows"][0]["peak_bytes"]["of_defaults"] > 10 << 20


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["fortran"], "fortran: expected one of redis, nginx"),
        (["sqlite", "--check", ""], "--check: expected options"),
        (["sqlite", "--check", "no_such=1"], "no_such"),
        (["sqlite", "--check", "engine=slab", "--rounds", "2"], "--rounds"),
        (["sqlite", "--rounds", "5"], "--rounds 5 needs --check"),
    ],
)
def test_faults(words: list[str], reason: str) -> None:
    done = kmem("lab", "heaps", *words)
    assert done.returncode in (1, 2)
    assert reason in done.stderr
