# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay --real-time`: the order of events over threads, the heap that is left, beside the
simulated machine's, and the ranks of option sets."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from traces import event, random_traces, trace_of

from kmem.replay.option_sets import OptionSet, misses
from kmem.traces import file as tr

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "build" / "tools"
TRACES = Path(tr.__file__).parent
BOOT = TRACES / "boot-6.1tiny-slub-64M.slt.zst"
ENGINES = ["slub", "slab", "slob"]
PAGE = 4096


def tool(path: Path, options: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOLS / "replay-real-time", path, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"KMEM_OPTIONS": options},
    )


def real_time(path: Path, options: str, *arguments: str) -> dict[str, Any]:
    done = tool(path, options, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def simulated(path: Path, options: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [TOOLS / "replay", path, *arguments, f"options={options}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(json.loads(done.stdout))


def kmem(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "kmem", "replay", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_whole(document: dict[str, Any]) -> None:
    """Every byte of a page is asked for, or is waste of one kind."""
    end, waste = document["end"], document["waste_bytes"]
    kinds = ("rounding", "slab_tails", "partial_slabs", "per_cpu")
    assert end["slab_pages"] * PAGE == end["asked_bytes"] + sum(waste[kind] for kind in kinds)
    large = end["asked_large_bytes"] + waste["large_rounding"]
    assert end["large_pages"] * PAGE == large
    times = document["real_time"]
    assert times["events"] == document["trace"]["allocations"] + document["trace"]["frees"]
    assert times["ns"] > 0
    assert times["cpu_ns"] >= 0


def in_use(document: dict[str, Any]) -> dict[str, int]:
    return {cache["name"]: cache["inuse"] for cache in document["caches"]}


# ---- The heap that is left ----------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["boot-6.1tiny-slub-64M", "boot-6.1cloud-128M"])
def test_the_same_lives_as_simulated(name: str, engine: str) -> None:
    path = TRACES / f"{name}.slt.zst"
    document = real_time(path, f"engine={engine}", "touch=1")
    expected = simulated(path, f"engine={engine}")
    assert_whole(document)
    assert document["trace"] == expected["trace"]
    for key in ("asked_bytes", "asked_large_bytes", "allocated_bytes"):
        assert document["end"][key] == expected["end"][key]
    assert in_use(document) == in_use(expected)
    peak = document["real_time"]["peak_resident_bytes"]
    # All that lives was written.
    assert peak is None or peak >= document["end"]["asked_bytes"]


@pytest.mark.parametrize("options", ["engine=slub", "engine=slub,sheaf_capacity=0", "engine=slob"])
def test_one_thread_leaves_what_one_simulated_cpu_does(options: str) -> None:
    """The same code and the same events in the same order: the same slabs, to the byte."""
    # Not by the CPUs that there are, nor with malloc's sheaves.
    options += ",slub_min_objects=16,classes=fine"
    document = real_time(BOOT, options, "cpus=1")
    expected = simulated(BOOT, options, "cpus=1")
    for key in ("end", "slabs", "caches"):
        assert document[key] == expected[key]
    assert document["real_time"]["waits"] == 0


# ---- Order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["window=1", "window=7", "window=1000000"])
@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(trace=random_traces())
def test_any_trace_ends(
    tmp_path_factory: pytest.TempPathFactory, window: str, trace: tr.Trace
) -> None:
    path = tmp_path_factory.mktemp("real-time") / "one.ktrace"
    tr.write_trace(path, trace)
    document = real_time(path, "sheaf_capacity=4", "touch=1", window)
    expected = simulated(path, "sheaf_capacity=4")
    assert document["machine"]["threads"] == 3
    assert in_use(document) == in_use(expected)
    if trace.records.height:
        assert_whole(document)


def passed_on(tmp_path: Path, threads: int, rounds: int) -> Path:
    """Each CPU allocates an object and frees that of the CPU before it, all in turn."""
    rows: list[tuple[int, ...]] = []
    for number in range(rounds):
        cpu = number % threads
        rows.append(event(len(rows), tr.ALLOC, number, 64, cpu=cpu, cache=2))
        rows.append(event(len(rows), tr.FREE, number, 64, cpu=(cpu + 1) % threads, cache=2))
    path = tmp_path / "passed-on.ktrace"
    tr.write_trace(path, trace_of(rows, ["things"], cpus=threads))
    return path


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("threads", "window"), [(2, 1), (2, 1024), (5, 1), (5, 64)])
def test_objects_that_pass_from_thread_to_thread(
    tmp_path: Path, engine: str, threads: int, window: int
) -> None:
    """More threads than CPUs too. An object that two have at once would lose its content."""
    path = passed_on(tmp_path, threads, 20_000 if window > 1 else 2_000)
    document = real_time(path, f"engine={engine}", "touch=1", f"window={window}")
    assert document["machine"]["threads"] == threads
    assert document["end"]["asked_bytes"] == 0
    assert sum(in_use(document).values()) == 0


def test_nobody_is_further_ahead_than_the_window(tmp_path: Path) -> None:
    """CPU 0 allocates, CPU 1 frees; in the trace one object lives. No slab is ever given back."""
    rows: list[tuple[int, ...]] = []
    for number in range(20_000):
        rows.append(event(len(rows), tr.ALLOC, number, 128, cpu=0, cache=2))
        rows.append(event(len(rows), tr.FREE, number, 128, cpu=1, cache=2))
    path = tmp_path / "ahead.ktrace"
    tr.write_trace(path, trace_of(rows, ["things"], cpus=2))
    options = "sheaf_capacity=0,cpu_partial=0,min_partial=100000,slub_max_order=0"
    (cache,) = real_time(path, options, "window=64")["caches"]
    # Half of a window's events are allocations; a CPU slab beside those in use, and one that fills.
    assert cache["objects"] <= 64 + 2 * cache["objects_per_slab"]
    (cache,) = real_time(path, options, "window=40000", "cpus=1")["caches"]
    assert cache["objects"] == cache["objects_per_slab"]


# ---- Ranks --------------------------------------------------------------------------------------


def option_set(name: str, cpu_ns: list[int], modelled: int) -> OptionSet:
    rounds = [{"real_time": {"cpu_ns": value}} for value in cpu_ns]
    return OptionSet(name, name, rounds, {"modelled": {"ns": modelled}})


def test_misses_are_beyond_noise() -> None:
    slow = option_set("slow", [200, 201, 199, 200, 202], 50)
    fast = option_set("fast", [100, 101, 99, 100, 102], 70)
    noisy = option_set("noisy", [90, 300, 95, 310, 202], 10)
    (miss,) = misses([slow, fast])
    assert (miss.faster, miss.slower) == ("fast", "slow")
    assert miss.real.low > 1.9
    assert miss.modelled == pytest.approx(50 / 70)
    assert misses([slow, noisy]) == []
    assert misses([fast, option_set("right", [200] * 5, 71)]) == []


# ---- The command --------------------------------------------------------------------------------


def test_sets_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "compared.json"
    arguments = ["--real-time", "--touch", "--rounds", "3", "--set", "classes=kernel"]
    compared = ["--compare", "sheaf_capacity=0", "--compare", "engine=slob"]
    done = kmem(BOOT, *arguments, *compared, "--json", file)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(file.read_text())
    assert document["machine"]["touch"] is True
    assert [one["options"] for one in document["sets"]] == [
        "classes=kernel",
        "classes=kernel,sheaf_capacity=0",
        "classes=kernel,engine=slob",
    ]
    assert set(document["rank_correlation"]) == {"time", "memory", "misses"}
    for one in document["sets"]:
        assert len(one["rounds"]) == document["rounds"] == 3
        assert one["cpu_ratio"]["low"] <= one["cpu_ratio"]["median"] <= one["cpu_ratio"]["high"]
        expected = simulated(BOOT, one["options"])
        assert one["simulated"]["peak"]["pages"] == expected["peak"]["pages"]
        assert one["name"] in done.stdout
    assert document["sets"][0]["cpu_ratio"]["median"] == 1
    assert "rank correlation of CPU time" in done.stdout


def test_one_set() -> None:
    done = kmem(BOOT, "--real-time", "--rounds", "1", "--engine", "slab")
    assert done.returncode == 0, done.stderr
    for text in ("engine=slab", "medians of 1 round\n", "slabs: full", "waste: rounding"):
        assert text in done.stdout
    assert "rank" not in done.stdout.replace("are ranked by", "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--real-time", "--nodes", "2"], "--nodes"),
        (["--real-time", "--repeat", "2"], "--repeat"),
        (["--real-time", "--slabinfo", "x"], "--slabinfo"),
        (["--real-time", "--costs", "x"], "--costs"),
        (["--real-time", "--window", "0"], "window=0"),
        (["--real-time", "--cpus", "1025"], "cpus=1025"),
        (["--real-time", "--set", "freeze=never"], "freeze=never"),
        (["--real-time", "--compare", "nonsense=1"], "nonsense"),
        (["--compare", "engine=slab"], "--compare"),
        (["--touch"], "--touch"),
        (["--rounds", "3"], "--rounds"),
        (["--window", "3"], "--window"),
        (["--window", "0"], "--window"),
    ],
)
def test_bad_input_is_named(arguments: list[str], named: str) -> None:
    done = kmem(BOOT, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kmem: replay: ")
    assert named in line


def test_nothing_to_compare(tmp_path: Path) -> None:
    """Sets are compared by ratios of modelled time."""
    path, costs = tmp_path / "orphans.ktrace", tmp_path / "costs.csv"
    tr.write_trace(path, trace_of([event(0, tr.ORPHAN, 0, 64)]))
    costs.write_text("count,ns\nblock_scans,1\n")
    for arguments in ((path,), (BOOT, "--costs", costs)):
        done = kmem("--real-time", *arguments, "--compare", "engine=slab", "--rounds", "1")
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("kmem: replay: --compare: as it is: no time is modelled")
    assert kmem("--real-time", path, "--rounds", "1").returncode == 0


def test_bad_arguments_of_the_tool(tmp_path: Path) -> None:
    for argument in ("cpus", "touch=2", "window=x", "nodes=1"):
        done = tool(BOOT, "", argument)
        assert (done.returncode, done.stdout) == (2, "")
        assert argument.split("=")[-1] in done.stderr
    path = tmp_path / "bad.ktrace"
    path.write_bytes(b"nothing that could be a trace")
    done = tool(path, "")
    assert done.returncode == 1
    assert done.stderr.startswith(f"replay: {path}: byte 0: ")
