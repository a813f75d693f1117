# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab ask memory`: what sheaves, barns and partial slabs keep with pages of 64 KiB, and when
CPUs are plugged in after the boot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kmem.common.tree import BUILD
from kmem.lab.loads import Load
from kmem.lab.questions import Answer, Case, Column, Question, Rows, hackbench, only, percent_more

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POLICIES = {"6.12: CPU slabs": "kernel=6.12", "7.2: sheaves": "kernel=7.2"}
PAGES = ("4k", "64k")
POSSIBLE, BOOT = 64, 16
# CPUs present and online at boot, and online during the load.
SHAPES = {
    "16 CPUs": (BOOT, BOOT),
    "16, then 64": (BOOT, POSSIBLE),
    "64 at boot": (POSSIBLE, POSSIBLE),
}
GROUPS, LOOPS, QUICK_LOOPS = 8, 120, 20
PLACES = ("sheaves_kib", "barns_kib", "partial_kib")


def cases(quick: bool) -> list[Case]:
    found = []
    for page in PAGES:
        for policy, options in POLICIES.items():
            for shape, (boot, load) in SHAPES.items():
                settings = {
                    **hackbench(boot, GROUPS, QUICK_LOOPS if quick else LOOPS),
                    "nodes": 2,
                    "possible": POSSIBLE,
                    "present": boot,
                    "load_cpus": load,
                    "task": "process",
                }
                part = f"pages of {page.upper()}iB, {policy}"
                labels = {"part": part, "page": page, "policy": policy, "cpus": shape}
                tool = BUILD / "tools" / f"loads-{page}"
                found.append(Case(labels, Load("messages", settings, (options,), tool)))
    return found


def plugged_in(rows: Rows, policy: str, page: str) -> dict[str, Any]:
    """The machine before and after its CPUs came, and beside a machine that had all at boot."""
    before, after, at_boot = (only(rows, policy=policy, page=page, cpus=shape) for shape in SHAPES)
    return {
        "percent": percent_more(after["idle_kib"], at_boot["idle_kib"]),
        "apart_percent": round(100 * at_boot["idle_kib_apart"] / at_boot["idle_kib"], 2),
        "before": {name: before[name] for name in PLACES},
        "after": {name: after[name] for name in PLACES},
    }


def find(rows: Rows) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for policy in POLICIES:
        small, large = (only(rows, policy=policy, page=page, cpus="64 at boot") for page in PAGES)
        found[policy] = {
            "idle_times": round(large["idle_kib"] / small["idle_kib"], 3),
            "kib": {
                page: {name: row[name] for name in ("idle_kib", *PLACES)}
                for page, row in zip(PAGES, (small, large), strict=True)
            },
            "plugged": {page: plugged_in(rows, policy, page) for page in PAGES},
        }
    return found


def say(found: dict[str, Any]) -> str:
    sentences = []
    for policy, one in found.items():
        small, large = (one["kib"][page] for page in PAGES)
        sentences.append(
            f"{policy}: with pages of 64 KiB idle memory on 64 CPUs is {one['idle_times']:.2f}"
            f" times that with 4 KiB ({large['idle_kib'] / 1024:.1f} and"
            f" {small['idle_kib'] / 1024:.1f} MiB): sheaves {large['sheaves_kib']:,.0f} and"
            f" {small['sheaves_kib']:,.0f} KiB, barns {large['barns_kib']:,.0f} and"
            f" {small['barns_kib']:,.0f}, partial slabs {large['partial_kib']:,.0f} and"
            f" {small['partial_kib']:,.0f}."
        )
        for page in PAGES:
            plugged = one["plugged"][page]
            before, after = (
                plugged[when]["sheaves_kib"] + plugged[when]["barns_kib"]
                for when in ("before", "after")
            )
            sentences.append(
                f"With pages of {page.upper()}iB, 48 CPUs that come after the boot leave"
                f" {plugged['percent']:+.1f}% idle memory beside 64 at boot (seeds differ by"
                f" {plugged['apart_percent']:.1f}%); sheaves and barns grow from {before:,.0f} to"
                f" {after:,.0f} KiB, partial slabs from {plugged['before']['partial_kib']:,.0f} to"
                f" {plugged['after']['partial_kib']:,.0f}."
            )
    return " ".join(sentences)


def answer(rows: Rows) -> Answer:
    found = find(rows)
    return Answer(rows, found, say(found))


def draw(rows: Rows, panels: Sequence[Axes]) -> None:
    (axes,) = panels
    labels = [f"{row['page']}, {row['policy'][:4]}, {row['cpus']}" for row in rows]
    left = [0.0] * len(rows)
    for name in PLACES:
        widths = [row[name] / 1024 for row in rows]
        axes.barh(labels, widths, left=left, label=name.removesuffix("_kib"))
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("MiB")
    axes.legend(fontsize="x-small")


QUESTION = Question(
    "memory",
    "What do sheaves, barns and partial slabs keep with 64 KiB pages and with CPUs plugged in?",
    cases,
    answer,
    "part",
    (
        Column("CPUs", "cpus"),
        Column("slabs, KiB", "slab_kib"),
        Column("idle, KiB", "idle_kib"),
        Column("in sheaves", "sheaves_kib"),
        Column("in barns", "barns_kib"),
        Column("in partial slabs", "partial_kib"),
        Column("ns a call", "ns_per_call"),
        Column("list locks", "list_locks"),
    ),
    draw,
    1,
    6,
    (
        f"hackbench with {GROUPS} groups on a machine of {POSSIBLE} possible CPUs and 2 nodes;"
        f" {BOOT} or all are there at boot, and the others come before the load. Means of the"
        " samples of a run.",
        "idle: slab memory that the program does not have, with the sheaves themselves; what no"
        " column names is in CPU slabs, CPU partial lists and the ends of slabs.",
    ),
)
