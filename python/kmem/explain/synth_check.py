# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab synth --check`: whether loads made of tables rank policies as the real traces do.

Each recorded trace is replayed, the slab table at its end is taken, and a load is made of the table
alone. Trace and load are then replayed under the same policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from kmem.common.errors import KmemError
from kmem.common.figures import rank_correlation
from kmem.common.spread import run_all
from kmem.explain.synth import plan_of, synthesise
from kmem.explain.table import Cache, Table
from kmem.lab.replays import Job, replay, replay_all
from kmem.lab.report import Report, cell, table
from kmem.traces import file as tr

TRACES = Path(tr.__file__).parent
BASE = "6.12"
CLASSES = "classes=kernel"
POLICIES = {
    "6.1": "kernel=6.1",
    BASE: "kernel=6.12",
    "7.2": "kernel=7.2",
    "6.12, no CPU partial lists": "kernel=6.12,cpu_partial=0",
    "6.12, order 0": "kernel=6.12,slub_max_order=0",
    "7.2, sheaves of 128": "kernel=7.2,sheaf_capacity=128",
    "SLAB": f"engine=slab,{CLASSES}",
    "SLOB": f"engine=slob,{CLASSES}",
}
LOADS = (
    "boot",
    "hackbench-g1-process",
    "hackbench-g4-thread",
    "hackbench-g16-process",
    "tcp-rr",
    "udp-rr",
    "forks",
)
KERNELS = ("6.1", "6.12", "7.2")
CPUS = (4, 16)
MEASURES = {"pages": "slab pages", "ns": "modelled time"}


def names(*, quick: bool) -> list[str]:
    if quick:
        return [f"{load}-{BASE}-4cpu" for load in ("boot", "hackbench-g1-process", "tcp-rr")]
    return [f"{load}-{kernel}-{cpus}cpu" for load in LOADS for kernel in KERNELS for cpus in CPUS]


def table_of(document: Mapping[str, Any]) -> Table:
    """The slab table at the end of a replay, with the figures that /proc/slabinfo has."""
    caches = [
        Cache(
            row["name"],
            objects=row["objects"],
            active=row["active"],
            stride_bytes=row["stride_bytes"],
            per_slab=row["objects_per_slab"],
            pages_per_slab=1 << row["order"],
            slabs=row["slabs"],
        )
        for row in document["caches"]
        if row["slabs"]
    ]
    return Table("/proc/slabinfo", "", 0, caches)


def figures_of(document: Mapping[str, Any]) -> dict[str, float]:
    return {"pages": document["end"]["slab_pages"], "ns": document["modelled"]["ns_per_call"]}


def in_use(document: Mapping[str, Any]) -> int:
    return sum(row["inuse"] for row in document["caches"])


def compare(name: str, documents: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """A row: the trace beside the load that is made of its table."""
    base = documents[BASE]
    cpus = base["machine"]["cpus"]
    made = folder / f"{name}.ktrace"
    tr.write_trace(made, synthesise([plan_of(table_of(base), cpus)], cpus))
    ours = {policy: replay(Job(made, options)) for policy, options in POLICIES.items()}
    made.unlink()
    real = {policy: figures_of(document) for policy, document in documents.items()}
    synthetic = {policy: figures_of(document) for policy, document in ours.items()}
    return {
        "trace": name,
        "slab_pages": [real[BASE]["pages"], synthetic[BASE]["pages"]],
        "live_objects": [in_use(base), in_use(ours[BASE])],
        "rank_correlation": {measure: rank(real, synthetic, measure) for measure in MEASURES},
        "real": real,
        "synthetic": synthetic,
    }


def rank(
    one: Mapping[str, Any], other: Mapping[str, Any], measure: str, leaving_out: str = ""
) -> float | None:
    """Of the policies, by the figures of two runs."""
    policies = [policy for policy in POLICIES if policy != leaving_out]
    found = rank_correlation(
        [one[policy][measure] for policy in policies],
        [other[policy][measure] for policy in policies],
    )
    return None if found is None else round(found, 3)


def middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 3) if known else None


def load_of(row: Mapping[str, Any]) -> str:
    """Of hackbench-g1-process-6.1-4cpu: hackbench-g1-process."""
    return str(row["trace"]).rsplit("-", 2)[0]


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Medians, beside what a trace of another load would say, which nobody has to make."""
    found: dict[str, dict[str, float | None]] = {}
    for measure in MEASURES:
        ranks = [row["rank_correlation"][measure] for row in rows]
        found[measure] = {
            "median": middle(ranks),
            "least": min((value for value in ranks if value is not None), default=None),
            "without_slob": middle(
                rank(row["real"], row["synthetic"], measure, "SLOB") for row in rows
            ),
            "other_traces": middle(
                rank(row["real"], other["real"], measure)
                for row in rows
                for other in rows
                if load_of(row) != load_of(other)
            ),
        }
    return found


def check_report(*, quick: bool) -> Report:
    chosen = names(quick=quick)
    for name in chosen:
        if not (TRACES / f"{name}.ktrace").is_file():
            raise KmemError(
                f"lab synth: {TRACES / name}.ktrace is missing; expected it in the tree"
            )
    jobs = {
        (name, policy): Job(TRACES / f"{name}.ktrace", options)
        for name in chosen
        for policy, options in POLICIES.items()
    }
    documents = replay_all(jobs, "recorded traces")
    with TemporaryDirectory(prefix="kmem-synth-") as folder:

        def row_of(name: str) -> dict[str, Any]:
            real = {policy: documents[name, policy] for policy in POLICIES}
            return compare(name, real, Path(folder))

        found = run_all("loads of their tables", chosen, row_of)
    return report_of(found)


def report_of(found: list[dict[str, Any]]) -> Report:
    totals = summary(found)
    title = "Rank correlation of policies, trace and load"
    output = table(title, ["trace", "slab pages", "of the load", *MEASURES.values()])
    for row in found:
        pages, made = row["slab_pages"]
        ranks = [cell(row["rank_correlation"][measure]) for measure in MEASURES]
        output.add_row(row["trace"], cell(pages), cell(made), *ranks)
    sentences = "; ".join(
        f"{name} {cell(of['median'])} in the median and {cell(of['least'])} at least,"
        f" {cell(of['without_slob'])} without SLOB, {cell(of['other_traces'])} between traces of"
        " different loads"
        for name, of in ((name, totals[measure]) for measure, name in MEASURES.items())
    )
    return Report(
        "synth",
        "Loads made of slab tables, beside the recorded traces that the tables are of",
        {"policies": POLICIES, "summary": totals, "rows": found},
        [output, f"Spearman's rank correlation over {len(POLICIES)} policies: {sentences}."],
        [
            f"The table is that of a replay with the policies of {BASE}, at the trace's end. Slab"
            " pages are at the end, under these policies; the first column is the trace's.",
            "Time is modelled with assumed costs, for a call.",
        ],
    )
