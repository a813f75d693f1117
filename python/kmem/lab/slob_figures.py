# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures of replays with one, two and three lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from kmem.lab.mails import read_mail
from kmem.traces import file as tr

LARGE_FROM, LARGE_BELOW = 2000, 4088  # bytes: half of a page, and SLOB's largest block in a page
SHORT_EVENTS = 1000
JUDGED_KIB = 200  # moments with a smaller optimum are not judged in percent

SCANS = ("page_scans", "block_scans")


def percent(pages: int, optimum: int) -> float:
    return round(100 * (pages - optimum) / optimum, 2) if optimum else 0.0


def average_fragment(moment: Mapping[str, int]) -> int:
    return round(moment["unused_bytes"] / moment["fragments"]) if moment["fragments"] else 0


def is_judged(optimum_pages: int, page_kib: int = 4) -> bool:
    return optimum_pages * page_kib >= JUDGED_KIB


def summary(
    pages: Sequence[int], optimum: Sequence[int], steps: Sequence[int], page_kib: int = 4
) -> dict[str, Any]:
    """Overhead at the end, and over the moments that are large enough to judge."""
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


def brief(document: Mapping[str, Any]) -> dict[str, Any]:
    """Overhead over the replay's own optimum, and scans."""
    figures = summary(
        column(document, "pages"),
        column(document, "optimum_pages"),
        column(document, "steps"),
        document["machine"]["page_bytes"] // 1024,
    )
    return figures | {name: document["slob"][name] for name in SCANS}


def spread_of(pages: Sequence[int]) -> dict[str, Any]:
    low, high = min(pages), max(pages)
    return {"pages": list(pages), "min": low, "max": high, "mean": round(mean(pages), 2)} | {
        "spread_kib": 4 * (high - low)
    }


def conditions(trace: tr.Trace) -> dict[str, Any]:
    """Counts of the conditions under which a single list fails.

    They are large blocks that live for a moment, and lasting objects allocated meanwhile. A block
    is large from LARGE_FROM bytes on, and short-lived if it is gone after SHORT_EVENTS events. An
    object that the trace does not free is lasting.
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
    """Where the split pays: pages with split lists beside pages with a single list."""
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
