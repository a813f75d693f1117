# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab sheaves`: memory and time of per-CPU arrays of free objects.

A CPU's sheaves (SLUB) or array (SLAB) hold free objects. These keep slabs alive that would
otherwise be empty or serve other CPUs. The experiment compares memory and time with the classic
lists, `sheaf_capacity=0`: CPU slab, CPU partial list and node's list. For more CPUs it replays more
copies of the trace, each on CPUs of its own, so that each CPU's work does not depend on the
machine's size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from rich.table import Table

from kmem.common.errors import KmemError
from kmem.lab.replays import KERNEL, SLUB, Job, replay_all
from kmem.lab.report import Plot, Report, cell, show_experiment, table
from kmem.lab.traces import named_traces

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLASSIC = "classic lists"
SLAB = f"engine=slab,{KERNEL}"
SHEAVES = f"engine=slub,{KERNEL}"
CAPACITIES = (2, 4, 8, 16, 32, 64, 128)
LIMITS = (8, 32, 120)  # objects of SLAB's array; half of it moves at once
COPIES = (1, 4, 16, 64)
QUICK_CAPACITIES, QUICK_LIMITS, QUICK_COPIES = (4, 32), (32,), (1, 4)
MOMENTS, QUICK_MOMENTS = 50, 10
CPUS_MOST = 8192  # of the simulated machine
CALLS_MOST = 50_000_000  # calls of a replay; with more, fewer copies run

NOTES = (
    "pages: mean of the moments, all copies together; more: beyond the classic lists at the same"
    " moments, and that in KiB for each CPU. partial, per CPU: bytes of free objects at the end, in"
    " slabs on lists of nodes, and in sheaves, arrays, CPU slabs and CPU partial slabs.",
    "ns, saved: modelled time of a call, by assumed costs, of the allocator alone; nobody waits for"
    " a lock. locks: of nodes' lists, barns, and SLAB's shared arrays, for 1,000 calls.",
    "price: KiB for each CPU that a nanosecond a call costs, 0 where pages are saved too; a dash"
    " where no time is saved.",
    "by size: SLUB's own capacities. shared=0: SLAB without arrays shared between CPUs.",
)


def configurations(*, quick: bool) -> dict[str, str]:
    """Options by name; the classic lists first."""
    wanted = {CLASSIC: SLUB}
    for capacity in QUICK_CAPACITIES if quick else CAPACITIES:
        wanted[f"sheaves of {capacity}"] = f"{SHEAVES},sheaf_capacity={capacity}"
    wanted["sheaves by size"] = SHEAVES
    for limit in QUICK_LIMITS if quick else LIMITS:
        wanted[f"SLAB, arrays of {limit}"] = f"{SLAB},limit={limit},batchcount={limit // 2}"
    wanted["SLAB, by size"] = SLAB
    wanted["SLAB, by size, shared=0"] = f"{SLAB},shared=0"
    return wanted


def pages_at_moments(document: Mapping[str, Any]) -> list[int]:
    return [moment["pages"] for moment in document["moments"]]


def row_of(document: Mapping[str, Any], classic: Mapping[str, Any]) -> dict[str, Any]:
    pages, others = pages_at_moments(document), pages_at_moments(classic)
    counts, cpus = document["counts"], document["machine"]["cpus"]
    more_pages = mean(mine - other for mine, other in zip(pages, others, strict=True))
    ns, classic_ns = (d["modelled"]["ns_per_call"] for d in (document, classic))
    saved = round(classic_ns - ns, 3)
    more_kib = round(4 * more_pages / cpus, 2)
    locks = counts["list_locks"] + counts["barn_locks"] + counts["alien_locks"]
    return {
        "options": document["machine"]["options"],
        "mean_pages": round(mean(pages), 2),
        "more_percent": round(100 * more_pages / mean(others), 2) if any(others) else None,
        "more_kib_per_cpu": more_kib,
        "end_pages": document["end"]["pages"],
        "peak_pages": document["peak"]["pages"],
        "partial_slab_bytes": document["waste_bytes"]["partial_slabs"],
        "per_cpu_bytes": document["waste_bytes"]["per_cpu"],
        "fast_path_share": document["fast_path_share"],
        "locks_per_1000_calls": round(1000 * locks / counts["calls"], 2),
        "swaps_per_1000_calls": round(1000 * counts["compare_swaps"] / counts["calls"], 2),
        "ns_per_call": ns,
        "saved_ns_per_call": saved,
        "kib_per_cpu_per_ns": round(max(0.0, more_kib) / saved, 2) if saved > 0 else None,
    }


