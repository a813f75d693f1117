# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask nodes`: whether frees of another node's objects should pass the sheaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kmem.lab.loads import Load
from kmem.lab.questions import SKIP, Answer, Case, Column, Question, Rows, crossing, only, values
from kmem.replay.costs import read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SLAB, SHEAF = "past the sheaves", "into the sheaves"
POLICIES = {SLAB: "kernel=7.2", SHEAF: "kernel=7.2,remote_frees=sheaf"}
SHARES = (0, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
QUICK_SHARES = (0, 10, 50, 100)
LOOPS, QUICK_LOOPS = 20_000, 4_000
CPUS = 16
LINES = (1, 2, 4, 8)  # of an object that come from the other node's memory


def cases(quick: bool) -> list[Case]:
    found = []
    for share in QUICK_SHARES if quick else SHARES:
        settings = {
            "boot_cpus": CPUS,
            "possible": CPUS,
            "nodes": 2,
            "groups": CPUS,
            "capacity": 64,
            "loops": QUICK_LOOPS if quick else LOOPS,
            "remote": share,
            "skip": SKIP,
        }
        for policy, options in POLICIES.items():
            labels = {"part": "frees of another node's objects", "policy": policy, "share": share}
            found.append(Case(labels, Load("mesh", settings, (options,))))
    return found


def compared(rows: Rows) -> list[dict[str, Any]]:
    """With the cost of a distant object at which both ways are equal."""
    found = []
    for row in rows:
        past, into = (only(rows, policy=policy, share=row["share"]) for policy in POLICIES)
        fewer = into["distant"] - past["distant"]
        equal = round((past["ns"] - into["ns"]) / fewer, 2) if fewer > 0 else None
        found.append({**row, "distant_percent": 100 * row["distant"], "equal_ns": equal})
    return found


def find(rows: Rows) -> dict[str, Any]:
    line_ns = read_costs()["remote_words_node"]
    curve = [
        (float(row["share"]), row["equal_ns"])
        for row in rows
        if row["policy"] == SLAB and row["equal_ns"] is not None
    ]
    crossings = {}
    for lines in LINES:
        at = crossing(curve, lines * line_ns)
        crossings[str(lines)] = None if at is None else round(at, 2)
    most = max(values(rows, "share"))
    return {
        "line_ns": line_ns,
        "pays_below_percent": crossings,
        "first_share": curve[0][0] if curve else None,
        "most_equal_ns": max((ns for _, ns in curve), default=None),
        "ns": {policy: only(rows, policy=policy, share=most)["ns"] for policy in POLICIES},
        "distant_percent": {
            policy: only(rows, policy=policy, share=most)["distant_percent"] for policy in POLICIES
        },
        "most_share": most,
    }


def say(found: dict[str, Any]) -> str:
    pays, first = [], found["first_share"]
    for lines, share in found["pays_below_percent"].items():
        many = f"{lines} line{'s' if lines != '1' else ''}"
        if share is None:
            pays.append(f"with {many} always")
        elif share <= first:
            pays.append(f"with {many} never")
        else:
            pays.append(f"with {many} up to {share:.0f}%")
    ns, distant = found["ns"], found["distant_percent"]
    return (
        f"With {found['most_share']}% of frees from another node, the allocator takes"
        f" {ns[SLAB]:.0f} ns an object past the sheaves and {ns[SHEAF]:.0f} ns through them, but"
        f" then {distant[SHEAF]:.0f}% of the objects that a CPU gets are of the other node's memory"
        f" ({distant[SLAB]:.0f}% past the sheaves). So bypassing pays only if such an object is"
        " dear, and for small shares sooner than for large: frees mix the nodes' objects whatever"
        f" their share, and each bypass costs. With {found['line_ns']:.0f} ns more for a line of"
        f" distant memory, it pays {', '.join(pays)} of remote frees. An object would have to cost"
        f" {found['most_equal_ns'] or 0:.0f} ns more for bypassing to pay at every share."
    )


def answer(rows: Rows) -> Answer:
    with_equal = compared(rows)
    found = find(with_equal)
    return Answer(with_equal, found, say(found))


def draw(rows: Rows, panels: Sequence[Axes]) -> None:
    for policy in POLICIES:
        points = [row for row in rows if row["policy"] == policy]
        panels[0].plot(
            [row["share"] for row in points], [row["ns"] for row in points], label=policy
        )
    panels[0].set_ylabel("allocator, ns an object")
    panels[0].legend(fontsize="small")
    points = [row for row in rows if row["policy"] == SLAB and row["equal_ns"] is not None]
    panels[1].plot([row["share"] for row in points], [row["equal_ns"] for row in points], "o-")
    line_ns = read_costs()["remote_words_node"]
    for lines in LINES:
        panels[1].axhline(lines * line_ns, linewidth=0.5, color="gray")
        panels[1].annotate(f"{lines} lines", (0, lines * line_ns), fontsize="x-small")
    panels[1].set_ylabel("ns a distant object, where both are equal")
    for axes in panels:
        axes.set_xlabel("frees of another node's objects, %")


QUESTION = Question(
    "nodes",
    "At which share of remote frees does bypassing the sheaves pay?",
    cases,
    answer,
    "part",
    (
        Column("frees go", "policy"),
        Column("share, %", "share"),
        Column("ns an object", "ns"),
        Column("distant, %", "distant_percent"),
        Column("equal at, ns", "equal_ns"),
        Column("list locks", "list_locks"),
        Column("waited, ns", "list_wait_ns"),
        Column("barn locks", "barn_locks"),
    ),
    draw,
    2,
    2,
    (
        f"{CPUS} CPUs on 2 nodes; each hands objects to others, a share of them to the other node,"
        " and frees what it gets (tools/loads/mesh.c). distant: objects that a CPU allocates from"
        " the other node's memory. equal: the cost of such an object at which both ways take as"
        " long.",
        "The allocator's time has no cost of distant memory; what the program pays for it depends"
        " on how many lines of the object miss all caches, which nobody knows for all programs.",
    ),
)
