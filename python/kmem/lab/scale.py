# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab scale`: what an operation costs as the machine gets more CPUs.

Five patterns of tools/loads/patterns.c with a task for each CPU, from 2 to 256 CPUs, on one node
and on two. A row is flat if its time stays near that of 2 CPUs, or it names the parts of the time
that grew, which follow from the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from kmem.lab import report as shown
from kmem.lab.loads import Load, run, run_all
from kmem.lab.report import Plot, Report, show_experiment
from kmem.replay.costs import read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CPUS = (2, 4, 8, 16, 32, 64, 128, 256)
QUICK_CPUS = (2, 16, 64)
NODES = (1, 2)
# "default" has no option: what a program that uses malloc gets.
POLICIES = {"default": "", "6.12": "kernel=6.12", "7.2": "kernel=7.2"}
FLAT = 1.3  # times the operation of 2 CPUs
NAMED = 0.2  # a part is named that has this share of the growth
WORK = {"send_ns": 50, "receive_ns": 50}
SKIP = 40  # percent of the messages, after which a run has come to rest


@dataclass(frozen=True)
class Workload:
    name: str
    load: str
    settings: Mapping[str, int | str]
    loops: int  # for each CPU
    quick_loops: int
    seeds: int = 1  # runs that are added up; more where chance decides who frees


WORKLOADS = (
    Workload("local pairs", "pairs", {}, 1000, 500),
    Workload("bursts of 1,024", "bursts", {"capacity": 1024}, 10_240, 5120),
    Workload("producer and consumer", "handed", {"capacity": 256}, 2500, 1250),
    Workload("freed on any other CPU", "random", {"capacity": 64}, 2500, 1250, seeds=3),
    Workload("births", "births", {"task": "process"}, 160, 40, seeds=3),
)

# What a count's time is spent on; counts that are missing here are "other".
PARTS = {
    "calls": "the call itself",
    "slow_paths": "slow paths",
    "compare_swaps": "swaps of slabs' states",
    "atomic_adds": "atomic additions",
    "exchanges": "exchanges",
    "remote_words": "lines of slabs' states",
    "list_moves": "moves on nodes' lists",
    "remote_objects": "lines of objects",
    "slot_locks": "slot cache locks",
    "list_locks": "list_lock",
    "list_handed_over": "list_lock's line",
    "barn_locks": "barn lock",
    "barn_handed_over": "barn lock's line",
    "page_locks": "zone lock",
    "page_handed_over": "zone lock's line",
    "list_waits": "waiting for list_lock",
    "barn_waits": "waiting for barn locks",
}
# Counted as time, not as events.
WAITS = {"list_wait_ns": "waiting for list_lock", "barn_wait_ns": "waiting for barn locks"}

# Of an operation, a call that takes or gives an object.
FIGURES = {
    "list_locks": "list locks",
    "list_hold_ns": "held, ns",
    "list_waits": "waits",
    "list_wait_ns": "list, ns",
    "barn_locks": "barn locks",
    "barn_hold_ns": "held, ns",
    "barn_waits": "waits",
    "barn_wait_ns": "barn, ns",
    "page_locks": "zone locks",
    "page_handed_over": "handed over",
}
# The table has these; the JSON file has all.
COLUMNS = ("list_locks", "list_wait_ns", "barn_locks", "barn_wait_ns", "page_locks")

NOTES = (
    "Each figure is of an operation, a call that takes or gives an object. of 2: the time by"
    f" that of 2 CPUs with equal policies and nodes; flat: at most {FLAT} of it.",
    "lines: those of objects, slabs' states and locks that another CPU had last. list, barn:"
    " the time that these locks are waited for.",
    f"grew: the parts of the time that have {NAMED:.0%} of the growth or more, largest first, ns.",
    "Time is modelled, by counts and assumed costs. CPUs wait for list locks and barn locks. The"
    " simulator has no queue for zone locks, which count as taken and handed over only.",
    "A hand-over is always to another CPU, and a pair of producer and consumer is of two nodes if"
    " there are two: otherwise the share of remote frees would grow with the CPUs by itself.",
)


def part_of(count: str) -> str:
    return PARTS.get(count.removesuffix("_node"), "other")


