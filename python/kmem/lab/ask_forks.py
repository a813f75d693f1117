# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask forks`: fork and exec without CPU slabs and CPU partial lists below the sheaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmem.lab.loads import Load
from kmem.lab.questions import (
    SKIP,
    Answer,
    Case,
    Column,
    Question,
    Rows,
    chosen,
    machine,
    only,
    values,
)
from kmem.lab.replays import Job

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRACES = Path(__file__).parents[1] / "traces"
CLASSIC, FEW, BOTH, SHEAVES = "6.12: CPU slabs", "6.18: both, two caches", "both", "7.2: sheaves"
REMOTE = "7.2, remote frees too"
# The first caches that asked for sheaves, in 6.18 (S13-01).
ASKED = "maple_node.sheaf_capacity=32,vm_area_struct.sheaf_capacity=32"
POLICIES = {
    CLASSIC: "kernel=6.12",
    FEW: f"kernel=6.18,{ASKED}",
    BOTH: "kernel=7.2,cpu_slabs=1",
    SHEAVES: "kernel=7.2",
    REMOTE: "kernel=7.2,remote_frees=sheaf",
}
# CPUs and nodes.
MACHINES, QUICK_MACHINES = ((16, 1), (16, 2), (64, 1), (64, 2)), ((16, 1), (16, 2))
CHILDREN = 8  # of a parent, at once
LOOPS, QUICK_LOOPS = 60, 15
RUN_NS = 150_000  # of a child after exec
RECORDED = ("6.12", "7.2")
RECORDED_CPUS = 16


def cases(quick: bool) -> list[Case]:
    found = []
    for cpus, nodes in QUICK_MACHINES if quick else MACHINES:
        settings: dict[str, int | str] = {
            **machine(cpus),
            "nodes": nodes,
            "groups": cpus // 2,
            "pairs": CHILDREN,
            "loops": QUICK_LOOPS if quick else LOOPS,
            "task": "process",
            "send_ns": RUN_NS,
            "skip": SKIP,
        }
        for policy, options in POLICIES.items():
            part = f"a fork, exec and exit, {cpus} CPUs of {nodes} node{'s' * (nodes > 1)}"
            labels = {"part": part, "cpus": cpus, "nodes": nodes, "policy": policy}
            found.append(Case(labels, Load("forks", settings, (options,))))
    for kernel in RECORDED[: 1 if quick else None]:
        trace = TRACES / f"forks-{kernel}-{RECORDED_CPUS}cpu.ktrace"
        part = f"a call of forks recorded on Linux {kernel}, {RECORDED_CPUS} CPUs; nobody waits"
        for policy, options in POLICIES.items():
            labels = {"part": part, "policy": policy, "recorded": kernel}
            found.append(Case(labels, Job(trace, options)))
    return found


def find(rows: Rows) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in values(rows, "part"):
        ns = {policy: only(rows, part=part, policy=policy)["ns"] for policy in POLICIES}
        last = only(rows, part=part, policy=SHEAVES)
        below = only(rows, part=part, policy=BOTH)
        found[part] = {
            "ns": ns,
            "lost_ns": round(ns[SHEAVES] - ns[BOTH], 2),
            "lost_percent": round(100 * (ns[SHEAVES] / ns[BOTH] - 1), 2),
            "list_locks": {BOTH: below["list_locks"], SHEAVES: last["list_locks"]},
            "waits": "list_wait_ns" in last,
            "nodes": last.get("nodes"),
            "waited_more_ns": round(last.get("list_wait_ns", 0) - below.get("list_wait_ns", 0), 2),
            "slab_kib": {BOTH: below["slab_kib"], SHEAVES: last["slab_kib"]},
        }
    return found


def say(found: dict[str, Any]) -> str:
    clocked = {part: one for part, one in found.items() if one["waits"]}
    sentences = []
    for part, one in clocked.items():
        ns, locks = one["ns"], one["list_locks"]
        change = "lose" if one["lost_ns"] > 0 else "save"
        sentences.append(
            f"In {part}, sheaves alone {change} {abs(one['lost_ns']) / 1000:.1f} us of the"
            f" allocator's time ({one['lost_percent']:+.0f}%) beside sheaves above CPU slabs:"
            f" {ns[SHEAVES] / 1000:.1f} and {ns[BOTH] / 1000:.1f} us, where 6.12 takes"
            f" {ns[CLASSIC] / 1000:.1f} and 6.18 {ns[FEW] / 1000:.1f};"
            f" {locks[SHEAVES]:.2f} list locks instead of {locks[BOTH]:.2f}, with"
            f" {one['waited_more_ns'] / 1000:+.1f} us of waiting for them."
        )
        if one["nodes"] > 1:
            sentences.append(
                "With frees of the other node's objects in the sheaves they take"
                f" {ns[REMOTE] / 1000:.1f} us."
            )
    recorded = [one for one in found.values() if not one["waits"]]
    losses = [one["lost_percent"] for one in recorded]
    sentences.append(
        f"In recorded forks, where nobody waits, the loss is {min(losses):+.0f}% to"
        f" {max(losses):+.0f}% of a call."
    )
    memory = [one["slab_kib"][SHEAVES] / one["slab_kib"][BOTH] for one in clocked.values()]
    sentences.append(
        f"Without the second layer slabs take {min(memory):.2f} to {max(memory):.2f} times the"
        " memory."
    )
    return " ".join(sentences)


def answer(rows: Rows) -> Answer:
    found = find(rows)
    return Answer(rows, found, say(found))


def draw(rows: Rows, panels: Sequence[Axes]) -> None:
    for policy in POLICIES:
        points = [row for row in chosen(rows, policy=policy) if "cpus" in row]
        across = [f"{row['cpus']} CPUs, {row['nodes']} nodes" for row in points]
        panels[0].plot(across, [row["ns"] / 1000 for row in points], "o", label=policy)
        panels[1].plot(across, [row["list_locks"] for row in points], "o", label=policy)
    panels[0].set_ylabel("allocator, us a fork, exec and exit")
    panels[1].set_ylabel("list locks a fork, exec and exit")
    panels[0].legend(fontsize="x-small")
    for axes in panels:
        axes.tick_params("x", labelrotation=20)


QUESTION = Question(
    "forks",
    "What do fork and exec lose without CPU slabs below the sheaves?",
    cases,
    answer,
    "part",
    (
        Column("policy", "policy"),
        Column("ns", "ns"),
        Column("ns a call", "ns_per_call"),
        Column("list locks", "list_locks"),
        Column("held, ns", "list_hold_ns"),
        Column("waited, ns", "list_wait_ns"),
        Column("barn locks", "barn_locks"),
        Column("slabs, KiB", "slab_kib"),
    ),
    draw,
    2,
    3,
    (
        f"A parent for each two CPUs forks {CHILDREN} children, which exec and exit on CPUs by"
        " chance (tools/loads/forks.c); ns, locks and waits are those of a child's whole life.",
        "6.18: only maple_node and vm_area_struct have sheaves. both: 7.2's sheaves above CPU slabs"
        " and CPU partial lists, which no kernel has for all caches (cpu_slabs=1).",
        "Slabs: the mean of a run; of a recorded one, at its end.",
    ),
)
