# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab heaps`: recorded heaps of real programs under each policy of malloc.

With options to check, the programs themselves run, on the defaults and on these options in turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kmem.bench.allocators import LIBKMEM
from kmem.common.errors import BadUsage, KmemError
from kmem.common.figures import Ratio, median_ratio
from kmem.lab.heap_list import HEAP_LIST, Heap
from kmem.lab.replays import Job, replay, replay_all
from kmem.lab.report import Report, show_experiment, table
from kmem.replay.tool import check_options
from kmem.traces import file as tr

MOMENTS = 100  # of a replay, over which memory is added up
MIB = 1 << 20

# Name and options of each policy.
POLICIES = {
    "default": "",
    "slub": "engine=slub,sheaf_capacity=0",
    "slab": "engine=slab",
    "slob": "engine=slob",
    "kernel": "classes=kernel",
    "small": "sheaf_capacity=32",
}


def chosen(names: Sequence[str]) -> list[Heap]:
    known = {heap.name: heap for heap in HEAP_LIST}
    for name in names:
        if name not in known:
            raise BadUsage(f"lab heaps: {name}: expected one of {', '.join(known)}")
    return [known[name] for name in names or known]


def heap_figures(heap: Heap) -> dict[str, Any]:
    """Events, living bytes at the peak, and asked sizes of the trace."""
    records = tr.read_trace(heap.trace).records
    is_born = pl.col("operation") & tr.OPERATION_MASK == tr.ALLOC
    signed = pl.col("requested").cast(pl.Int64)
    live = records.select(pl.when(is_born).then(signed).otherwise(-signed).cum_sum())[:, 0]
    asked = records.filter(is_born)["requested"].to_numpy()
    median, high = np.percentile(asked, [50, 90])
    return {
        "events": records.height,
        "allocations": len(asked),
        "peak_live_bytes": int(live.to_numpy().max()),
        "median_bytes": int(median),
        "high_bytes": int(high),
        "sizes": len(np.unique(asked)),
        "threads": records["thread"].n_unique(),
    }


def policy_figures(document: dict[str, Any]) -> dict[str, Any]:
    """Pages at the peak; and pages at each moment times the events since the one before.

    Engines differ in the size from which a block has pages of its own, so only all pages compare.
    """
    moments = document["moments"]
    steps = np.diff([0, *(moment["steps"] for moment in moments)])
    pages = np.array([moment["pages"] for moment in moments])
    page_bytes = document["machine"]["page_bytes"]
    return {
        "peak_pages": document["peak"]["pages"],
        "peak_slab_pages": document["peak"]["slab_pages"],
        "mib_events": round(float(np.sum(steps * pages)) * page_bytes / MIB, 1),
        "modelled_ns": document["modelled"]["ns"],
    }


def report(names: Sequence[str]) -> Report:
    heaps = chosen(names)
    jobs = {
        (heap.name, policy): Job(heap.trace, options, moments=MOMENTS)
        for heap in heaps
        for policy, options in POLICIES.items()
    }
    documents = replay_all(jobs, "replays")
    rows = []
    shown = table(
        "Heaps of real programs", ["", "events", "peak MiB", "median B", "90% B", "sizes"]
    )
    policies = table(
        "Pages at the peak and those of slabs, MiB-events, and modelled ms",
        ["", "policy", "pages", "of slabs", "MiB-events", "ms"],
        texts=2,
    )
    for heap in heaps:
        facts = heap_figures(heap)
        results = {name: policy_figures(documents[heap.name, name]) for name in POLICIES}
        rows.append({"name": heap.name, **facts, "policies": results})
        shown.add_row(
            heap.name,
            f"{facts['events']:,}",
            f"{facts['peak_live_bytes'] / MIB:.2f}",
            f"{facts['median_bytes']:,}",
            f"{facts['high_bytes']:,}",
            f"{facts['sizes']:,}",
        )
        for name, one in results.items():
            policies.add_row(
                heap.name if name == "default" else "",
                name,
                f"{one['peak_pages']:,}",
                f"{one['peak_slab_pages']:,}",
                f"{one['mib_events']:,.0f}",
                f"{one['modelled_ns'] / 1e6:.2f}",
            )
        policies.add_section()
    notes = [f"{name}: KMEM_OPTIONS={options or '(none)'}" for name, options in POLICIES.items()]
    document = {"policies": POLICIES, "rows": rows}
    return Report("heaps", "Heaps of real programs", document, [shown, policies], notes)


def measured(heap: Heap, options: str, rounds: int) -> dict[str, Any]:
    """Ratios of the real program's figures, options to defaults, from interleaved runs."""
    if missing := heap.program.missing():
        packages = ", ".join(heap.program.packages)
        raise KmemError(f"lab heaps: {heap.name}: no {missing[0]}; Debian packages {packages}")
    samples: dict[str, list[Any]] = {"": [], options: []}
    with tempfile.TemporaryDirectory(prefix="kmem-heap-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # a server's user has to read files in it
        run = heap.program.prepare(folder, heap.checked)
        run(LIBKMEM, {"KMEM_OPTIONS": ""})  # files come into the page cache
        for number in range(rounds):
            for one in ("", options) if number % 2 else (options, ""):
                samples[one].append(run(LIBKMEM, {"KMEM_OPTIONS": one}))

    def ratio(figure: str) -> Ratio:
        ours, theirs = ([getattr(s, figure) for s in samples[one]] for one in (options, ""))
        return median_ratio(ours, theirs)

    found = {"cpu_seconds": ratio("cpu_seconds"), "peak_bytes": ratio("peak_bytes")}
    return {
        "name": heap.name,
        **{
            figure: {"ratio": one.median, "low": one.low, "high": one.high}
            for figure, one in found.items()
        },
    }


def check_report(names: Sequence[str], options: str, rounds: int) -> Report:
    heaps = chosen(names)
    replay(Job(heaps[0].trace, options))  # refuses options that a program would only warn of
    rows = [measured(heap, options, rounds) for heap in heaps]
    shown = table(
        f"Real programs, {options} beside the defaults", ["", "CPU time", "95%", "peak", "95%"]
    )
    for row in rows:
        cells = []
        for figure in ("cpu_seconds", "peak_bytes"):
            one = row[figure]
            cells += [f"{one['ratio']:.3f}", f"{one['low']:.3f}-{one['high']:.3f}"]
        shown.add_row(row["name"], *cells)
    note = f"ratios of medians of {rounds} interleaved rounds, with bootstrap intervals"
    document = {"options": options, "rounds": rounds, "rows": rows}
    return Report("heaps", "Real programs", document, [shown], [note])


def show_heaps(
    names: Sequence[str], check: str | None, rounds: int, json_file: Path | None
) -> None:
    chosen(names)
    if check is None:
        show_experiment(lambda: report(names), json_file, None)
        return
    if not check:
        raise BadUsage("lab heaps: --check: expected options, as kmem tune prints them")
    check_options([check])
    show_experiment(lambda: check_report(names, check, rounds), json_file, None)
