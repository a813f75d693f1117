# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Recordings of three kernels on machines of 4 and of 16 CPUs (scripts/record_kernels.py): they
read, their lives are sound, and caches and boots on the simulated machine are as the kernel's."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kmem.lab import boots, workload_kernels
from kmem.traces import file as tr
from kmem.traces.slabinfo import CacheLine, parse_slabinfo

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import record_kernels

TRACES = Path(tr.__file__).parent
NAME = re.compile(r"(?P<load>[a-z0-9-]+)-(?P<kernel>\d+\.\d+)-(?P<cpus>\d+)cpu")
RECORDED = sorted(path.stem for path in TRACES.glob("*cpu.ktrace"))
# The boot caches of 7.2 have no sheaves, and maple nodes ask for more, which a trace does not say.
OTHER_CAPACITIES = {"7.2": ["kmem_cache", "kmem_cache_node", "maple_node"]}
# Attributes that a kernel does not have.
WITHOUT = {("sheaf_capacity", "6.1"), ("sheaf_capacity", "6.12")}


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


def replayed(boot: boots.Boot) -> dict[str, Any]:
    return boots.replay(boot, boot.kernel)


def test_every_kernel_and_machine_was_recorded() -> None:
    """Ten loads of three kernels on two machines."""
    machines = {machine_of(name) for name in RECORDED}
    assert machines == {(kernel, cpus) for kernel in ("6.1", "6.12", "7.2") for cpus in (4, 16)}
    loads = {name.rsplit("-", 2)[0] for name in RECORDED}
    assert len(RECORDED) == len(machines) * len(loads) == 60


def test_recorded_loads_are_those_of_the_script() -> None:
    recorded = {name: stats_of(name)["load"] for name in RECORDED if not name.startswith("boot-")}
    assert recorded == {
        record_kernels.kept_name(record_kernels.Machine(kernel, cpus), load.name): load.command
        for kernel in record_kernels.KERNELS
        for cpus in record_kernels.CPUS
        for load in record_kernels.loads_of(cpus)
    }


def test_generators_run_the_recorded_loops() -> None:
    """Groups and loops of the generators' settings are those of the recorded commands."""
    for cpus in record_kernels.CPUS:
        commands = {load.name: load.command.split() for load in record_kernels.loads_of(cpus)}
        for program in workload_kernels.programs(cpus, "6.1"):
            words = commands[program.name]
            groups, loops = (words[2], words[4]) if words[0] == "hackbench" else words[3:]
            settings = program.settings
            assert (str(settings["groups"]), str(settings["loops"])) == (groups, loops)


def test_attributes_are_lines_of_cache_name_and_value() -> None:
    text = (
        "/sys/kernel/slab/b-1/order:3\n/sys/kernel/slab/b-1/partial:2 N0=2\n"
        "/sys/kernel/slab/a/ctor:init+0x0/0x10\ngrep: no file\n"
    )
    rows = "a\tctor\tinit+0x0/0x10\nb-1\torder\t3\nb-1\tpartial\t2 N0=2\n"
    assert record_kernels.attributes_of(text) == rows


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


@pytest.mark.parametrize("boot", boots.BOOTS, ids=lambda boot: boot.name)
def test_a_boot_is_as_the_kernels(boot: boots.Boot) -> None:
    """Shapes and limits of every cache are the kernel's own, and slab pages are near to them."""
    row = replayed(boot)
    table = slab_table(boot.name)
    attributes = boot.attributes()
    assert row["caches"] == len(table) == len(attributes)
    assert row["other_shapes"] == []
    assert row["other_limits"] == {
        "cpu_partial": [],
        "min_partial": [],
        "sheaf_capacity": OTHER_CAPACITIES.get(boot.kernel, []),
    }
    for limit in boots.LIMITS:
        known = [cache for cache, values in attributes.items() if limit in values]
        assert len(known) == (0 if (limit, boot.kernel) in WITHOUT else len(table))
    assert row["kernel_pages"] == sum(line.slabs * line.pages_per_slab for line in table.values())
    assert abs(row["pages"] / row["kernel_pages"] - 1) <= 0.05
    assert row["large_caches"] == sum(
        line.slabs * line.pages_per_slab > 5 for line in table.values()
    )
    assert row["large_caches_within"] >= 0.9 * row["large_caches"]
    assert row["objects_first"] <= 0.3 * row["live_objects"]


def test_another_kernels_policies_are_seen() -> None:
    """7.2 has no CPU partial lists, and sheaves: with 6.12's policies its boot is another one."""
    row = boots.replay(boots.Boot("7.2", 4), "6.12")
    assert row
    assert len(row["other_limits"]["cpu_partial"]) == row["caches"]
    assert not row["within"]


def test_other_shapes_are_named() -> None:
    boot = boots.Boot("6.12", 4)
    ours = boots.caches_of_ours(boot, "6.12")
    assert boots.other_shapes(boot, ours) == []
    ours["dentry"]["objects_per_slab"] += 1
    ours["pid"]["order"] += 1
    ours["filp"]["min_partial"] += 1
    assert sorted(boots.other_shapes(boot, ours)) == ["dentry", "pid"]
    assert boots.other_limits(boot, ours)["min_partial"] == ["filp"]


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
