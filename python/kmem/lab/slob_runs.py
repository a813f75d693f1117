# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `kmem lab slob` runs: replays with one, two and three lists, and what is made of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kmem.common.errors import KmemError
from kmem.lab.churn import Churn, make_churn
from kmem.lab.mails import read_mail
from kmem.lab.permutations import find_parts, permute
from kmem.lab.replays import Job, progress, replay_all
from kmem.traces import file as tr

TRACES = Path(tr.__file__).parent

LISTS = {"one": "", "two": "300", "three": "256:1024"}
KERNEL = "classes=kernel,order_rule=5.10"
SLUB = f"engine=slub,sheaf_capacity=0,{KERNEL}"  # as kernels had it until 6.17
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

LARGE_FROM, LARGE_BELOW = 2000, 4088  # bytes: half of a page, and what SLOB puts into one
SHORT_EVENTS = 1000
JUDGED_KIB = 200  # moments with a smaller optimum say nothing in per cent
MOMENTS, QUICK_MOMENTS = 100, 20
SEEDS, QUICK_SEEDS = 10, 3
CHURN = "churn (made up)"

SCANS = ("page_scans", "block_scans")


@dataclass(frozen=True)
class Effort:
    """How much is tried."""

    moments: int
    seeds: int
    breaks: Sequence[int]
    overlaps: Sequence[float]
    large_bytes: Sequence[int]


FULL = Effort(MOMENTS, SEEDS, BREAKS, OVERLAPS, LARGE_BYTES)
QUICK = Effort(QUICK_MOMENTS, QUICK_SEEDS, QUICK_BREAKS, QUICK_OVERLAPS, QUICK_LARGE_BYTES)


def shipped_traces() -> list[Path]:
    return sorted(TRACES.glob("*.slt.zst"))


def name_of(trace: Path) -> str:
    """As text that can be shown; names of files are bytes."""
    text = os.fsencode(trace.name).decode(errors="replace")
    return re.sub(r"(\.slt|\.ktrace)?(\.zst)?$", "", text)


def slob_options(breaks: str, compat: bool = False) -> str:
    return f"engine=slob,slob_breaks={breaks}" + (",slob_compat=2.6.24" if compat else "")


def configurations() -> dict[str, str]:
    lists = {
        f"SLOB, {name}{', 2.6.24' if compat else ''}": slob_options(breaks, compat)
        for compat in (False, True)
        for name, breaks in LISTS.items()
    }
    return lists | OTHERS


def percent(pages: int, optimum: int) -> float:
    return round(100 * (pages - optimum) / optimum, 2) if optimum else 0.0


def average_fragment(moment: Mapping[str, int]) -> int:
    return round(moment["unused_bytes"] / moment["fragments"]) if moment["fragments"] else 0


def is_judged(optimum_pages: int, page_kib: int = 4) -> bool:
    return optimum_pages * page_kib >= JUDGED_KIB


def summary(
    pages: Sequence[int], optimum: Sequence[int], steps: Sequence[int], page_kib: int = 4
) -> dict[str, Any]:
    """Overhead at the end and over the moments that are large enough to judge."""
    judged = [
        (percent(mine, best), step)
        for mine, best, step in zip(pages, optimum, steps, strict=True)
        if is_judged(best, page_kib)
    ]
    worst, worst_step = max(judged, default=(None, None))
    return {
        "pages": pages[-1],
        "overhead_percent": percent(pages[-1], optimum[-1]),
        "mean_overhead_percent": round(mean(o for o, _ in judged), 2) if judged else None,
        "worst_overhead_percent": worst,
        "worst_step": worst_step,
    }


def column(document: Mapping[str, Any], name: str) -> list[int]:
    return [moment[name] for moment in document["moments"]]


def statistics_of(
    document: Mapping[str, Any], optimum: Sequence[int], options: str
) -> dict[str, Any]:
    """A row of a trace's table, with its moments."""
    pages = column(document, "pages")
    row: dict[str, Any] = {"options": options}
    row |= summary(pages, optimum, column(document, "steps"))
    row["ns_per_call"] = document["modelled"]["ns_per_call"]
    moments: dict[str, list[Any]] = {
        "pages": pages,
        "overhead_percent": [percent(*pair) for pair in zip(pages, optimum, strict=True)],
    }
    if "slob" in document:
        last = document["moments"][-1]
        row |= {name: last[name] for name in ("full_pages", "fragments", "unused_bytes", *SCANS)}
        row["average_fragment_bytes"] = average_fragment(last)
        for name in ("full_pages", "fragments", "unused_bytes", *SCANS):
            moments[name] = column(document, name)
        moments["average_fragment_bytes"] = [average_fragment(m) for m in document["moments"]]
    return row | {"moments": moments}


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


