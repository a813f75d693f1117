# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Recordings of three kernels on machines of 4 and of 16 CPUs (scripts/record_kernels.py): they
read, their lives are sound, and caches and boots on the simulated machine are as the kernel's."""

from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kmem.lab import workload_kernels
from kmem.traces import file as tr
from kmem.traces.slabinfo import CacheLine, parse_slabinfo

ROOT = Path(__file__).resolve().parents[2]
TRACES = Path(tr.__file__).parent
NAME = re.compile(r"(?P<load>[a-z0-9-]+)-(?P<kernel>\d+\.\d+)-(?P<cpus>\d+)cpu")
RECORDED = sorted(path.stem for path in TRACES.glob("*cpu.ktrace"))
# Attributes that a kernel does not have.
WITHOUT = {("sheaf_capacity", "6.1"), ("sheaf_capacity", "6.12")}
BOOTS = [name for name in RECORDED if name.startswith("boot-")]


def machine_of(name: str) -> tuple[str, int]:
    match = NAME.fullmatch(name)
    assert match, name
    return match["kernel"], int(match["cpus"])


def stats_of(name: str) -> dict[str, str]:
    lines = (TRACES / f"{name}.stats.txt").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def numbers_of(text: str) -> dict[str, int]:
    """Words and numbers that take turns."""
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def slab_table(name: str) -> dict[str, CacheLine]:
    text = (TRACES / f"{name}.slabinfo.txt").read_text()
    return {cache.name: cache for cache in parse_slabinfo(text)}


