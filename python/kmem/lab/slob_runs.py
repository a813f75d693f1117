# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The runs of `kmem lab slob`: replays with one, two and three lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kmem.common.errors import KmemError
from kmem.lab.churn import Churn, make_churn
from kmem.lab.permutations import find_parts, permute
from kmem.lab.replays import KERNEL, SLUB, Job, progress, replay_all
from kmem.lab.slob_figures import (
    brief,
    column,
    conditions,
    gains,
    mail_overheads,
    spread_of,
    statistics_of,
)
from kmem.traces import file as tr

LISTS = {"one": "", "two": "300", "three": "256:1024"}
OTHERS = {
    "SLUB": SLUB,
    "SLUB, debug": f"{SLUB},debug=FZPU",
    "SLUB, sheaves": f"engine=slub,{KERNEL}",
    "SLAB": f"engine=slab,{KERNEL}",
}
BREAKS = (32, 64, 100, 150, 200, 256, 300, 350, 410, 512, 700, 1024, 1536, 2048, 3072)
QUICK_BREAKS = (100, 300, 1024)
PAGE_KIB = (4, 16, 64)
OVERLAPS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0)
LARGE_BYTES = (500, 800, 1100, 1400, 1700, 2000, 2184, 2400, 2800, 3200, 3600, 4000)
QUICK_OVERLAPS, QUICK_LARGE_BYTES = (0.0, 0.3), (1400, 2184)

MOMENTS, QUICK_MOMENTS = 100, 20
SEEDS, QUICK_SEEDS = 10, 3
CHURN = "churn (made up)"


@dataclass(frozen=True)
class Effort:
    """The extent of the experiment."""

    moments: int
    seeds: int
    breaks: Sequence[int]
    overlaps: Sequence[float]
    large_bytes: Sequence[int]


FULL = Effort(MOMENTS, SEEDS, BREAKS, OVERLAPS, LARGE_BYTES)
QUICK = Effort(QUICK_MOMENTS, QUICK_SEEDS, QUICK_BREAKS, QUICK_OVERLAPS, QUICK_LARGE_BYTES)


def slob_options(breaks: str, compat: bool = False) -> str:
    return f"engine=slob,slob_breaks={breaks}" + (",slob_compat=2.6.24" if compat else "")


def configurations() -> dict[str, str]:
    lists = {
        f"SLOB, {name}{', 2.6.24' if compat else ''}": slob_options(breaks, compat)
        for compat in (False, True)
        for name, breaks in LISTS.items()
    }
    return lists | OTHERS


def look_at_traces(traces: Mapping[str, Path], moments: int) -> dict[str, Any]:
    wanted = configurations()
    jobs = {
        (trace, label): Job(path, options, moments=moments)
        for trace, path in traces.items()
        for label, options in wanted.items()
    }
    documents = replay_all(jobs, "traces at all moments")
    result: dict[str, Any] = {}
    for trace in traces:
        base = documents[trace, "SLOB, one"]
        if "moments" not in base:
            raise KmemError(f"lab slob: {trace}: the trace has no allocations")
        optimum = column(base, "optimum_pages")
        result[trace] = {
            "records": base["trace"]["records"],
            "steps": column(base, "steps"),
            "optimum_pages": optimum,
            "rows": {
                label: statistics_of(documents[trace, label], optimum, options)
                for label, options in wanted.items()
            },
        }
    return result


def sweep_breaks(
    traces: Mapping[str, Path], breaks: Iterable[int], moments: int
) -> list[dict[str, Any]]:
    jobs = {
        (trace, size): Job(path, slob_options(str(size)), moments=moments)
        for size in breaks
        for trace, path in traces.items()
    }
    documents = replay_all(jobs, "break points")
    return [
        {"trace": trace, "break_bytes": size} | brief(document)
        for (trace, size), document in documents.items()
    ]


def page_breaks(kib: int) -> dict[str, str]:
    """Lists for pages of this size: the fixed limits, and limits that grow with the page."""
    page = kib * 1024
    scaled = {
        "one list": "",
        "300": "300",
        "page/10": str(round(page / 10)),
        "256:1024": "256:1024",
    }
    return scaled if kib == 4 else scaled | {"page/16:page/4": f"{page // 16}:{page // 4}"}


