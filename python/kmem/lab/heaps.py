# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab heaps`: recorded heaps of real programs under each policy of malloc.

With options to check, the programs themselves run, on the defaults and on these options in turn,
and recordings of that load say before what they would show.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.table import Table

from kmem.bench.allocators import LIBKMEM
from kmem.bench.timed import Sample
from kmem.common.errors import BadUsage, KmemError
from kmem.common.figures import Change, median_ratio, paired_change
from kmem.lab.heap_list import HEAP_LIST, HELD_BACK, Heap, record
from kmem.lab.replays import Job, replay, replay_all
from kmem.lab.report import Report, show_experiment, table
from kmem.replay.derived import memory_of
from kmem.replay.tool import refuse_options
from kmem.traces import file as tr
from kmem.tune.promise import Promise, promise_of, signed

WORTH = 0.01  # of a process's memory or time; less is worth no option
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


def chosen(names: Sequence[str], *, check: bool = False) -> list[Heap]:
    """Those of the set without names; programs that were held back can be checked alone."""
    known = {heap.name: heap for heap in (*HEAP_LIST, *(HELD_BACK if check else ()))}
    for name in names:
        if name not in known:
            only = (
                "" if check or name not in [heap.name for heap in HELD_BACK] else " without --check"
            )
            raise BadUsage(f"lab heaps: {name}: expected one of {', '.join(known)}{only}")
    return [known[name] for name in names] or list(HEAP_LIST)


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
        "resident_pages": document["peak"]["resident_pages"],
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
        "Pages at the peak, those of slabs and those that are resident, MiB-events, modelled ms",
        ["", "policy", "pages", "of slabs", "resident", "MiB-events", "ms"],
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
                f"{one['resident_pages']:,}",
                f"{one['mib_events']:,.0f}",
                f"{one['modelled_ns'] / 1e6:.2f}",
            )
        policies.add_section()
    notes = [f"{name}: KMEM_OPTIONS={options or '(none)'}" for name, options in POLICIES.items()]
    document = {"policies": POLICIES, "rows": rows}
    return Report("heaps", "Heaps of real programs", document, [shown, policies], notes)


RECORDINGS = 3  # of a load, for the interval of its promise


def promised(heap: Heap, options: str) -> Promise:
    """What the options would change, by replays of whole recordings of the load that is checked."""
    figures: dict[str, list[dict[str, float]]] = {"": [], options: []}
    for _ in range(RECORDINGS):
        with tempfile.TemporaryDirectory(prefix="kmem-heap-") as name:
            folder = Path(name)
            folder.chmod(0o711)  # a server's user has to read files in it
            trace = folder / f"{heap.name}.ktrace"
            record(replace(heap, recorded=heap.checked), folder, trace, None)
            for one in figures:
                document = replay(Job(trace, one))
                figures[one].append(
                    {
                        "memory_bytes": memory_of(document, program=True),
                        "modelled_ns": document["modelled"]["ns"],
                    }
                )
    return promise_of(figures[options], figures[""])


