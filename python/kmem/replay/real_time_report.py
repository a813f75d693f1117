# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rounds in real time, as a document and as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.common.figures import median_ratio
from kmem.common.machine import processor
from kmem.replay.option_sets import OptionSet, compare_ranks

NAME_WIDTH = 40  # characters of options, before they take several lines


def seconds(nanoseconds: float) -> float:
    return nanoseconds / 1e9


def set_document(one: OptionSet, first: OptionSet) -> dict[str, Any]:
    typical = one.median_round()
    elapsed = seconds(float(np.median(one.series("ns"))))
    events = typical["real_time"]["events"]
    ratio = median_ratio(one.series("cpu_ns"), first.series("cpu_ns"))
    document: dict[str, Any] = {
        "options": one.options,
        "name": one.name,
        "seconds": elapsed,
        "events_per_second": events / elapsed if elapsed else None,
        "cpu_seconds": seconds(float(np.median(one.series("cpu_ns")))),
        "cpu_ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
        "waiting_cpu_seconds": seconds(float(np.median(one.series("waiting_cpu_ns")))),
        "peak_resident_bytes": one.median("peak_resident_bytes"),
        "rounds": [each["real_time"] for each in one.rounds],
    }
    for name in ("end", "slabs", "waste_bytes", "caches", "slob", "statistics"):
        if name in typical:
            document[name] = typical[name]
    if one.simulated:
        names = ("modelled", "peak", "end", "overhead_percent")
        document["simulated"] = {name: one.simulated[name] for name in names}
    return document


def as_document(sets: Sequence[OptionSet], touch: bool) -> dict[str, Any]:
    """Medians of rounds; slabs and waste are from the round with the median CPU time."""
    first = sets[0].rounds[0]
    machine = {name: value for name, value in first["machine"].items() if name != "options"}
    document: dict[str, Any] = {
        "trace": first["trace"],
        "machine": {"processor": processor(), **machine},
        "rounds": len(sets[0].rounds),
        "sets": [set_document(one, sets[0]) for one in sets],
    }
    if len(sets) > 1:
        document["rank_correlation"] = compare_ranks(sets, touch)
    return document


def mebibytes(count: float | None) -> str:
    return "-" if count is None else f"{count / (1 << 20):,.1f}"


def show_sets(document: Mapping[str, Any], output: Console) -> None:
    """A row for each set: its times, and for several sets their modelled times and memory."""
    base, *others = document["sets"]
    table = Table(box=SIMPLE)
    longest = max(len(one["name"]) for one in document["sets"])
    table.add_column("options", overflow="fold", min_width=min(longest, NAME_WIDTH))
    headings = ["time ms", "M events/s", "CPU ms", "resident MiB"]
    if others:
        headings = ["time ms", "CPU ms", "ratio (95%)", "modelled", "resident MiB", "peak pages"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in document["sets"]:
        times = [f"{one[name] * 1e3:,.2f}" for name in ("seconds", "cpu_seconds")]
        resident = mebibytes(one["peak_resident_bytes"])
        if others:
            ratio, simulated = one["cpu_ratio"], one["simulated"]
            modelled = simulated["modelled"]["ns"] / base["simulated"]["modelled"]["ns"]
            cells = [
                *times,
                f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})",
                f"{modelled:.2f}",
                resident,
                f"{simulated['peak']['pages']:,}",
            ]
        else:
            speed = one["events_per_second"]
            cells = [times[0], "-" if speed is None else f"{speed / 1e6:.1f}", times[1], resident]
        table.add_row(one["name"], *cells)
    output.print(table)


def show_ranks(rank: Mapping[str, Any], output: Console) -> None:
    def say(text: str) -> None:
        output.print(text, highlight=False, markup=False, soft_wrap=True)

    for name, what in (
        ("time", "CPU time with modelled time"),
        ("memory", "peak resident memory with peak pages"),
    ):
        if rank[name] is not None:
            say(f"rank correlation of {what}: {rank[name]:.2f}")
    for miss in rank["misses"]:
        say(
            f"miss: [{miss['slower']}] takes {miss['ratio']:.2f} ({miss['low']:.2f}-"
            f"{miss['high']:.2f}) of [{miss['faster']}], modelled {miss['modelled_ratio']:.2f}"
        )
