# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay --real-time`: a trace on the library that ships, with threads, clock and memory.

build/tools/replay-real-time takes the events; its head says which come after which. Rounds of
several option sets are taken in turn, each in a process of its own, and the sets are ranked beside
the simulated machine's modelled time.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.errors import KmemError
from kmem.common.figures import Ratio, median_ratio
from kmem.common.files import write_json
from kmem.common.machine import processor
from kmem.common.tree import BUILD, build
from kmem.replay.costs import ASSUMED, read_costs
from kmem.replay.simulated import (
    add_derived,
    cache_table,
    check_options,
    complaint,
    run,
    run_tool,
    state_rows,
    tool_arguments,
)

WIDTH = 120  # columns; a narrower terminal wraps lines, a cut figure is worse
NAME_WIDTH = 40  # of options, before they take several lines
TOOL = BUILD / "tools" / "replay-real-time"

NOTES = (
    "time: from the first thread's start to the last one's end. CPU time: of all threads, without"
    " what they spent waiting for each other; this is what modelled time, which waits for nothing,"
    " stands for, and what sets are ranked by.",
    "resident: how much resident memory grew at most. Without --touch nobody writes to objects.",
)


@dataclass
class OptionSet:
    """One set of options, its rounds, and its figures on the simulated machine."""

    options: str
    name: str  # what it has beside the options that all have
    rounds: list[dict[str, Any]] = field(default_factory=list)  # documents of the tool
    simulated: dict[str, Any] | None = None

    def series(self, name: str) -> list[float]:
        return [document["real_time"][name] for document in self.rounds]

    def median(self, name: str) -> float | None:
        values = self.series(name)
        return None if None in values else float(np.median(values))

    def median_round(self) -> dict[str, Any]:
        """The round whose CPU time is the median; of an even number the lower of two."""
        ordered = sorted(self.rounds, key=lambda document: float(document["real_time"]["cpu_ns"]))
        return ordered[(len(ordered) - 1) // 2]


def run_round(trace: Path, arguments: Sequence[str], options: str) -> dict[str, Any]:
    # The classes of the simulated machine, if nothing else is asked for.
    environment = os.environ | {"KMEM_OPTIONS": f"classes=fine,{options}"}
    document, messages = run_tool(TOOL, trace, arguments, environment)
    if messages:
        raise complaint(messages[0])
    return document


def measure(trace: Path, arguments: Sequence[str], sets: Sequence[OptionSet], rounds: int) -> None:
    """All sets in each round, in a new order each time."""
    order = np.random.default_rng(1)
    console = Console(stderr=True)
    for _ in track(
        range(rounds),
        description="rounds",
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ):
        for index in order.permutation(len(sets)):
            one = sets[index]
            one.rounds.append(run_round(trace, arguments, one.options))


# ---- Ranks --------------------------------------------------------------------------------------


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0 on; equal values share the mean of theirs."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def rank_correlation(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Spearman's; None where one side has no order."""
    ours, theirs = ranks(values), ranks(others)
    if len(ours) < 2 or np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return None
    return float(np.corrcoef(ours, theirs)[0, 1])


@dataclass(frozen=True)
class Miss:
    """Two sets that the simulation puts in the other order than the clock, beyond its noise."""

    faster: str  # by the clock
    slower: str
    real: Ratio
    modelled: float  # ratio in the same direction: not above 1


def misses(sets: Sequence[OptionSet]) -> list[Miss]:
    found = []
    for one in sets:
        for other in sets:
            real = median_ratio(one.series("cpu_ns"), other.series("cpu_ns"))
            modelled = modelled_ns(one) / modelled_ns(other)
            if one is not other and real.low > 1 and modelled <= 1:
                found.append(Miss(other.name, one.name, real, modelled))
    return found


def modelled_ns(one: OptionSet) -> float:
    assert one.simulated is not None
    return float(one.simulated["modelled"]["ns"])


def simulated_pages(one: OptionSet) -> float:
    assert one.simulated is not None
    return float(one.simulated["peak"]["pages"])


def compare_ranks(sets: Sequence[OptionSet], touch: bool) -> dict[str, Any]:
    resident = [one.median("peak_resident_bytes") for one in sets]
    known = [value for value in resident if value is not None]
    return {
        "time": rank_correlation(
            [float(np.median(one.series("cpu_ns"))) for one in sets],
            [modelled_ns(one) for one in sets],
        ),
        "memory": rank_correlation(known, [simulated_pages(one) for one in sets])
        if touch and len(known) == len(sets)
        else None,
        "misses": [
            {
                "faster": miss.faster,
                "slower": miss.slower,
                "ratio": miss.real.median,
                "low": miss.real.low,
                "high": miss.real.high,
                "modelled_ratio": miss.modelled,
            }
            for miss in misses(sets)
        ],
    }


# ---- The document -------------------------------------------------------------------------------


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
    """Medians of rounds; slabs and waste are those of the round with the median CPU time."""
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


# ---- Tables -------------------------------------------------------------------------------------


def mebibytes(count: float | None) -> str:
    return "-" if count is None else f"{count / (1 << 20):,.1f}"


def show_sets(document: Mapping[str, Any], output: Console) -> None:
    """A row a set: times, and where sets are compared what the simulation says of them."""
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


def show_real_time(
    trace: Path,
    *,
    options: Sequence[str],
    compared: Sequence[str],
    cpus: int | None,
    window: int | None,
    rounds: int,
    touch: bool,
    costs_file: Path | None,
    json_file: Path | None,
) -> None:
    check_options([*options, *compared])
    build()
    costs_file = costs_file or ASSUMED
    costs = read_costs(costs_file)
    given = {"cpus": cpus, "window": window, "touch": 1 if touch else None}
    arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
    common = ",".join(options)
    sets = [OptionSet(common, "as it is")] + [
        OptionSet(",".join([*options, more]), more) for more in compared
    ]
    if len(sets) > 1:
        for one in sets:
            one.simulated, _ = run(trace, tool_arguments(one.options, cpus, None, None))
            add_derived(one.simulated, costs, costs_file)
            if not modelled_ns(one):
                raise KmemError(
                    f"replay: --compare: {one.name}: no time is modelled; expected a trace with"
                    " allocations, and costs of what they do"
                )
    measure(trace, arguments, sets, rounds)
    document = as_document(sets, touch)
    write_json(json_file, document)

    output = wide_console(WIDTH)
    machine = document["machine"]
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    output.print(
        f"{trace.name} in real time: {threads} on {machine['usable_cpus']} usable CPUs,"
        f" window {machine['window']}, objects {'' if touch else 'not '}written;"
        f" {common or 'default options'}; medians of {rounds} round{'' if rounds == 1 else 's'}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    show_sets(document, output)
    if len(sets) > 1:
        show_ranks(document["rank_correlation"], output)
    else:
        lines = Table(box=SIMPLE, show_header=False)
        for justify in ("left", "right"):
            lines.add_column("", justify=justify, no_wrap=True)
        for name, value in state_rows(document["sets"][0]):
            lines.add_row(name, value)
        output.print(lines)
        if any(cache["pages"] for cache in document["sets"][0]["caches"]):
            output.print(cache_table(document["sets"][0]["caches"]))
    for note in NOTES:
        output.print(note, highlight=False, markup=False, soft_wrap=True)
