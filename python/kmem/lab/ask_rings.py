# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask rings`: objects that one CPU allocates and another frees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kmem.lab.loads import Load
from kmem.lab.questions import SKIP, Answer, Case, Column, Question, Rows, chosen, only, values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLASSIC = "CPU slabs"
POLICIES = {
    CLASSIC: "kernel=6.12",
    **{f"sheaves of {n}": f"kernel=7.2,sheaf_capacity={n}" for n in (8, 32, 128)},
}
PLACES = {"in a node": 0, "across nodes": 100}
BULKS = (1, 16, 64)
OBJECTS, QUICK_OBJECTS = 40_000, 4_000  # of a ring
RINGS, CPUS = 32, 64
# A driver's and a reader's work for a packet, assumed; short, so that the allocator matters.
WORK_NS = 200


def cases(quick: bool) -> list[Case]:
    found = []
    for place, remote in PLACES.items():
        for bulk in BULKS:
            settings: dict[str, int | str] = {
                "boot_cpus": CPUS,
                "possible": CPUS,
                "nodes": 2,
                "groups": RINGS,
                "message": "udp",
                "capacity": 256,
                "bulk": bulk,
                "loops": (QUICK_OBJECTS if quick else OBJECTS) // bulk,
                "pinned": 1,
                "remote": remote,
                "send_ns": WORK_NS,
                "receive_ns": WORK_NS,
                "skip": SKIP,
            }
            part = f"{place}, bulks of {bulk}"
            for policy, options in POLICIES.items():
                labels = {"part": part, "place": place, "bulk": bulk, "policy": policy}
                found.append(Case(labels, Load("rings", settings, (options,))))
    return found


def find(rows: Rows) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in values(rows, "part"):
        classic = only(rows, part=part, policy=CLASSIC)
        sheaves = [row for row in chosen(rows, part=part) if row["policy"] != CLASSIC]
        best = min(sheaves, key=lambda row: row["ns"])
        found[part] = {
            "classic_ns": classic["ns"],
            "best": best["policy"],
            "best_ns": best["ns"],
            "worst_ns": max(row["ns"] for row in sheaves),
            "times": round(best["ns"] / classic["ns"], 3),
            "classic_slab_kib": classic["slab_kib"],
            "most_slab_kib": max(row["slab_kib"] for row in sheaves),
            "classic_list_locks": classic["list_locks"],
            "best_list_locks": best["list_locks"],
            "best_wait_ns": best["list_wait_ns"],
        }
    return found


def say(found: dict[str, Any]) -> str:
    losers = [part for part, one in found.items() if one["times"] > 1]
    if not losers:
        first = "Sheaves win in every ring."
    elif len(losers) == len(found):
        first = "CPU slabs win in every ring."
    else:
        first = f"CPU slabs win in {len(losers)} of {len(found)} rings ({'; '.join(losers)})."
    most = max(found, key=lambda part: found[part]["times"])
    least = min(found, key=lambda part: found[part]["times"])
    sentences = [first]
    for words, part in (("worst", most), ("best", least)):
        one = found[part]
        sentences.append(
            f"Sheaves do {words} {part}: {one['best']} take {one['best_ns']:.0f} ns an object,"
            f" {one['times']:.2f} times the {one['classic_ns']:.0f} ns of CPU slabs, and hold"
            f" {one['best_list_locks']:.2f} list locks an object instead of"
            f" {one['classic_list_locks']:.2f}, waiting {one['best_wait_ns']:.0f} ns."
        )
    spread = max(one["worst_ns"] / one["best_ns"] for one in found.values())
    slabs = [one["most_slab_kib"] / one["classic_slab_kib"] for one in found.values()]
    sentences.append(
        f"The worst capacity of the three takes up to {spread:.1f} times as long as the best, and"
        f" the most memory that they take is {min(slabs):.2f} to {max(slabs):.2f} times that of"
        " CPU slabs."
    )
    return " ".join(sentences)


def answer(rows: Rows) -> Answer:
    found = find(rows)
    return Answer(rows, found, say(found))


def draw(rows: Rows, panels: Sequence[Axes]) -> None:
    for place, axes in zip(PLACES, panels, strict=True):
        for policy in POLICIES:
            points = chosen(rows, place=place, policy=policy)
            axes.plot(
                [row["bulk"] for row in points], [row["ns"] for row in points], "o-", label=policy
            )
        axes.set_xscale("log", base=2)
        axes.set_title(place, fontsize="medium")
        axes.set_xlabel("objects a bulk")
        axes.set_ylabel("allocator, ns an object")
        axes.legend(fontsize="x-small")


QUESTION = Question(
    "rings",
    "What do sheaves cost where one CPU allocates and another frees?",
    cases,
    answer,
    "part",
    (
        Column("policy", "policy"),
        Column("ns an object", "ns"),
        Column("list locks", "list_locks"),
        Column("held, ns", "list_hold_ns"),
        Column("waited, ns", "list_wait_ns"),
        Column("barn locks", "barn_locks"),
        Column("waited, ns", "barn_wait_ns"),
        Column("slabs, KiB", "slab_kib"),
    ),
    draw,
    2,
    2,
    (
        f"{RINGS} rings of 256 receive buffers on {CPUS} CPUs of 2 nodes; drivers and readers stay"
        f" on CPUs of their own. Each of an object, an allocation and a free; {WORK_NS} ns of other"
        " work for each are assumed. Bulks of 1 are single calls.",
        "Across nodes a free passes the sheaves (S13-05), so their capacity counts for refills"
        " only.",
    ),
)
