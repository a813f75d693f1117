# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the questions of `kmem lab ask` have in common: runs, a table, a plot and a paragraph.

A question names its cases and what they have to be compared by. The paragraph that answers it is
made from the figures of the run, so another machine, seed or cost table may get another answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.table import Table

from kmem.lab.cpu_partial_runs import KINDS, NETPERF, PAIRS
from kmem.lab.loads import Load, allocator_ns, run, run_all
from kmem.lab.replays import Job, replay
from kmem.lab.report import Plot, Report, cell, table
from kmem.replay.costs import read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
Rows = Sequence[Row]

SKIP = 40  # percent of the messages, after which a run has come to rest
NODES_FROM = 64  # CPUs of a machine with two nodes
APART = ("ns_per_call", "idle_kib", "list_wait_percent")  # whose range over the seeds is kept


@dataclass(frozen=True)
class Case:
    """A row: what it is called, and what is run for it with each seed. A replay has no chance."""

    labels: Mapping[str, Any]
    work: Load | Job


@dataclass(frozen=True)
class Column:
    heading: str
    key: str


@dataclass(frozen=True)
class Answer:
    rows: Rows  # with what was compared
    findings: Mapping[str, Any]  # what the paragraph says, in figures
    paragraph: str


@dataclass(frozen=True)
class Question:
    name: str  # of the argument
    title: str  # the question
    cases: Callable[[bool], Sequence[Case]]  # of the quick form, or of the whole
    answer: Callable[[Rows], Answer]
    parts: str  # key of a row; each of its values has a table
    columns: Sequence[Column]
    draw: Callable[[Rows, Sequence[Axes]], None]
    panels: int
    seeds: int
    notes: Sequence[str]


# ---- Machines and loads ----------------------------------------------------------------------


def machine(cpus: int) -> dict[str, int]:
    return {"boot_cpus": cpus, "possible": cpus, "nodes": 2 if cpus >= NODES_FROM else 1}


def hackbench(cpus: int, groups: int, loops: int) -> dict[str, int | str]:
    """Processes that pass messages over sockets, which begin half full."""
    shape = {**machine(cpus), "groups": groups, "loops": loops, "pairs": PAIRS, "filled": 50}
    return {**shape, **KINDS["process"], "skip": SKIP}


def netperf(cpus: int, transactions: int) -> dict[str, int | str]:
    """A pair of tasks for each CPU; the CPU that allocated a message frees it, as since 5.19."""
    shape = {**machine(cpus), "groups": cpus, "loops": transactions, "capacity": 2}
    return {**shape, **NETPERF["TCP-RR"], "skip": SKIP}


# ---- Figures ---------------------------------------------------------------------------------


def load_figures(document: Mapping[str, Any], costs: Mapping[str, float]) -> dict[str, float]:
    """Of a run of a load: each of a message, but for memory and shares of time."""
    counts, sent = document["counts"], document["measured_messages"]
    kept, ns = document["kept_kib"], allocator_ns(document, costs)
    each = ("list_locks", "list_hold_ns", "list_wait_ns", "barn_locks", "barn_wait_ns")
    waits_ns = counts["list_wait_ns"] + counts["barn_wait_ns"]
    return {
        "ns": ns / sent,
        "ns_per_call": ns / counts["calls"],
        **{name: counts[name] / sent for name in each},
        "distant": document["distant_objects"] / sent,
        "list_wait_percent": 100 * counts["list_wait_ns"] / document["busy_ns"],
        "barn_wait_percent": 100 * counts["barn_wait_ns"] / document["busy_ns"],
        "waits_of_allocator_percent": 100 * waits_ns / ns if ns else 0,
        "slab_kib": document["mean_slab_kib"],
        "idle_kib": document["mean_slab_kib"] - document["mean_live_kib"] + kept["arrays"],
        "sheaves_kib": kept["cpu_sheaves"] + kept["arrays"],
        "barns_kib": kept["barns"],
        "partial_kib": kept["partial_slabs"],
    }


def replay_figures(document: Mapping[str, Any]) -> dict[str, float]:
    """Of a replay, where nobody waits: each of a call."""
    counts = document["counts"]
    return {
        "ns": document["modelled"]["ns_per_call"],
        "ns_per_call": document["modelled"]["ns_per_call"],
        **{name: counts[name] / counts["calls"] for name in ("list_locks", "barn_locks")},
        "slab_kib": 4 * document["end"]["pages"],
    }


def one_run(work: Load | Job, seed: int) -> dict[str, float]:
    if isinstance(work, Job):
        return replay_figures(replay(work))
    seeded = replace(work, settings={**work.settings, "seed": seed})
    return load_figures(run(seeded), work.costs)


def weight(work: Load | Job) -> int:
    if isinstance(work, Job):
        return 1
    return int(work.settings["groups"]) * int(work.settings["loops"])


def rows_of(name: str, cases: Sequence[Case], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The means of the seeds, and how far some figures of the seeds are apart."""
    runs = [
        (number, case.work, seed)
        for number, case in enumerate(cases)
        for seed in (seeds if isinstance(case.work, Load) else seeds[:1])
    ]
    done = run_all(name, runs, lambda one: one_run(*one[1:]), lambda one: weight(one[1]))
    rows = []
    for number, case in enumerate(cases):
        found = [figures for one, figures in zip(runs, done, strict=True) if one[0] == number]
        means = {key: round(statistics.fmean(one[key] for one in found), 4) for key in found[0]}
        apart = {
            f"{key}_apart": round(max(figures) - min(figures), 4)
            for key in APART
            if (figures := [one[key] for one in found if key in one])
        }
        rows.append({**case.labels, **means, **apart})
    return rows


# ---- What is asked of rows -------------------------------------------------------------------


def chosen(rows: Rows, **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def only(rows: Rows, **wanted: Any) -> Row:
    (row,) = chosen(rows, **wanted)
    return row


def values(rows: Rows, key: str) -> list[Any]:
    """The different values, in order."""
    return list(dict.fromkeys(row[key] for row in rows))


def crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """Where a curve first comes to @level or above, on the line between two points."""
    for number, (x, y) in enumerate(points):
        if y < level:
            continue
        if number == 0:
            return x
        x_before, y_before = points[number - 1]
        return x_before + (x - x_before) * (level - y_before) / (y - y_before)
    return None


def percent_more(value: float, base: float) -> float:
    return round(100 * (value - base) / base, 2)


# ---- The report ------------------------------------------------------------------------------


def part_table(title: str, rows: Rows, columns: Sequence[Column]) -> Table:
    texts = sum(isinstance(rows[0].get(column.key), str) for column in columns)
    output = table(title, [column.heading for column in columns], texts)
    for row in rows:
        found = (row.get(column.key) for column in columns)
        output.add_row(*(one if isinstance(one, str) else cell(one) for one in found))
    return output


def question_report(question: Question, *, quick: bool, seed: int) -> Report:
    seeds = range(seed, seed + (1 if quick else question.seeds))
    rows = rows_of(question.name, question.cases(quick), seeds)
    answer = question.answer(rows)
    return Report(
        f"ask-{question.name}",
        question.title,
        {
            "quick": quick,
            "seeds": list(seeds),
            "costs_ns": read_costs(),
            "rows": answer.rows,
            "findings": answer.findings,
            "paragraph": answer.paragraph,
        },
        [
            *(
                part_table(
                    str(part), chosen(answer.rows, **{question.parts: part}), question.columns
                )
                for part in values(answer.rows, question.parts)
            ),
            answer.paragraph,
        ],
        list(question.notes),
        [Plot(question.title, lambda panels: question.draw(answer.rows, panels), question.panels)],
    )