def brief(document: Mapping[str, Any]) -> dict[str, Any]:
    """Overhead over the replay's own optimum, and scans."""
    figures = summary(
        column(document, "pages"),
        column(document, "optimum_pages"),
        column(document, "steps"),
        document["machine"]["page_bytes"] // 1024,
    )
    return figures | {name: document["slob"][name] for name in SCANS}


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
    """Lists for pages of this size: as they are, and what would grow with the page."""
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
    """Files of the permutations; a made-up boot, of one thread, is made anew by the seed."""
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


def spread_of(pages: Sequence[int]) -> dict[str, Any]:
    low, high = min(pages), max(pages)
    return {"pages": list(pages), "min": low, "max": high, "mean": round(mean(pages), 2)} | {
        "spread_kib": 4 * (high - low)
    }


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


def conditions(trace: tr.Trace) -> dict[str, Any]:
    """What makes one list fail: large blocks that live for a moment, and what is made meanwhile.

    A block is large from LARGE_FROM bytes on, and short-lived if it is gone after SHORT_EVENTS
    events. What the trace does not free is lasting.
    """
    records = trace.records
    operation = records["operation"].to_numpy() & tr.OPERATION_MASK
    objects = records["object"].to_numpy()
    asked = records["requested"].to_numpy()
    ended = np.full(trace.objects, len(records), np.int64)
    frees = np.flatnonzero(np.isin(operation, (tr.FREE, tr.IMPLIED)))
    ended[objects[frees]] = frees
    made = np.flatnonzero(operation == tr.ALLOC)
    ends = ended[objects[made]]
    small = asked[made] < LARGE_BELOW
    lasting = np.zeros(len(records) + 1, np.int64)
    lasting[made[(ends == len(records)) & small] + 1] = 1
    made_before = np.cumsum(lasting)
    short = small & (asked[made] >= LARGE_FROM) & (ends - made <= SHORT_EVENTS)
    short &= ends < len(records)
    starts, ends = made[short], ends[short]
    lasting_bytes = int(asked[made[(ended[objects[made]] == len(records)) & small]].sum())
    count = len(starts)
    overlapped = int(np.count_nonzero(made_before[ends] > made_before[starts + 1]))
    return {
        "large_blocks": count,
        "overlapped_blocks": overlapped,
        "overlapped_share": round(overlapped / count, 4) if count else None,
        "lasting_bytes": lasting_bytes,
        "lasting_bytes_per_overlapped": lasting_bytes // overlapped if overlapped else None,
    }


def gains(traces: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the split pays: pages of split lists beside those of one list."""
    rows = []
    for name, trace in traces.items():
        one = trace["rows"]["SLOB, one"]["moments"]["pages"]
        for split in ("two", "three"):
            pages = trace["rows"][f"SLOB, {split}"]["moments"]["pages"]
            judged = [
                percent(mine, other)
                for mine, other, best in zip(pages, one, trace["optimum_pages"], strict=True)
                if is_judged(best)
            ]
            rows.append(
                {
                    "trace": name,
                    "lists": split,
                    "end_percent": percent(pages[-1], one[-1]),
                    "best_percent": min(judged, default=None),
                    "worst_percent": max(judged, default=None),
                    "fewer_pages_share": round(sum(p < 0 for p in judged) / len(judged), 3)
                    if judged
                    else None,
                }
            )
    return rows


def mail_overheads() -> dict[str, float]:
    rows = {row["figure"]: row for row in read_mail("slob_statistics")}
    return {
        name: percent(int(rows["pages in use"][name]), int(rows["optimum"][name]))
        for name in ("one", "two")
    }


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


def named_traces(traces: Sequence[Path]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for trace in traces or shipped_traces():
        try:
            trace.stat()
        except OSError as error:
            raise KmemError(f"{trace}: no trace can be read there: {error.strerror}") from None
        name = name_of(trace)
        if name in named:
            raise KmemError(f"{trace}: {named[name]} has the same name; give one of them another")
        named[name] = trace
    return named