def sweep_pages(traces: Mapping[str, Path], moments: int) -> list[dict[str, Any]]:
    jobs = {
        (trace, kib, label): Job(path, slob_options(breaks), page_kib=kib, moments=moments)
        for kib in PAGE_KIB
        for label, breaks in page_breaks(kib).items()
        for trace, path in traces.items()
    }
    documents = replay_all(jobs, "page sizes")
    return [
        {"trace": trace, "page_kib": kib, "lists": label} | brief(document)
        for (trace, kib, label), document in documents.items()
    ]


def permuted_traces(
    traces: Mapping[str, Path], folder: Path, seeds: int, first_seed: int
) -> dict[tuple[str, int], Path]:
    """Files of the permutations.

    A made-up boot has a single thread: the seed makes another boot.
    """
    wanted = [(name, first_seed + number) for name in traces for number in range(seeds)]
    files: dict[tuple[str, int], Path] = {}
    trace, parts, read = None, None, ""
    for number, (name, seed) in enumerate(progress(wanted, "permutations", len(wanted))):
        files[name, seed] = folder / f"permutation-{number}.ktrace"
        if name == CHURN:
            other = make_churn(Churn(seed=seed))
        else:
            if read != name:
                trace = tr.read_trace(traces[name])
                parts, read = find_parts(trace), name
            assert trace is not None and parts is not None
            other = permute(trace, parts, seed)
        tr.write_trace(files[name, seed], other)
    return files


def run_permutations(
    traces: Mapping[str, Path], folder: Path, seeds: int, first_seed: int
) -> list[dict[str, Any]]:
    files = permuted_traces(traces, folder, seeds, first_seed)
    options = {name: slob_options(breaks) for name, breaks in LISTS.items()} | {"SLUB": SLUB}
    jobs = {
        (trace, label, seed): Job(path, setting)
        for (trace, seed), path in files.items()
        for label, setting in options.items()
    }
    documents = replay_all(jobs, "permutations")
    numbers = range(first_seed, first_seed + seeds)
    return [
        {"trace": trace, "lists": label, "seeds": list(numbers)}
        | spread_of([documents[trace, label, seed]["end"]["pages"] for seed in numbers])
        for trace in traces
        for label in options
    ]


def sweep_churn(folder: Path, effort: Effort, seed: int, moments: int) -> list[dict[str, Any]]:
    cases = [Churn(seed=seed, overlap=overlap) for overlap in effort.overlaps]
    cases += [Churn(seed=seed, large_bytes=size) for size in effort.large_bytes]
    files = {}
    for number, case in enumerate(progress(dict.fromkeys(cases), "made-up boots", len(cases))):
        files[case] = folder / f"churn-{number}.ktrace"
        tr.write_trace(files[case], make_churn(case))
    jobs = {
        (case, name): Job(path, slob_options(breaks), moments=moments)
        for case, path in files.items()
        for name, breaks in LISTS.items()
    }
    documents = replay_all(jobs, "made-up boots")
    return [
        asdict(case) | {"lists": name} | brief(document)
        for (case, name), document in documents.items()
    ]


def make_document(traces: Mapping[str, Path], effort: Effort, seed: int) -> dict[str, Any]:
    with TemporaryDirectory(prefix="kmem-lab-") as name:
        folder = Path(name)
        made = folder / "churn.ktrace"
        tr.write_trace(made, make_churn(Churn(seed=seed)))
        everything = {**traces, CHURN: made}
        document: dict[str, Any] = {"seed": seed, "mail_overhead_percent": mail_overheads()}
        document["traces"] = look_at_traces(everything, effort.moments)
        document["conditions"] = {
            name: conditions(tr.read_trace(path)) for name, path in everything.items()
        }
        document["gains"] = gains(document["traces"])
        document["churn"] = sweep_churn(folder, effort, seed, effort.moments)
        document["breaks"] = sweep_breaks(everything, effort.breaks, effort.moments)
        document["page_sizes"] = sweep_pages(everything, effort.moments)
        document["permutations"] = run_permutations(everything, folder, effort.seeds, seed)
    return document
