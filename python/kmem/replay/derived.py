# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Figures that follow from a replay's counts: the optimum, shares and modelled time.

docs/kernel-rules.md (S7.6) and kmem.replay.costs define them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmem.replay.costs import ASSUMED, modelled_ns


def add_optimum(state: dict[str, Any], page_bytes: int) -> None:
    """The pages that the bytes would fill without fragments (S7.6)."""
    optimum = -(-state["allocated_bytes"] // page_bytes) + state["large_pages"]
    state["optimum_pages"] = optimum
    state["overhead_percent"] = (
        round(100 * (state["pages"] - optimum) / optimum, 2) if optimum else None
    )


def memory_of(document: Mapping[str, Any], *, program: bool) -> int:
    """Bytes at the peak with the library's records; `document` is of a replay.

    Of a program these are the pages that it has resident, as its system gives it no page before
    the program writes to it, and the most records that the library has had, which stay resident. A
    kernel's slabs are pages from the beginning, so pages in use count.
    """
    pages = document["peak"]["resident_pages" if program else "pages"]
    return int(pages * document["machine"]["page_bytes"] + records_of(document, program=program))


def records_of(document: Mapping[str, Any], *, program: bool) -> int:
    if program:
        return int(document["peak"]["record_bytes"])
    return int(document["waste_bytes"]["metadata"])


def add_derived(document: dict[str, Any], costs: Mapping[str, float], costs_file: Path) -> None:
    counts = document["counts"]
    for state in (document["end"], document["peak"], *document.get("moments", [])):
        add_optimum(state, document["machine"]["page_bytes"])
    document["overhead_percent"] = document["end"]["overhead_percent"]
    document["peak_overhead_percent"] = document["peak"]["overhead_percent"]
    calls = counts["calls"]
    document["fast_path_share"] = round(1 - counts["slow_calls"] / calls, 6) if calls else None
    if statistics := document.get("statistics"):
        fast = statistics["alloc_fastpath"] + statistics["free_fastpath"]
        seen = fast + statistics["alloc_slowpath"] + statistics["free_slowpath"]
        document["slub_fast_path_share"] = round(fast / seen, 6) if seen else None
    scans = {name: document.get("slob", {}).get(name, 0) for name in ("page_scans", "block_scans")}
    nanoseconds = modelled_ns({**counts, **scans}, costs)
    document["modelled"] = {
        "ns": round(nanoseconds),
        "ns_per_call": round(nanoseconds / calls, 3) if calls else None,
        "costs": "assumed" if costs_file == ASSUMED else str(costs_file),
        "costs_ns": dict(costs),
    }
    del document["whole"]