def measured(heap: Heap, options: str, rounds: int) -> dict[str, Any]:
    """The real program's figures, from rounds of three runs: defaults, options, and defaults again.

    What differs between both runs on the defaults is noise, and as much of it is in every other
    difference. Options run between them, so that a load that grows or ends meanwhile meets both.
    """
    samples: dict[str, list[Sample]] = {"before": [], "options": [], "after": []}
    with tempfile.TemporaryDirectory(prefix="kmem-heap-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        run = heap.program.prepare(folder, heap.checked)
        run(LIBKMEM, {"KMEM_OPTIONS": ""})  # files come into the page cache
        for _ in range(rounds):
            for kind, those in samples.items():
                words = {"KMEM_OPTIONS": options if kind == "options" else ""}
                those.append(run(LIBKMEM, words))
    found: dict[str, Any] = {"name": heap.name}
    for figure in ("cpu_seconds", "peak_bytes"):
        before, ours, after = (
            [float(getattr(sample, figure)) for sample in those] for those in samples.values()
        )
        around = [(one + other) / 2 for one, other in zip(before, after, strict=True)]
        ratio = median_ratio(ours, around)
        found[figure] = {
            "ratio": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
            "of_defaults": float(np.median(before + after)),
            "seen": paired_change(ours, around).as_json(),
            "noise": paired_change(after, before).as_json(),
        }
    return found


def verdict(promise: Change, seen: Change, noise: Change, whole: float) -> str:
    """Whether the program shows what was promised of a figure.

    The interval of the promise has to meet what was seen; figures agree too if both are less than
    is worth an option, a hundredth of the whole. But runs on the defaults that differ by more than
    all that was promised would meet anything, so they tell nothing; nor does a distance that is no
    longer than theirs.
    """
    distance = promise.distance(seen)
    if max(abs(seen.low), abs(seen.high), promise.reach) <= WORTH * whole:
        return "agrees"
    if distance > noise.reach:
        return "differs"
    is_hidden = noise.reach > max(promise.reach, WORTH * whole)
    return "cannot be told" if distance or is_hidden else "agrees"


def checked(heap: Heap, options: str, rounds: int) -> dict[str, Any]:
    """A program's figures with their promises."""
    if missing := heap.program.missing():
        packages = ", ".join(heap.program.packages)
        raise KmemError(f"lab heaps: {heap.name}: no {missing[0]}; Debian packages {packages}")
    promise = promised(heap, options)
    row = measured(heap, options, rounds)
    for figure in ("cpu_seconds", "peak_bytes"):
        one: Change = getattr(promise, figure)
        seen, noise = as_change(row[figure]["seen"]), as_change(row[figure]["noise"])
        row[figure]["promise"] = one.as_json()
        row[figure]["verdict"] = verdict(one, seen, noise, row[figure]["of_defaults"])
    return row


def as_change(figures: dict[str, float]) -> Change:
    return Change(figures["change"], figures["low"], figures["high"])


def promise_table(title: str, rows: Sequence[dict[str, Any]], figure: str, unit: float) -> Table:
    """Promise and sight of a figure; shares are of the whole process on the defaults."""
    headings = ["", "defaults", "promised", "seen", "noise", "promised, %", "seen, %", ""]
    shown = table(title, headings)
    for row in rows:
        one = row[figure]
        whole = one["of_defaults"]
        promise, seen = as_change(one["promise"]), as_change(one["seen"])
        shown.add_row(
            row["name"],
            f"{whole / unit:,.2f}",
            signed(promise, unit, 2),
            signed(seen, unit, 2),
            signed(as_change(one["noise"]), unit, 2),
            f"{100 * promise.median / whole:+.1f}",
            f"{100 * seen.median / whole:+.1f}",
            one["verdict"],
        )
    return shown


def check_report(names: Sequence[str], options: str, rounds: int) -> Report:
    heaps = chosen(names, check=True)
    replay(Job(HEAP_LIST[0].trace, options))  # refuses options that a program would only warn of
    rows = [checked(heap, options, rounds) for heap in heaps]
    memory = promise_table(
        f"Peak resident MiB, {options} beside the defaults", rows, "peak_bytes", MIB
    )
    time = promise_table("CPU ms", rows, "cpu_seconds", 1e-3)
    notes = [
        f"promised: by replays of {RECORDINGS} recordings of this load, with the errors that"
        " replays have had; time is modelled with assumed costs.",
        f"seen: {rounds} rounds of defaults, options and defaults: the middle one without the mean"
        " of both others, with intervals of 95% by signed ranks. noise: the last without the"
        " first.",
        f"agrees: the intervals meet, or all is within {100 * WORTH:.0f}% of the process; cannot be"
        " told: runs on the defaults differ by more than the promise, or than what it misses.",
    ]
    document = {"options": options, "rounds": rounds, "recordings": RECORDINGS, "rows": rows}
    return Report("heaps", "Real programs", document, [memory, time], notes)


def show_heaps(
    names: Sequence[str], check: str | None, rounds: int, json_file: Path | None
) -> None:
    chosen(names, check=check is not None)
    if check is None:
        show_experiment(lambda: report(names), json_file, None)
        return
    if not check:
        raise BadUsage("lab heaps: --check: expected options, as kmem tune prints them")
    refuse_options([check])
    show_experiment(lambda: check_report(names, check, rounds), json_file, None)
