# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay --real-time`: a trace on the library that ships, with threads, clock and memory.

build/tools/replay-real-time takes the events; its head says which come after which. Rounds of
several option sets are taken in turn, each in a process of its own, and the sets are ranked beside
the simulated machine's modelled time.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.errors import KmemError
from kmem.common.files import write_json
from kmem.common.tree import BUILD, build
from kmem.replay.costs import ASSUMED, read_costs
from kmem.replay.derived import add_derived
from kmem.replay.option_sets import OptionSet, modelled_ns
from kmem.replay.real_time_report import as_document, show_ranks, show_sets
from kmem.replay.tables import cache_table, state_rows
from kmem.replay.tool import complaint, refuse_options, run, run_tool, tool_arguments

WIDTH = 120  # columns; a narrower terminal wraps lines, a cut figure is worse
TOOL = BUILD / "tools" / "replay-real-time"

NOTES = (
    "time: from the first thread's start to the last one's end. CPU time: of all threads, without"
    " what they spent waiting for each other; this is what modelled time, which waits for nothing,"
    " stands for, and what sets are ranked by.",
    "resident: how much resident memory grew at most. Without --touch nobody writes to objects.",
)


def run_round(trace: Path, arguments: Sequence[str], options: str) -> dict[str, Any]:
    # The classes of the simulated machine, unless another option sets them.
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


def print_results(
    document: dict[str, Any], trace: Path, common: str, rounds: int, *, touch: bool
) -> None:
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
    if len(document["sets"]) > 1:
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
    refuse_options([*options, *compared])
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
    try:
        write_json(json_file, document)
    finally:  # a full disk must not take the figures
        print_results(document, trace, common, rounds, touch=touch)