def attributes(name: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    text = gzip.decompress((TRACES / f"{name}.attributes.tsv.gz").read_bytes()).decode()
    for cache, attribute, value in csv.reader(text.splitlines(), delimiter="\t"):
        found.setdefault(cache, {})[attribute] = value
    return found


def known_kernels() -> list[str]:
    """The values of option kernel."""
    header = (ROOT / "src" / "base" / "kernels.h").read_text()
    (text,) = re.findall(r'#define KERNEL_VERSIONS ((?:\\?\s*"[^"]*")+)', header)
    return "".join(re.findall(r'"([^"]*)"', text)).split()


def skip_unknown(kernel: str) -> None:
    if kernel not in known_kernels():
        pytest.skip(f"option kernel has no {kernel} yet")


def test_every_kernel_and_machine_was_recorded() -> None:
    """Ten loads of three kernels on two machines."""
    machines = {machine_of(name) for name in RECORDED}
    assert machines == {(kernel, cpus) for kernel in ("6.1", "6.12", "7.2") for cpus in (4, 16)}
    loads = {name.rsplit("-", 2)[0] for name in RECORDED}
    assert len(RECORDED) == len(machines) * len(loads) == 60


@pytest.mark.parametrize("name", RECORDED)
def test_recording_reads(name: str) -> None:
    """read_trace checks that each object is allocated and freed at most once."""
    kernel, cpus = machine_of(name)
    trace = tr.read_trace(TRACES / f"{name}.ktrace")
    stats = stats_of(name)
    counts = numbers_of(stats["counts"])
    operations = trace.records["operation"] & tr.OPERATION_MASK
    for operation, word in (
        (tr.ALLOC, "allocations"),
        (tr.FREE, "frees"),
        (tr.IMPLIED, "implied"),
        (tr.ORPHAN, "orphans"),
    ):
        assert (operations == operation).sum() == counts[word] or operation == tr.FREE
    assert trace.cpus == cpus
    assert counts["lost"] == 0
    assert stats["kernel"].split()[2].startswith(f"{kernel}.")
    assert f"-smp {cpus} " in stats["emulator"]
    assert "slab_nomerge" in stats["command line"]
    used = trace.records["cpu"].n_unique()
    assert used == cpus or name.startswith(("tcp", "udp", "hackbench-g1-", "boot"))
    assert trace.records.height > 5000
    times = trace.records["time"]
    assert times.is_sorted()
    # Times are the kernel's count of events, frees of NULL and implied frees among them.
    assert 0.5 <= trace.records.height / (times[-1] + 1) <= 1.2


@pytest.mark.parametrize("name", RECORDED)
def test_names_are_true(name: str) -> None:
    """Names are caches of the table of the kernel, or places of calls in older kernels."""
    table = slab_table(name)
    trace = tr.read_trace(TRACES / f"{name}.ktrace")
    for cache in trace.caches[2:]:
        assert cache in table or cache.startswith("?"), cache
    if machine_of(name)[0] == "7.2":
        assert [cache for cache in trace.caches if cache.startswith("?")] == ["?"]


def one_of_each(table: dict[str, CacheLine], cpus: int) -> tr.Trace:
    """A trace that allocates an object of each cache."""
    rows: dict[str, Any] = {
        "time": range(len(table)),
        "requested": [cache.object_size for cache in table.values()],
        "given": [cache.object_size for cache in table.values()],
        "thread": [0] * len(table),
        "object": range(len(table)),
        "site": [0] * len(table),
        "flags": [0] * len(table),
        "cpu": [0] * len(table),
        "cache": range(2, 2 + len(table)),
        "operation": [tr.ALLOC] * len(table),
    }
    columns = [pl.Series(name, list(values), tr.TYPES[name]) for name, values in rows.items()]
    return tr.Trace(pl.DataFrame(columns), ["kmalloc", "?", *table], [""], len(table), cpus)


def caches_of_ours(
    folder: Path, table: dict[str, CacheLine], kernel: str, cpus: int
) -> dict[str, dict[str, int]]:
    path = folder / "one.ktrace"
    tr.write_trace(path, one_of_each(table, cpus))
    tool = ROOT / "build" / "tools" / "replay"
    done = subprocess.run(
        [tool, path, f"options=kernel={kernel},slab_merge=0"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {cache["name"]: cache for cache in json.loads(done.stdout)["caches"]}


@pytest.mark.parametrize("name", BOOTS)
def test_slabs_have_the_shape_of_the_kernels(tmp_path: Path, name: str) -> None:
    """Objects and pages of a slab, of every cache of the kernel's table."""
    kernel, cpus = machine_of(name)
    skip_unknown(kernel)
    table = slab_table(name)
    ours = caches_of_ours(tmp_path, table, kernel, cpus)
    differences = {
        cache: (shape, theirs)
        for cache, line in table.items()
        if (shape := (ours[cache]["objects_per_slab"], 1 << ours[cache]["order"]))
        != (theirs := (line.objects_per_slab, line.pages_per_slab))
    }
    assert differences == {}


@pytest.mark.parametrize("name", BOOTS)
def test_limits_of_caches_are_the_kernels(tmp_path: Path, name: str) -> None:
    """Attributes of every cache that say how much CPUs and nodes keep."""
    kernel, cpus = machine_of(name)
    skip_unknown(kernel)
    table = slab_table(name)
    theirs = attributes(name)
    ours = caches_of_ours(tmp_path, table, kernel, cpus)
    assert set(theirs) == set(table)
    for limit in ("cpu_partial", "min_partial", "sheaf_capacity"):
        kept = {cache: int(values[limit]) for cache, values in theirs.items() if limit in values}
        assert {cache: ours[cache][limit] for cache in kept} == kept
        assert len(kept) == (0 if (limit, kernel) in WITHOUT else len(table))


@pytest.mark.parametrize("name", BOOTS)
def test_a_replayed_boot_has_the_kernels_pages(tmp_path: Path, name: str) -> None:
    kernel, _ = machine_of(name)
    skip_unknown(kernel)
    file = tmp_path / "replay.json"
    arguments = ["--slabinfo", TRACES / f"{name}.slabinfo.txt", "--set", f"kernel={kernel}"]
    done = subprocess.run(
        [ROOT / "kmem", "replay", TRACES / f"{name}.ktrace", *arguments, "--json", file],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert f"kernel={kernel}" in document["machine"]["options"]
    recorded = document["recorded"]
    table = slab_table(name)
    pages = {cache: line.slabs * line.pages_per_slab for cache, line in table.items()}
    ours = {row["cache"]: row["pages"] for row in recorded["caches"]}
    assert recorded["kernel_pages"] == sum(pages.values())
    assert abs(recorded["pages"] / recorded["kernel_pages"] - 1) <= 0.05
    large = {cache: count for cache, count in pages.items() if count > 5}
    near = [cache for cache, count in large.items() if abs(ours[cache] / count - 1) <= 0.1]
    assert len(near) >= 0.9 * len(large)
    assert recorded["other_layout"] == []


def test_the_table_of_events_is_true() -> None:
    """README.md beside the traces has the events of each."""
    text = (TRACES / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if "cpu" not in line]
    shown = {
        f"{row[0].strip('`')}-{kernel}-{cpus}cpu": int(cell.replace(",", ""))
        for row in rows
        if len(row) == 8 and row[0].startswith("`")
        for (cpus, kernel), cell in zip(
            [(cpus, kernel) for cpus in (4, 16) for kernel in ("6.1", "6.12", "7.2")],
            row[2:],
            strict=True,
        )
    }
    assert shown == {
        name: tr.read_trace(TRACES / f"{name}.ktrace").records.height for name in RECORDED
    }


def share_of_orphans(load: str, kernel: str, cache: str) -> float:
    """Of a recording's frees without allocation, the part that is of a cache."""
    events = tr.read_trace(TRACES / f"{load}-{kernel}-4cpu.ktrace").named()
    operation = pl.col("operation") & tr.OPERATION_MASK
    orphans = events.filter((operation == tr.ORPHAN) & (pl.col("cache") == cache)).height
    return orphans / max(1, events.filter(operation == tr.ORPHAN).height)


def test_bulk_calls_are_missing_as_the_readme_says() -> None:
    """Maple nodes are the orphans of 6.1; 7.2 has the data of UDP's messages without the heads."""
    assert share_of_orphans("forks", "6.1", "maple_node") > 0.95
    events = tr.read_trace(TRACES / "udp-rr-7.2-4cpu.ktrace").named()
    born = events.filter(pl.col("operation") & tr.OPERATION_MASK == tr.ALLOC)["cache"]
    assert (born == "skbuff_small_head").sum() >= 6000
    assert (born == "skbuff_head_cache").sum() < 100


def event_shape(rows: list[tuple[int, ...]]) -> workload_kernels.Figures:
    """Figures of (operation, object, CPU) at the kernel's function of heads."""
    columns: dict[str, list[int]] = {
        "operation": [row[0] for row in rows],
        "object": [row[1] for row in rows],
        "cpu": [row[2] for row in rows],
        "time": list(range(len(rows))),
        "site": [1] * len(rows),
        "cache": [2] * len(rows),
        "given": [256] * len(rows),
    }
    records = pl.DataFrame(
        [
            pl.Series(name, columns.get(name, [0] * len(rows)), kind)
            for name, kind in tr.TYPES.items()
        ]
    )
    sites = ["", "__alloc_skb+0x10"]
    trace = tr.Trace(records, ["kmalloc", "?", "heads"], sites, 10, 4)
    return workload_kernels.figures_of(trace, recorded=True)


def test_figures_by_hand() -> None:
    """Lifetimes of 3, 3, 3 and 1 events, one free of four on another CPU, three objects at once."""
    figures = event_shape(
        [
            (tr.ALLOC, 0, 0),
            (tr.ALLOC, 1, 1),
            (tr.PAGE_ALLOC, 9, 0),
            (tr.ALLOC, 2, 3),
            (tr.FREE, 0, 2),
            (tr.FREE, 1, 1),
            (tr.FREE, 2, 3),
            (tr.ALLOC, 3, 0),
            (tr.FREE, 3, 0),
        ]
    )
    assert (figures.median, figures.percentile_90) == (3, 3)
    assert figures.other_cpu == 25
    assert figures.live == {"cache-256": 3}


def test_misses_of_generators_are_named() -> None:
    figures = workload_kernels.Figures(100, 1000, 50, {"cache-256": 10})
    other = workload_kernels.Figures(201, 499, 55.1, {"cache-256": 21})

    def misses(generated: workload_kernels.Figures) -> list[str]:
        return workload_kernels.Comparison("x", "6.1", 4, figures, generated).misses()

    assert misses(figures) == []
    assert misses(other) == ["median", "percentile_90", "live_at_once", "other_cpu"]
