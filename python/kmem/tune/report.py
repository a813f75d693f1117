# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The outcome of a search, as a document and as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.common.console import wide_console
from kmem.tune.promise import doubts_of, lines_of, promise_of
from kmem.tune.replays import Replays
from kmem.tune.search import Search
from kmem.tune.study import Trial, pareto

LITTLE_NS = 100_000  # some thousand calls
WIDTH = 120  # columns; a narrower terminal wraps lines, a cut figure is worse

NOTE = (
    "time: modelled, with {costs} costs. memory: {pages} at the peak, and the library's"
    " records. Both as ratios to the defaults{mean}, so of what malloc has and not of"
    " the whole process. Check on this machine with kmem replay --real-time --touch --compare."
)
PAGES = {"resident": "resident pages", "in use": "pages in use"}


def row(trial: int | None, options: str, ratios: Any, figures: Any) -> dict[str, Any]:
    return {
        "trial": trial,
        "kmem_options": options,
        "time_ratio": ratios[0],
        "memory_ratio": ratios[1],
        "traces": figures,
    }


def as_document(
    search: Search,
    trials: Sequence[Trial],
    chosen: str,
    replays: Replays,
    resident_bytes: int | None,
    cpu_seconds: float | None,
) -> dict[str, Any]:
    """The document. It has no figure of a clock, so that equal commands give equal documents."""
    ratios, figures = replays.found[chosen]
    promise = promise_of(figures, trials[0].figures)
    return {
        "goal": search.goal,
        "seed": search.seed,
        "options": search.options,
        "machine": dict(search.machine),
        "costs_ns": dict(search.costs),
        "trials": len(trials),
        "failed": [
            {"trial": trial.number, "kmem_options": trial.line, "reason": trial.figures}
            for trial in trials
            if trial.ratios is None
        ],
        "defaults": row(0, trials[0].line, trials[0].ratios, trials[0].figures),
        "pareto": [
            row(trial.number, trial.line, trial.ratios, trial.figures) for trial in pareto(trials)
        ],
        "chosen": row(None, chosen, ratios, figures),
        "promise": promise.as_json(),
        "process": {"resident_bytes": resident_bytes, "cpu_seconds": cpu_seconds},
    }


def promise_lines(document: Mapping[str, Any]) -> list[str]:
    """A kernel has no process, so its traces promise nothing of one."""
    figures = document["chosen"]["traces"]
    if any(one["memory_is"] != "resident" for one in figures):
        return []
    promise = promise_of(figures, document["defaults"]["traces"])
    process = document["process"]
    return [
        *lines_of(promise, len(figures), process["resident_bytes"], process["cpu_seconds"]),
        *doubts_of(document["chosen"]["kmem_options"]),
    ]


def doubt_of_little(document: Mapping[str, Any]) -> list[str]:
    """Traces of a few calls have no more than the library's start."""
    nanoseconds = sum(one["modelled_ns"] for one in document["defaults"]["traces"])
    if nanoseconds >= LITTLE_NS:
        return []
    return [
        f"The traces have {nanoseconds / 1e6:.3f} ms of modelled time, too little to choose options"
        " by: record more of the program."
    ]


def show(document: Mapping[str, Any], costs_name: str) -> None:
    output = wide_console(WIDTH)
    table = Table(box=SIMPLE)
    for heading in ("trial", "time", "memory", "modelled ms", "MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("options", overflow="fold")
    numbers = [one["trial"] for one in document["pareto"]]
    rows = [*document["pareto"]]
    if 0 not in numbers:
        rows.append(document["defaults"])

    def cells(one: Mapping[str, Any]) -> list[str]:
        nanoseconds = sum(figures["modelled_ns"] for figures in one["traces"])
        memory = sum(figures["memory_bytes"] for figures in one["traces"])
        return [
            f"{one['time_ratio']:.3f}",
            f"{one['memory_ratio']:.3f}",
            f"{nanoseconds / 1e6:,.2f}",
            f"{memory / (1 << 20):,.2f}",
        ]

    for one in rows:
        name = one["kmem_options"] or "(defaults)"
        table.add_row(str(one["trial"]), *cells(one), name)
    chosen = document["chosen"]
    table.add_section()
    table.add_row("chosen", *cells(chosen), chosen["kmem_options"] or "(defaults)")

    def say(text: str) -> None:
        output.print(text, highlight=False, markup=False, soft_wrap=True)

    failed = len(document["failed"])
    say(
        f"{document['trials']} trials, goal {document['goal']}, seed {document['seed']}"
        + (f"; {failed} failed, the first: {document['failed'][0]['reason']}" if failed else "")
    )
    output.print(table)
    mean = ", geometric means over the traces" if len(chosen["traces"]) > 1 else ""
    kinds = dict.fromkeys(PAGES[one["memory_is"]] for one in chosen["traces"])
    say(NOTE.format(costs=costs_name, mean=mean, pages=" or ".join(kinds)))
    for text in (*promise_lines(document), *doubt_of_little(document)):
        say(text)
    say(f"KMEM_OPTIONS={chosen['kmem_options']}")
