# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask capacity`: memory that sheaves and barns cost, and the time that they save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kmem.lab.loads import Load
from kmem.lab.questions import (
    Answer,
    Case,
    Column,
    Question,
    Row,
    Rows,
    chosen,
    hackbench,
    netperf,
    only,
    values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CPUS = {4: 200, 16: 100, 64: 60, 256: 30}  # and loops of hackbench
QUICK_CPUS = {4: 20, 64: 10}
GROUP_CPUS = 8  # a group of hackbench's for so many CPUs
TRANSACTIONS, QUICK_TRANSACTIONS = 500, 50
CAPACITIES = (8, 16, 32, 64, 128)
LIMITED = 32  # the capacity whose barns are tried with other limits
FULL_LIMITS, EMPTY_LIMITS = (0, 2, 40), (0, 40)  # sheaves; the kernel has 10 of each
ENOUGH = 0.9  # of the time that the fastest capacity saves
CLASSIC = "6.12"


def configurations() -> dict[str, tuple[int, int, int, str]]:
    """Capacity, limits of full and empty sheaves, and options, by name; the classic lists first."""
    found = {CLASSIC: (0, 0, 0, "kernel=6.12")}
    for capacity in CAPACITIES:
        options = f"kernel=7.2,sheaf_capacity={capacity}"
        found[f"sheaves of {capacity}"] = (capacity, 10, 10, options)
    limits = [(full, 10) for full in FULL_LIMITS] + [(10, empty) for empty in EMPTY_LIMITS]
    for full, empty in limits:
        options = f"kernel=7.2,sheaf_capacity={LIMITED},barn_full={full},barn_empty={empty}"
        name = f"{LIMITED}, {full} full, {empty} empty"
        found[name] = (LIMITED, full, empty, options)
    return found


def cases(quick: bool) -> list[Case]:
    transactions = QUICK_TRANSACTIONS if quick else TRANSACTIONS
    found = []
    for cpus, loops in (QUICK_CPUS if quick else CPUS).items():
        loads = {
            "hackbench": ("messages", hackbench(cpus, max(1, cpus // GROUP_CPUS), loops)),
            "netperf": ("exchange", netperf(cpus, transactions)),
        }
        for load, (name, settings) in loads.items():
            for label, (capacity, full, empty, options) in configurations().items():
                labels = {"part": f"{load}, {cpus} CPUs", "load": load, "cpus": cpus}
                barn = {"capacity": capacity, "barn_full": full, "barn_empty": empty}
                case = Load(name, settings, (options,))
                found.append(Case({**labels, "configuration": label, **barn}, case))
    return found


def compared(rows: Rows) -> list[dict[str, Any]]:
    """With what each row saves and costs beside the classic lists of its load and machine."""
    found = []
    for row in rows:
        classic = only(rows, part=row["part"], configuration=CLASSIC)
        more_kib = (row["idle_kib"] - classic["idle_kib"]) / row["cpus"]
        found.append(
            {
                **row,
                "saved_ns": round(classic["ns_per_call"] - row["ns_per_call"], 3),
                "idle_kib_per_cpu": round(row["idle_kib"] / row["cpus"], 2),
                "more_kib_per_cpu": round(more_kib, 2),
            }
        )
    return found


def smallest(rows: Rows, key: str) -> dict[str, Any]:
    """The row with the smallest @key of those that save nearly as much as the fastest."""
    best = max(rows, key=lambda row: row["saved_ns"])
    enough = [row for row in rows if row["saved_ns"] >= ENOUGH * best["saved_ns"]]
    point = min(enough or [best], key=lambda row: row[key])
    return {
        "capacity": point["capacity"],
        "barn_full": point["barn_full"],
        "saved_ns": point["saved_ns"],
        "kib": point["idle_kib_per_cpu"],
        "most_capacity": best["capacity"],
        "most_saved_ns": best["saved_ns"],
        "most_kib": best["idle_kib_per_cpu"],
    }


def standard(rows: Rows, row: Row, capacity: int) -> Row:
    """The row of the part with sheaves of that capacity and the kernel's barns."""
    return only(rows, part=row["part"], configuration=f"sheaves of {capacity}")


def find(rows: Rows) -> dict[str, Any]:
    with_kernels_barns = [row for row in rows if (row["barn_full"], row["barn_empty"]) == (10, 10)]
    of_limits = [row for row in rows if row["capacity"] == LIMITED and row["barn_empty"] == 10]
    machines = {}
    for cpus in values(rows, "cpus"):
        points = {
            load: smallest(chosen(with_kernels_barns, cpus=cpus, load=load), "capacity")
            for load in values(rows, "load")
        }
        machines[str(cpus)] = {
            **points,
            "capacity": max(point["capacity"] for point in points.values()),
            "barn_full": smallest(chosen(of_limits, cpus=cpus, load="hackbench"), "barn_full")[
                "barn_full"
            ],
        }
    empty_ns = max(
        abs(row["ns_per_call"] - standard(rows, row, LIMITED)["ns_per_call"])
        for row in rows
        if row["capacity"] and row["barn_empty"] != 10
    )
    most = max(values(rows, "cpus"))
    on_most = only(rows, cpus=most, load="hackbench", configuration=CLASSIC)
    large = {
        str(capacity): standard(rows, on_most, capacity) for capacity in (LIMITED, max(CAPACITIES))
    }
    return {
        "machines": machines,
        "empty_limit_ns": round(empty_ns, 3),
        "most_cpus": most,
        "most_cpus_ns": {name: row["ns_per_call"] for name, row in large.items()},
        "most_cpus_apart_ns": {name: row["ns_per_call_apart"] for name, row in large.items()},
    }


def say(found: dict[str, Any]) -> str:
    sentences = []
    for cpus, point in found["machines"].items():
        busy = point["hackbench"]
        share = 100 * busy["saved_ns"] / busy["most_saved_ns"] if busy["most_saved_ns"] else 0
        reason = (
            f"hackbench saves {busy['saved_ns']:.0f} ns a call with {busy['capacity']} for"
            f" {busy['kib']:.0f} KiB of idle memory a CPU"
        )
        if busy["capacity"] != busy["most_capacity"]:
            reason += (
                f", {share:.0f}% of the {busy['most_saved_ns']:.0f} ns that"
                f" {busy['most_capacity']} save for {busy['most_kib']:.0f} KiB"
            )
        light = point["netperf"]
        reason += f", netperf {light['saved_ns']:.0f} ns with {light['capacity']}"
        sentences.append(
            f"With {cpus} CPUs take sheaves of {point['capacity']} objects and barns of"
            f" {point['barn_full']} full ones: {reason}."
        )
    ns, apart = found["most_cpus_ns"], found["most_cpus_apart_ns"]
    small, large = str(LIMITED), str(max(CAPACITIES))
    verdict = "beat" if ns[small] < ns[large] else "do not beat"
    chance = max(apart.values())
    sure = "more" if abs(ns[small] - ns[large]) > chance else "no more"
    beside = f", which is {sure} than the {chance:.1f} ns by which seeds differ" if chance else ""
    sentences.append(
        f"On {found['most_cpus']} CPUs under hackbench sheaves of {small} {verdict} sheaves of"
        f" {large}: {ns[small]:.1f} and {ns[large]:.1f} ns a call{beside}."
    )
    if found["empty_limit_ns"]:
        changed = f"changes a call by {found['empty_limit_ns']:.2f} ns at most"
    else:
        changed = "changes nothing, as CPUs and barns exchange full and empty sheaves one for one"
    sentences.append(f"The limit of empty sheaves {changed}.")
    return " ".join(sentences)


def answer(rows: Rows) -> Answer:
    with_savings = compared(rows)
    found = find(with_savings)
    return Answer(with_savings, found, say(found))


def draw(rows: Rows, panels: Sequence[Axes]) -> None:
    for load, axes in zip(("hackbench", "netperf"), panels, strict=True):
        for cpus in values(rows, "cpus"):
            points = [
                row
                for row in chosen(rows, load=load, cpus=cpus, barn_full=10, barn_empty=10)
                if row["capacity"]
            ]
            across = [row["idle_kib_per_cpu"] for row in points]
            up = [row["saved_ns"] for row in points]
            axes.plot(across, up, "o-", label=f"{cpus} CPUs", markersize=4)
            for row, x, y in zip(points, across, up, strict=True):
                axes.annotate(str(row["capacity"]), (x, y), fontsize="x-small")
        axes.set_title(load, fontsize="medium")
        axes.set_xlabel("idle KiB a CPU")
        axes.set_ylabel("ns a call saved")
        axes.legend(fontsize="x-small")


QUESTION = Question(
    "capacity",
    "How many objects should a sheaf hold, and how many sheaves a barn?",
    cases,
    answer,
    "part",
    (
        Column("policy", "configuration"),
        Column("ns a call", "ns_per_call"),
        Column("seeds apart", "ns_per_call_apart"),
        Column("saved", "saved_ns"),
        Column("idle KiB a CPU", "idle_kib_per_cpu"),
        Column("more", "more_kib_per_cpu"),
        Column("list locks", "list_locks"),
        Column("waited, ns", "list_wait_ns"),
        Column("barn locks", "barn_locks"),
        Column("waited, ns", "barn_wait_ns"),
    ),
    draw,
    2,
    4,
    (
        "saved, more: beside CPU slabs and CPU partial lists (kernel=6.12). idle: slab memory that"
        " no message has, with the sheaves' own memory. Locks and waits are those of a message.",
        f"Taken is the smallest capacity that saves {ENOUGH:.0%} of what the fastest saves, under"
        " the load that needs more; the barn's limit of full sheaves likewise, by hackbench alone.",
        "Time is of the allocator, modelled by assumed costs, with waits for lists and barns.",
    ),
)
