# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The experiments of `kmem lab` on small traces: moments and conditions by hand, permutations that
are possible runs, what the mail that split SLOB's list says, the same JSON every time, and pages
that a browser opens."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser
from traces import event, frame, trace_of

from kmem.common.errors import KmemError
from kmem.lab import replays as lab_replays
from kmem.lab import sheaves, slob_runs
from kmem.lab import slob as slob_lab
from kmem.lab.churn import LASTING, SHORT, Churn, make_churn
from kmem.lab.page import as_html
from kmem.lab.permutations import SLICE, find_parts, permute
from kmem.lab.report import Plot, Report, show_experiment
from kmem.lab.slob_figures import conditions
from kmem.traces import file as tr

ROOT = Path(__file__).resolve().parents[2]
TRACES = Path(tr.__file__).parent
TINY = TRACES / "boot-6.1tiny-slob-64M.slt.zst"
MESSAGES = TRACES / "hackbench-g4-l200-pipe.slt.zst"
PAGE = 4096


def kmem(*arguments: str | Path, seconds: int = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "kmem", "lab", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def replayed(folder: Path, trace: tr.Trace, options: str, **plan: int) -> dict[str, Any]:
    path = folder / "one.ktrace"
    tr.write_trace(path, trace)
    return lab_replays.replay(lab_replays.Job(path, options, **plan))


# ---- Moments and pages of other sizes -----------------------------------------------------------


def test_moments_by_hand(tmp_path: Path) -> None:
    """Eight blocks of half a page, two a page; then the first of each page goes."""
    rows = [event(10 * i, tr.ALLOC, i, 2048, cache=2) for i in range(8)]
    rows += [event(100 + i, tr.FREE, 2 * i, 2048, cache=2) for i in range(4)]
    document = replayed(tmp_path, trace_of(rows, ["halves"]), "engine=slob", moments=3)
    moments = document["moments"]
    assert [moment["steps"] for moment in moments] == [4, 8, 12]
    assert [moment["time_ns"] for moment in moments] == [30, 70, 103]
    assert [moment["pages"] for moment in moments] == [2, 4, 4]
    assert [moment["full_pages"] for moment in moments] == [2, 4, 0]
    assert [moment["fragments"] for moment in moments] == [0, 0, 4]
    assert [moment["unused_bytes"] for moment in moments] == [0, 0, 4 * 2048]
    assert [moment["optimum_pages"] for moment in moments] == [2, 4, 2]
    assert [moment["overhead_percent"] for moment in moments] == [0, 0, 100]


@pytest.mark.parametrize("options", ["engine=slub", "engine=slab", "engine=slob"])
def test_looking_changes_nothing(options: str) -> None:
    without = lab_replays.replay(lab_replays.Job(TINY, options))
    looked_at = lab_replays.replay(lab_replays.Job(TINY, options, moments=77))
    moments = looked_at.pop("moments")
    assert looked_at == without
    assert len(moments) == 77
    last = moments[-1]
    assert last["steps"] == without["trace"]["allocations"] + without["trace"]["frees"]
    for name in ("pages", "large_pages", "asked_bytes", "allocated_bytes", "optimum_pages"):
        assert last[name] == without["end"][name]
    if "slob" in without:
        assert last["full_pages"] == without["slob"]["full_pages"]
        assert last["page_scans"] == without["slob"]["page_scans"]
        lists = without["slob"]["lists"]
        assert last["fragments"] == sum(figures["fragments"] for figures in lists)


def test_more_moments_than_steps(tmp_path: Path) -> None:
    rows = [event(i, tr.ALLOC, i, 64) for i in range(3)]
    document = replayed(tmp_path, trace_of(rows), "engine=slob", moments=50)
    assert [moment["steps"] for moment in document["moments"]] == [1, 2, 3]


@pytest.mark.parametrize("kib", [4, 16, 64])
def test_pages_of_other_sizes(tmp_path: Path, kib: int) -> None:
    page = kib * 1024
    rows = [event(i, tr.ALLOC, i, 1024, cache=2) for i in range(3 * kib)]
    trace = trace_of(rows, ["kibs"])
    document = replayed(tmp_path, trace, f"engine=slob,slob_breaks={page - 1}", page_kib=kib)
    assert document["machine"]["page_bytes"] == page
    assert document["end"]["pages"] == document["end"]["optimum_pages"] == 3
    with pytest.raises(KmemError, match=f"slob_breaks={page}"):
        replayed(tmp_path, trace, f"engine=slob,slob_breaks={page}", page_kib=kib)


# ---- Permutations -------------------------------------------------------------------------------


@st.composite
def threads(draw: st.DrawFn) -> tr.Trace:
    """Threads and interrupts that allocate, and free what any of them allocated."""
    rows: list[tuple[int, ...]] = []
    live: list[int] = []
    objects = 0
    for step in range(draw(st.integers(0, 300))):
        thread, cpu = draw(st.integers(1, 3)), draw(st.integers(0, 1))
        context = draw(st.sampled_from([0, 0, tr.SOFTIRQ, tr.HARDIRQ]))
        if live and draw(st.booleans()):
            number = live.pop(draw(st.integers(0, len(live) - 1)))
            operation = draw(st.sampled_from([tr.FREE, tr.FREE | tr.KFREE, tr.IMPLIED]))
        else:
            number, operation = objects, tr.ALLOC
            objects += 1
            live.append(number)
        rows.append((step // 2, 32, 32, thread, number, 0, 0, cpu, 0, operation | context))
    return tr.Trace(frame(rows), ["kmalloc", "?"], ["?"], objects, 2)


def flow(row: dict[str, int]) -> tuple[int, ...]:
    interrupt = row["operation"] & (tr.SOFTIRQ | tr.HARDIRQ)
    return (interrupt, row["cpu"]) if interrupt else (0, row["thread"], -1)


@settings(max_examples=50, deadline=None)
@given(trace=threads(), seed=st.integers(1, 1000))
def test_permutations_are_possible_runs(trace: tr.Trace, seed: int) -> None:
    other = permute(trace, find_parts(trace), seed)
    assert other.records["time"].equals(trace.records["time"])
    columns = [name for name in tr.COLUMNS if name != "time"]
    before = trace.records.select(columns).rows(named=True)
    after = other.records.select(columns).rows(named=True)
    assert sorted(map(str, before)) == sorted(map(str, after))
    for who in {flow(row) for row in before}:
        assert [r for r in before if flow(r) == who] == [r for r in after if flow(r) == who]
    there: set[int] = set()
    for row in after:
        if row["operation"] & tr.OPERATION_MASK == tr.ALLOC:
            there.add(row["object"])
        else:
            there.remove(row["object"])


def test_parts_end_after_a_slice() -> None:
    rows = [event(i, tr.ALLOC, i, 64) for i in range(3 * SLICE + 1)]
    parts = find_parts(trace_of(rows))
    assert list(np.diff(parts.start)) == [SLICE, SLICE, SLICE, 1]
    assert parts.before == [[], [0], [1], [2]]


def test_permutations_of_a_recorded_boot(tmp_path: Path) -> None:
    trace = tr.read_trace(TINY)
    parts = find_parts(trace)
    orders = []
    for seed in (0, 1, 1, 2):
        other = permute(trace, parts, seed)
        orders.append(other.records["object"].to_list())
        # What reads a trace checks that each life is in order.
        tr.write_trace(tmp_path / "other.ktrace", other)
        assert tr.read_trace(tmp_path / "other.ktrace").records.height == trace.records.height
    assert orders[0] == trace.records["object"].to_list()
    assert orders[1] == orders[2] != orders[0]
    assert orders[3] not in orders[:2]


# ---- The made-up boot ---------------------------------------------------------------------------


def test_made_up_boot_has_the_mails_totals() -> None:
    """22,528 allocations of which 10,420 live; kmalloc: 10,247, 5,450 of them live."""
    records = make_churn(Churn()).records
    allocs = records.filter(pl.col("operation") == tr.ALLOC)
    frees = records.filter(pl.col("operation") == tr.FREE)
    live = allocs.filter(~pl.col("object").is_in(frees["object"].implode()))
    kmallocs = allocs.filter(pl.col("cache") == tr.CACHE_KMALLOC)
    assert live.height == sum(LASTING.values()) == 10420
    assert live.filter(pl.col("cache") == tr.CACHE_KMALLOC).height == 5450
    # The mail's other figures, within a tenth.
    assert kmallocs.height == pytest.approx(10247, rel=0.1)
    assert allocs.height == sum(LASTING.values()) + sum(SHORT.values()) + Churn().large_count
    assert kmallocs["requested"].sum() == pytest.approx(3_484_680, rel=0.1)
    header_bytes = 4 * 5450
    assert live["requested"].sum() + header_bytes == pytest.approx(932_647, rel=0.1)


def test_made_up_boot_by_seed() -> None:
    one, again, other = (make_churn(Churn(seed=seed)).records for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


def test_conditions_by_hand() -> None:
    """Three large blocks are short-lived, and in the life of one a lasting object is made."""
    rows = [
        event(0, tr.ALLOC, 0, 3000),
        event(1, tr.ALLOC, 1, 100),  # lasting, in the life of block 0
        event(2, tr.FREE, 0, 3000),
        event(3, tr.ALLOC, 2, 3000),
        event(4, tr.ALLOC, 3, 100),
        event(5, tr.FREE, 3, 100),
        event(6, tr.FREE, 2, 3000),
        event(7, tr.ALLOC, 4, 50),  # lasting
        event(8, tr.ALLOC, 5, 2500),
        event(9, tr.FREE, 5, 2500),
        event(10, tr.ALLOC, 6, 2500),  # large and lasting
        event(11, tr.ALLOC, 7, 5000),  # has pages of its own
        event(12, tr.FREE, 7, 5000),
    ]
    assert conditions(trace_of(rows)) == {
        "large_blocks": 3,
        "overlapped_blocks": 1,
        "overlapped_share": 0.3333,
        "lasting_bytes": 2650,
        "lasting_bytes_per_overlapped": 2650,
    }


def test_conditions_of_the_made_up_boot() -> None:
    found = conditions(make_churn(Churn(overlap=0.3)))
    assert found["large_blocks"] == 1460
    assert found["overlapped_share"] == pytest.approx(0.3, abs=0.04)


# ---- slob ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slob() -> Report:
    return slob_lab.slob_report([TINY, MESSAGES], quick=True)


def test_one_list_fails_where_the_mails_did(slob: Report) -> None:
    """74% and 6% in the mail; a lasting object in the life of large blocks is what it takes."""
    rows = slob.document["traces"][slob_runs.CHURN]["rows"]
    assert 60 < rows["SLOB, one"]["overhead_percent"] < 90
    for split in ("two", "three"):
        assert rows[f"SLOB, {split}"]["overhead_percent"] < 10
    cases = {
        (case["large_bytes"], case["overlap"], case["lists"]): case["overhead_percent"]
        for case in slob.document["churn"]
    }
    assert cases[2184, 0.0, "one"] < 20
    assert cases[1400, 0.3, "one"] < 30
    assert cases[2184, 0.3, "one"] == rows["SLOB, one"]["overhead_percent"]


def test_split_lists_are_steadier(slob: Report) -> None:
    """The mail's boots differ by 208 kB with one list and by 36 with two."""
    spread = {
        row["lists"]: row["spread_kib"]
        for row in slob.document["permutations"]
        if row["trace"] == slob_runs.CHURN
    }
    assert spread["two"] < spread["one"]
    assert spread["three"] < spread["one"]


def test_tiny_boot(slob: Report) -> None:
    trace = slob.document["traces"]["boot-6.1tiny-slob-64M"]
    rows = trace["rows"]
    assert rows["SLOB, three"]["overhead_percent"] <= 6
    # The split does not pay at the end of this boot, but it did on the way.
    assert rows["SLOB, one"]["pages"] < rows["SLOB, two"]["pages"] < rows["SLOB, three"]["pages"]
    (gain,) = (
        row
        for row in slob.document["gains"]
        if (row["trace"], row["lists"]) == ("boot-6.1tiny-slob-64M", "two")
    )
    assert gain["best_percent"] < 0 < gain["end_percent"]
    assert 0 < gain["fewer_pages_share"] < 1
    assert rows["SLOB, three"]["page_scans"] < rows["SLOB, one"]["page_scans"]
    assert rows["SLUB"]["pages"] < rows["SLUB, debug"]["pages"]
    for row in rows.values():
        assert len(row["moments"]["pages"]) == len(trace["steps"]) == slob_runs.QUICK_MOMENTS
        assert row["moments"]["pages"][-1] == row["pages"]
        assert row["moments"]["overhead_percent"][-1] == row["overhead_percent"]


def test_sweeps_have_all_cases(slob: Report) -> None:
    traces = 3
    document = slob.document
    assert len(document["breaks"]) == traces * len(slob_runs.QUICK_BREAKS)
    assert len(document["page_sizes"]) == traces * sum(
        len(slob_runs.page_breaks(kib)) for kib in slob_runs.PAGE_KIB
    )
    for row in document["permutations"]:
        assert len(row["seeds"]) == len(row["pages"]) == slob_runs.QUICK_SEEDS
    assert slob_runs.SEEDS >= 10
    # Two lists in the sweep are two lists in the table.
    two = document["traces"]["hackbench-g4-l200-pipe"]["rows"]["SLOB, two"]
    (swept,) = (
        row
        for row in document["breaks"]
        if (row["trace"], row["break_bytes"]) == ("hackbench-g4-l200-pipe", 300)
    )
    assert swept["overhead_percent"] == two["overhead_percent"]


def test_slob_writes_the_same_every_time(tmp_path: Path) -> None:
    files = [(tmp_path / f"{name}.json", tmp_path / f"{name}.html") for name in ("one", "two")]
    for json_file, html_file in files:
        done = kmem("slob", "--quick", TINY, "--json", json_file, "--html", html_file)
        assert done.returncode == 0, done.stderr
        assert "boot-6.1tiny-slob-64M" in done.stdout
        assert "mail, one" in done.stdout
    for one, two in zip(*files, strict=True):
        assert one.read_bytes() == two.read_bytes()
    other = tmp_path / "other.json"
    assert kmem("slob", "--quick", TINY, "--seed", "2", "--json", other).returncode == 0
    assert other.read_bytes() != files[0][0].read_bytes()


# ---- sheaves ------------------------------------------------------------------------------------


def test_sheaves_cost_slabs_and_save_time(tmp_path: Path) -> None:
    first, second = tmp_path / "one.json", tmp_path / "two.json"
    for file in (first, second):
        done = kmem("sheaves", "--quick", MESSAGES, "--json", file)
        assert done.returncode == 0, done.stderr
    assert first.read_bytes() == second.read_bytes()
    rows = json.loads(first.read_text())["rows"]
    assert {row["cpus"] for row in rows} == {2, 8}
    for cpus in (2, 8):
        of = {row["configuration"]: row for row in rows if row["cpus"] == cpus}
        classic = of[sheaves.CLASSIC]
        assert classic["more_percent"] == classic["saved_ns_per_call"] == 0
        assert classic["fast_path_share"] == 0
        few, many = of["sheaves of 4"], of["sheaves of 32"]
        assert classic["mean_pages"] < few["mean_pages"] < many["mean_pages"]
        assert 0 < few["saved_ns_per_call"] < many["saved_ns_per_call"]
        assert few["fast_path_share"] < many["fast_path_share"]
        for row in (few, many):
            price = row["more_kib_per_cpu"] / row["saved_ns_per_call"]
            assert row["kib_per_cpu_per_ns"] == pytest.approx(price, abs=0.01)


def test_copies_that_there_is_room_for() -> None:
    def document(cpus: int, calls: int) -> dict[str, Any]:
        return {"trace": {"cpus": cpus}, "counts": {"calls": calls}}

    assert sheaves.copies_of(document(2, 1000), (1, 4, 64)) == [1, 4, 64]
    assert sheaves.copies_of(document(256, 1000), (1, 4, 64)) == [1, 4]
    assert sheaves.copies_of(document(1, sheaves.CALLS_MOST), (1, 4, 64)) == [1]
    assert sheaves.copies_of(document(1, 2 * sheaves.CALLS_MOST), (1, 4)) == [1]


# ---- Errors -------------------------------------------------------------------------------------


def test_bad_input_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.ktrace"
    damaged.write_bytes(TINY.read_bytes()[:1000])
    empty = tmp_path / "empty.ktrace"
    tr.write_trace(empty, trace_of([]))
    twin = tmp_path / TINY.name
    shutil.copy(TINY, twin)
    nowhere, unmade, neither = tmp_path / "no" / "file", tmp_path / "unmade", tmp_path / "neither"
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((tmp_path / "missing.ktrace",), "missing.ktrace"),
        ((tmp_path,), f"kmem: {tmp_path}: no trace can be read there: expected a regular file"),
        ((Path("/dev/null"),), "kmem: /dev/null: no trace can be read there: expected a regular"),
        ((damaged,), "damaged.ktrace"),
        ((empty, "--json", unmade, "--html", neither), "empty"),
        ((TINY, twin), str(twin)),
        ((TINY, "--json", nowhere), f"--json {nowhere}"),
        ((TINY, "--html", nowhere), f"--html {nowhere}"),
    ]
    for arguments, named in cases:
        for name in ("slob", "sheaves"):
            done = kmem(name, "--quick", *arguments)
            assert (done.returncode, done.stdout) == (1, ""), (name, arguments)
            (line,) = done.stderr.splitlines()
            assert line.startswith("kmem: ")
            assert named in line
    assert not unmade.exists()
    assert not neither.exists()


# ---- Pages --------------------------------------------------------------------------------------


def test_pages_escape_what_they_show() -> None:
    report = Report("x", "<b>", {}, ["<script>alert(1)</script>"], ["a & b"])
    page = as_html("<t>", [report])
    assert "<script>alert" not in page
    assert "&lt;b&gt;" in page
    assert "a &amp; b" in page


def test_names_of_traces_that_are_no_plain_text(tmp_path: Path) -> None:
    """Neither a formula for the plots, nor bytes that no page can have."""
    path = tmp_path / os.fsdecode(b"<$\\frac$> \xff.ktrace")
    tr.write_trace(path, tr.read_trace(TINY))
    page = tmp_path / "page.html"
    done = kmem("slob", "--quick", path, "--html", page)
    assert (done.returncode, done.stderr) == (0, "")
    assert "&lt;$\\frac$&gt; \ufffd" in page.read_text()


def test_plots_do_not_differ_from_run_to_run() -> None:
    def page() -> str:
        plot = Plot("p", lambda panels: [axes.plot([1, 2], [3, 4]) for axes in panels], 2)  # type: ignore[arg-type, return-value]
        return as_html("t", [Report("x", "y", {}, plots=[plot])])

    assert page() == page()
    assert page().count("<svg") == 1


def test_every_id_of_a_page_is_there_once() -> None:
    plots = [
        Plot(title, lambda panels: [axes.plot([1, 2], [3, 4], ".") for axes in panels], 2)  # type: ignore[arg-type, return-value]
        for title in ("p", "q")
    ]
    page = as_html("t", [Report("x", "y", {}, plots=plots)])
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:url\(#|href="#)([^")]*)', page)
    assert used and set(used) <= set(ids)


def test_everything_opens_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """No error in the console, no request but for the page itself, and every plot can be seen."""
    page_file, json_file = tmp_path / "all.html", tmp_path / "all.json"
    done = kmem("all", "--quick", "--html", page_file, "--json", json_file)
    assert done.returncode == 0, done.stderr
    names = list(json.loads(json_file.read_text()))
    assert {"lists", "order", "slob", "sheaves", "bulk"} <= set(names)
    errors: list[str] = []
    requests: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    assert [section.get_attribute("id") for section in page.query_selector_all("section")] == names
    for picture in page.query_selector_all("svg"):
        box = picture.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 100
    drawn = {name: page.locator(f"section#{name} svg").count() for name in names if name != "order"}
    assert all(drawn.values()), drawn
    page.close()
    assert errors == []
    assert requests == [page_file.as_uri()]


def test_full_disk_does_not_take_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The file comes first; its error ended the command before anything was printed."""
    report = Report("bulk", "title of the experiment", {}, parts=["words"], notes=["a note"])
    with pytest.raises(KmemError, match="--json /dev/full: No space left on device"):
        show_experiment(lambda: report, Path("/dev/full"), None)
    assert "title of the experiment\nwords\na note\n" in capsys.readouterr().out
