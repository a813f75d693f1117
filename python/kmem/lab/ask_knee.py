# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask knee`: where CPUs begin to wait for lists and barns, by CPUs and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kmem.lab.loads import Load
from kmem.lab.questions import (
    Answer,
    Case,
    Column,
    Question,
    Rows,
    chosen,
    crossing,
    hackbench,
    values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LESS_WORK = 5  # the last program's other work is a fifth
# Options, and by what the program's other work is divided.
POLICIES = {
    "6.12: CPU slabs": ("kernel=6.12", 1),
    "7.2: sheaves by size": ("kernel=7.2", 1),
    "7.2: sheaves of 8": ("kernel=7.2,sheaf_capacity=8", 1),
    f"7.2, 1/{LESS_WORK} of other work": ("kernel=7.2", LESS_WORK),
}
WORK = ("send_ns", "receive_ns", "switch_ns", "wake_ns")
WAKE_NS = 400
CPUS, QUICK_CPUS = (4, 16, 64, 256), (16, 64)
GROUPS, QUICK_GROUPS = (1, 2, 4, 8, 16, 32, 64), (2, 8, 32)
LOOPS_OF_GROUPS, QUICK_LOOPS_OF_GROUPS = 400, 100  # groups times loops: as many messages each
LEAST_LOOPS = 8
LEVELS = (10, 50)  # percent of the time
# What a wait is a share of: the time that CPUs are busy, or the allocator's.
WAITS = {"busy": "wait_percent", "allocator": "waits_of_allocator_percent"}


def cases(quick: bool) -> list[Case]:
    whole = QUICK_LOOPS_OF_GROUPS if quick else LOOPS_OF_GROUPS
    found = []
    for policy, (options, part) in POLICIES.items():
        for cpus in QUICK_CPUS if quick else CPUS:
            for groups in QUICK_GROUPS if quick else GROUPS:
                labels = {"part": policy, "cpus": cpus, "groups": groups}
                loops = max(LEAST_LOOPS, whole // groups)
                settings = {**hackbench(cpus, groups, loops), "wake_ns": WAKE_NS}
                settings.update({name: int(settings[name]) // part for name in WORK})
                found.append(Case(labels, Load("messages", settings, (options,))))
    return found


def with_waits(rows: Rows) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "cpus_and_groups": f"{row['cpus']} CPUs, {row['groups']} groups",
            "wait_percent": round(row["list_wait_percent"] + row["barn_wait_percent"], 4),
        }
        for row in rows
    ]


def knees(rows: Rows, key: str) -> dict[str, Any]:
    """By level: the least CPUs, and groups there, where waiting comes to it; None: nowhere."""
    found: dict[str, Any] = {}
    for level in LEVELS:
        found[str(level)] = None
        for cpus in sorted(values(rows, "cpus")):
            points = [(float(row["groups"]), row[key]) for row in chosen(rows, cpus=cpus)]
            groups = crossing(points, level)
            if groups is not None:
                found[str(level)] = {"cpus": cpus, "groups": round(groups, 1)}
                break
    return found


def find(rows: Rows) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for policy in values(rows, "part"):
        mine = chosen(rows, part=policy)
        worst = max(mine, key=lambda row: row["wait_percent"])
        found[policy] = {
            **{name: knees(mine, key) for name, key in WAITS.items()},
            "worst": {
                **{name: worst[name] for name in ("cpus", "groups", "wait_percent")},
                "apart_percent": worst["list_wait_percent_apart"],
                "list_percent": worst["list_wait_percent"],
                "barn_percent": worst["barn_wait_percent"],
            },
        }
    return found


def knee_words(knees_of_levels: dict[str, Any]) -> str:
    """Of the levels that are reached."""
    reached = [
        f"{level}% from {knee['cpus']} CPUs and {knee['groups']:.0f} groups on"
        for level, knee in knees_of_levels.items()
        if knee
    ]
    return " and ".join(reached) or f"{LEVELS[0]}% nowhere"


def say(found: dict[str, Any]) -> str:
    sentences = []
    for policy, one in found.items():
        worst = one["worst"]
        lock = "lists" if worst["list_percent"] >= worst["barn_percent"] else "barns"
        busy, allocator = (knee_words(one[name]) for name in WAITS)
        sentences.append(
            f"{policy}: of the busy time waiting is {busy}, of the allocator's {allocator}; at most"
            f" it is {worst['wait_percent']:.1f}% of the busy time, with {worst['cpus']} CPUs and"
            f" {worst['groups']} groups, most of it for {lock}"
            f" (seeds differ by {worst['apart_percent']:.1f} points there)."
        )
    return " ".join(sentences)


def answer(rows: Rows) -> Answer:
    with_sums = with_waits(rows)
    found = find(with_sums)
    return Answer(with_sums, found, say(found))


def draw(rows: Rows, panels: Sequence[Axes]) -> None:
    for policy, axes in zip(POLICIES, panels, strict=True):
        for cpus in values(rows, "cpus"):
            points = chosen(rows, part=policy, cpus=cpus)
            across = [row["groups"] for row in points]
            axes.plot(across, [row["wait_percent"] for row in points], "o-", label=f"{cpus} CPUs")
        axes.axhline(LEVELS[0], linewidth=0.5, color="gray")
        axes.set_xscale("log", base=2)
        axes.set_title(policy, fontsize="medium")
        axes.set_xlabel("groups")
        axes.set_ylabel("waiting, % of the busy time")
    panels[0].legend(fontsize="x-small")


QUESTION = Question(
    "knee",
    "With how many CPUs and groups do list_lock and barns saturate?",
    cases,
    answer,
    "part",
    (
        Column("machine", "cpus_and_groups"),
        Column("waits, %", "wait_percent"),
        Column("for lists, %", "list_wait_percent"),
        Column("for barns, %", "barn_wait_percent"),
        Column("seeds apart", "list_wait_percent_apart"),
        Column("of allocator, %", "waits_of_allocator_percent"),
        Column("list locks", "list_locks"),
        Column("barn locks", "barn_locks"),
        Column("ns a call", "ns_per_call"),
    ),
    draw,
    4,
    4,
    (
        "hackbench in processes; machines of 64 CPUs and more have two nodes. waits: of the time"
        " that CPUs run tasks; of allocator: of the allocator's own time. Locks are those of a"
        " message.",
        "A knee is the least number of CPUs where waiting comes to the level, and there the number"
        " of groups, on the line between two points. The last program is one that does a fifth of"
        " hackbench's other work for a message, so that it allocates more often.",
    ),
)