def copies_of(document: Mapping[str, Any], wanted: Sequence[int]) -> list[int]:
    """The numbers of copies that fit the machine and our time; a single copy always runs."""
    cpus, calls = document["trace"]["cpus"], document["counts"]["calls"]
    return [
        copies
        for copies in wanted
        if copies == 1 or (copies * cpus <= CPUS_MOST and copies * calls <= CALLS_MOST)
    ]


def measure(traces: Mapping[str, Path], *, quick: bool) -> list[dict[str, Any]]:
    wanted = configurations(quick=quick)
    moments = QUICK_MOMENTS if quick else MOMENTS
    first = replay_all({name: Job(path, SLUB) for name, path in traces.items()}, "traces")
    for name, document in first.items():
        if not document["counts"]["calls"]:
            raise KmemError(f"lab sheaves: {name}: the trace has no allocations")
    wanted_copies = {
        trace: copies_of(document, QUICK_COPIES if quick else COPIES)
        for trace, document in first.items()
    }
    jobs = {
        (trace, copies, label): Job(
            path,
            options,
            cpus=copies * first[trace]["trace"]["cpus"],
            repeat=copies,
            moments=moments,
        )
        for trace, path in traces.items()
        for copies in wanted_copies[trace]
        for label, options in wanted.items()
    }
    documents = replay_all(jobs, "sheaves and arrays")
    return [
        {"trace": trace, "cpus": document["machine"]["cpus"], "configuration": label}
        | row_of(document, documents[trace, copies, CLASSIC])
        for (trace, copies, label), document in documents.items()
    ]


def trace_table(trace: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    output = table(
        trace,
        (
            *("", "CPUs", "pages", "more", "KiB a CPU", "partial KiB", "per CPU KiB"),
            *("fast", "locks", "swaps", "ns a call", "saved", "price"),
        ),
    )
    for number, row in enumerate(rows):
        output.add_row(
            row["configuration"],
            cell(row["cpus"]),
            f"{row['mean_pages']:,.0f}",
            cell(row["more_percent"], "%"),
            cell(row["more_kib_per_cpu"]),
            f"{row['partial_slab_bytes'] / 1024:,.0f}",
            f"{row['per_cpu_bytes'] / 1024:,.0f}",
            f"{100 * row['fast_path_share']:.1f}%",
            cell(row["locks_per_1000_calls"]),
            cell(row["swaps_per_1000_calls"]),
            *(cell(row[name]) for name in ("ns_per_call", "saved_ns_per_call")),
            cell(row["kib_per_cpu_per_ns"]),
            end_section=number + 1 < len(rows) and rows[number + 1]["cpus"] != row["cpus"],
        )
    return output


def plot_trace(rows: Sequence[Mapping[str, Any]], panels: Sequence[Axes]) -> None:
    """Memory against time; a panel for the fewest and a panel for the most CPUs."""
    counts = sorted({row["cpus"] for row in rows})
    for axes, cpus in zip(panels, (counts[0], counts[-1]), strict=True):
        for row in rows:
            if row["cpus"] != cpus:
                continue
            label, at = row["configuration"], (row["ns_per_call"], row["mean_pages"])
            slab, classic = label.startswith("SLAB"), label == CLASSIC
            colour = "black" if classic else "tab:purple" if slab else "tab:blue"
            axes.plot(*at, "*" if classic else "s" if slab else "o", color=colour)
            words = ("sheaves of ", "SLAB, arrays of ", "sheaves ", "SLAB, ")
            short = next((label.removeprefix(w) for w in words if label.startswith(w)), label)
            axes.annotate(short, at, fontsize="x-small", xytext=(4, 3), textcoords="offset points")
        axes.set_title(f"{cpus} CPU{'s' if cpus > 1 else ''}", fontsize="medium")
        axes.set_xlabel("modelled ns a call")
        axes.set_ylabel("pages, mean of the moments")
        axes.margins(x=0.15)
        axes.grid(alpha=0.3)


def sheaves_report(traces: Sequence[Path] = (), *, quick: bool = False) -> Report:
    named = named_traces(traces)
    rows = measure(named, quick=quick)
    of_trace = {name: [row for row in rows if row["trace"] == name] for name in named}
    return Report(
        "sheaves",
        "arrays of free objects (SLUB's sheaves, SLAB's arrays) beside SLUB's classic lists",
        {"rows": rows},
        [trace_table(name, group) for name, group in of_trace.items()],
        list(NOTES),
        [
            Plot(
                f"{name}: memory and time (circles: sheaves, squares: SLAB)",
                lambda panels, group=group: plot_trace(group, panels),  # type: ignore[misc]
                2,
            )
            for name, group in of_trace.items()
        ],
    )


def show_sheaves(
    traces: Sequence[Path], *, quick: bool, json_file: Path | None, html_file: Path | None
) -> None:
    show_experiment(lambda: sheaves_report(traces, quick=quick), json_file, html_file)