def parts_ns(counts: Mapping[str, int], costs: Mapping[str, float]) -> dict[str, float]:
    """Time of an operation by what it is spent on; its sum is the allocator's time."""
    parts = dict.fromkeys([*PARTS.values(), *WAITS.values(), "other"], 0.0)
    for name, count in counts.items():
        if name in WAITS:
            parts[WAITS[name]] += count
        else:
            parts[part_of(name)] += costs.get(name, 0) * count
    return {name: ns / counts["calls"] for name, ns in parts.items()}


def remote_lines(counts: Mapping[str, int]) -> int:
    handed = sum(count for name, count in counts.items() if name.endswith("_handed_over"))
    return counts["remote_objects"] + counts["remote_words"] + handed


@dataclass(frozen=True)
class Case:
    workload: Workload
    policy: str
    nodes: int
    cpus: int


def counts_of(case: Case, *, quick: bool, seed: int) -> dict[str, int]:
    settings: dict[str, int | str] = {
        "boot_cpus": case.cpus,
        "nodes": case.nodes,
        "loops": case.workload.quick_loops if quick else case.workload.loops,
        "skip": SKIP,
        "window": 1,
        "seed": seed,
        "defaults": 1,
        **WORK,
        **case.workload.settings,
    }
    options = tuple(option for option in (POLICIES[case.policy],) if option)
    return dict(run(Load(case.workload.load, settings, options))["counts"])


def one_row(case: Case, *, quick: bool, seed: int) -> dict[str, Any]:
    """The figures of an operation over all seeds from `seed` on."""
    counts: Counter[str] = Counter()
    for number in range(seed, seed + case.workload.seeds):
        counts.update(counts_of(case, quick=quick, seed=number))
    parts = parts_ns(counts, read_costs())
    return {
        "workload": case.workload.name,
        "policy": case.policy,
        "nodes": case.nodes,
        "cpus": case.cpus,
        "ns": round(sum(parts.values()), 4),
        "remote_lines": round(remote_lines(counts) / counts["calls"], 5),
        **{name: round(counts[name] / counts["calls"], 5) for name in FIGURES},
        "parts": {name: round(ns, 4) for name, ns in parts.items() if ns},
    }


def grown_parts(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """The parts that have a share of the growth, and by how many ns they grew; largest first."""
    growth = {
        name: last.get(name, 0) - first.get(name, 0) for name in dict.fromkeys([*first, *last])
    }
    whole = sum(growth.values())
    named = {name: round(ns, 3) for name, ns in growth.items() if ns >= NAMED * whole > 0}
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))


def key_of(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["workload"], row["policy"], row["nodes"]


def judge(rows: Sequence[dict[str, Any]]) -> None:
    """Adds to each row what it is beside its machine of 2 CPUs."""
    first = {key_of(row): row for row in rows if row["cpus"] == min(CPUS)}
    for row in rows:
        base = first[key_of(row)]
        row["of_2"] = round(row["ns"] / base["ns"], 3)
        row["flat"] = row["of_2"] <= FLAT
        row["grew"] = {} if row["flat"] else grown_parts(base["parts"], row["parts"])


def verdicts_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each workload, policy and number of nodes: flat, or from which machine on, and by what on
    the largest machine that is not."""
    series: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        series.setdefault(key_of(row), []).append(row)
    verdicts = []
    for (workload, policy, nodes), mine in series.items():
        grown = [row for row in mine if not row["flat"]]
        verdict = "flat"
        if grown:
            verdict = f"from {grown[0]['cpus']} CPUs: {', '.join(grown[-1]['grew'])}"
        verdicts.append(
            {
                "workload": workload,
                "policy": policy,
                "nodes": nodes,
                "least_ns": mine[0]["ns"],
                "most_of_2": max(row["of_2"] for row in mine),
                "verdict": verdict,
            }
        )
    return verdicts


def as_verdict_table(verdicts: Sequence[Mapping[str, Any]]) -> Table:
    output = shown.table("verdicts", ["workload", "policy", "nodes", "ns", "most, of 2", "verdict"])
    output.columns[-1].justify = "left"
    for one in verdicts:
        output.add_row(
            one["workload"],
            one["policy"],
            str(one["nodes"]),
            f"{one['least_ns']:.1f}",
            f"{one['most_of_2']:.2f}",
            one["verdict"],
        )
    return output


def as_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    workload, _, nodes = key_of(rows[0])
    output = shown.table(
        f"{workload}, {nodes} node{'s' * (nodes > 1)}",
        ["policy", "CPUs", "ns", "of 2", "lines", *(FIGURES[name] for name in COLUMNS), "grew"],
    )
    reasons = output.columns[-1]
    reasons.justify, reasons.no_wrap = "left", False
    for row in rows:
        output.add_row(
            row["policy"],
            str(row["cpus"]),
            f"{row['ns']:.1f}",
            f"{row['of_2']:.2f}",
            f"{row['remote_lines']:.3f}",
            *(f"{row[name]:.3f}" for name in COLUMNS),
            "flat" if row["flat"] else ", ".join(f"{n} {ns:+.1f}" for n, ns in row["grew"].items()),
        )
    return output


def draw(rows: Sequence[Mapping[str, Any]], nodes: int, panels: Sequence[Axes]) -> None:
    for workload, axes in zip(WORKLOADS, panels, strict=True):
        for policy in POLICIES:
            chosen = [row for row in rows if key_of(row) == (workload.name, policy, nodes)]
            axes.plot(
                [row["cpus"] for row in chosen],
                [row["of_2"] for row in chosen],
                marker="o",
                label=policy,
            )
        axes.axhline(FLAT, color="black", linewidth=0.5)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_title(workload.name, fontsize="small")
        axes.set_xlabel("CPUs")
    panels[0].set_ylabel("time of an operation, of 2 CPUs")
    panels[0].legend(fontsize="small")


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """A paragraph: how many rows are flat, and what the largest machine's others wait for."""
    last = max(row["cpus"] for row in rows)
    lines = []
    for policy in POLICIES:
        mine = [row for row in rows if row["policy"] == policy]
        grown = [row for row in mine if row["cpus"] == last and not row["flat"]]
        flat = sum(row["flat"] for row in mine)
        text = f"{policy}: {flat} of {len(mine)} rows are flat."
        if not grown:
            text += f" On {last} CPUs all workloads are."
        for row in grown:
            cause = next(iter(row["grew"]), "nothing single")
            nodes = f"{row['nodes']} node{'s' * (row['nodes'] > 1)}"
            text += (
                f" On {last} CPUs {row['workload']} ({nodes}) take {row['of_2']:.2f} times the"
                f" operation of 2, most by {cause}."
            )
        lines.append(text)
    return "\n".join(lines)


def scale_report(*, quick: bool = False, seed: int = 1) -> Report:
    cases = [
        Case(workload, policy, nodes, cpus)
        for workload in WORKLOADS
        for nodes in NODES
        for policy in POLICIES
        for cpus in (QUICK_CPUS if quick else CPUS)
    ]
    rows = run_all(
        "scale",
        cases,
        lambda case: one_row(case, quick=quick, seed=seed),
        lambda case: case.cpus * case.workload.loops * case.workload.seeds,
    )
    judge(rows)
    verdicts = verdicts_of(rows)
    text = summary(rows)
    parts: list[Any] = [
        as_table([r for r in rows if r["workload"] == workload.name and r["nodes"] == nodes])
        for workload in WORKLOADS
        for nodes in NODES
    ]
    return Report(
        "scale",
        "An operation on machines of more and more CPUs",
        {
            "quick": quick,
            "seed": seed,
            "flat": FLAT,
            "costs_ns": read_costs(),
            "rows": rows,
            "verdicts": verdicts,
            "summary": text.splitlines(),
        },
        [*parts, as_verdict_table(verdicts), text],
        list(NOTES),
        [Plot(f"time by CPUs, nodes: {n}", partial(draw, rows, n), 5) for n in NODES],
    )


def show_scale(*, quick: bool, seed: int, json_file: Path | None, html_file: Path | None) -> None:
    show_experiment(lambda: scale_report(quick=quick, seed=seed), json_file, html_file)
