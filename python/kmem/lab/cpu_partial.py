# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab cpu-partial`: objects against slabs accounting of CPU partial lists, beside a mail.

Hackbench and netperf on simulated machines shaped as the mail's five, before its patch and after
it. Nothing is taken from the mail's tables but which rows there are: the times are counts of the
runs by costs, waiting for list locks, and assumed costs of what the kernel does besides.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.lab.loads import Load, allocator_ns, run, run_all
from kmem.lab.mails import read_mail
from kmem.lab.report import Plot, Report, show_experiment
from kmem.replay.costs import read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAIL = "mm, slub: change percpu partial accounting from objects to pages"

# Linux 5.14: before the patch, and with it.
KERNEL = ("freeze=eager", "order_rule=5.10", "order_cpus=present", "cpu_partial_defaults=seed")
RULES = ("objects", "slabs")


@dataclass(frozen=True)
class Machine:
    """A machine of the mail; what a line of another CPU's cache takes is assumed, not measured."""

    slug: str
    name: str
    cpus: int
    nodes: int
    cache_cpus: int  # that share a last-level cache
    line_ns: float  # a line out of another core's cache, same socket
    other_socket_ns: float  # besides, of the other socket

    def settings(self) -> dict[str, int]:
        return {
            "boot_cpus": self.cpus,
            "possible": self.cpus,
            "nodes": self.nodes,
            "cache_cpus": self.cache_cpus,
        }

    def costs(self) -> dict[str, float]:
        """The assumed costs, with this machine's lines."""
        costs = read_costs()
        for name in ("remote_words", "list_moves", "list_waits", "list_handed_over"):
            costs[name] = self.line_ns
        costs["page_handed_over"] = self.line_ns
        costs["remote_words_node"] = costs["list_handed_over_node"] = self.other_socket_ns
        costs["remote_objects"] = 2 * self.line_ns
        costs["remote_objects_node"] = 2 * self.other_socket_ns
        return costs


MACHINES = {
    machine.slug: machine
    for machine in (
        Machine("epyc7713", "2 x EPYC 7713", 256, 2, 16, 100, 110),
        Machine("xeon5218r", "2 x Xeon 5218R", 80, 2, 40, 55, 70),
        Machine("e5-2698v4", "2 x E5-2698 v4", 80, 2, 40, 55, 70),
        Machine("e3-1240v5", "1 x E3-1240 v5", 8, 1, 8, 25, 0),
        Machine("e5-2670v3", "2 x E5-2670 v3", 48, 2, 24, 55, 70),
    )
}

# What the kernel does besides for a message: gaps between the messages of recorded runs.
KINDS: dict[str, dict[str, int | str]] = {
    "process": {"send_ns": 600, "receive_ns": 850, "switch_ns": 2000},
    "thread": {"send_ns": 700, "receive_ns": 1000, "switch_ns": 1400},
}
PAIRS = 20
MESSAGES_OF_LOOP = PAIRS * PAIRS  # of a group
LOOPS, MESSAGES = 40, 800_000  # at least, and at least in a run; the mail's have 10,000 loops
QUICK_LOOPS, QUICK_MESSAGES = 6, 60_000
QUICK_ROWS = 6  # every so many rows of the mail
SKIP = 40  # percent of the messages, in which a run comes to rest
CHARGED_GROUPS = 12

# Netperf: one pair; the receiver frees a message, as before Linux 5.19.
NETPERF: dict[str, dict[str, int | str]] = {
    "TCP-RR": {"message": "tcp", "send_ns": 1800, "receive_ns": 1200},
    "UDP-RR": {"message": "udp", "send_ns": 1300, "receive_ns": 900},
}
TRANSACTIONS, QUICK_TRANSACTIONS, NETPERF_RUNS = 20_000, 2_000, 8

NOTES = (
    "Groups that pass messages over sockets, as tools/loads/messages.c says. A line: seconds of the"
    " mail and its change in percent (negative: worse with slabs); then ours, modelled.",
    "by allocator: what the allocator takes longer (counts by costs, and waiting for list locks),"
    " of all CPUs' busy time before. elapsed: from the modelled clock; a few percent of it are"
    " chance, as another order of wake-ups gives another schedule.",
    "Scaled down: 40 loops and 800,000 messages at least (quick: 6 and 60,000), where the mail's"
    " hackbench passes 10,000 loops; the first 40% and the last 20% are not measured. Part of the"
    " start is in the figures then: locks that all CPUs want at once come to rest late.",
    "The model knows CPUs, nodes, caches and what a line takes to come over, which is assumed. Xeon"
    " 5218R and E5-2698 v4 are one machine to it. It knows no memory bandwidth, no interrupts, no"
    " page allocator's lock that is waited for, and one scheduler (that of 5.14).",
)


def ranks(values: Sequence[float]) -> list[float]:
    """From 1 on; equal values share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation; None if one of both does not differ anywhere."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return statistics.correlation(ranks(first), ranks(second))


# ---- Hackbench ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A run: rows of machines that are the same to the model share it."""

    kind: str
    machine: Machine
    groups: int
    rule: str

    def shape(self) -> tuple[object, ...]:
        machine = self.machine
        of_machine = (machine.cpus, machine.nodes, machine.line_ns, machine.other_socket_ns)
        return (self.kind, of_machine, self.groups, self.rule)


def run_case(case: Case, loops: int, messages: int, seed: int, charged: bool) -> dict[str, Any]:
    settings: dict[str, int | str] = {
        **case.machine.settings(),
        **KINDS[case.kind],
        "pairs": PAIRS,
        "groups": case.groups,
        "loops": max(loops, messages // (MESSAGES_OF_LOOP * case.groups)),
        "skip": SKIP,
        "seed": seed,
        "charged": int(charged),
    }
    options = (*KERNEL, f"cpu_partial_accounting={case.rule}")
    costs = case.machine.costs()
    document = run(Load("messages", settings, options, costs=costs))
    sent, counts = document["measured_messages"], document["counts"]
    return {
        "elapsed_ns_per_message": round(document["measured_ns"] / sent, 3),
        "busy_ns_per_message": round(document["busy_ns"] / sent, 2),
        "allocator_ns_per_message": round(allocator_ns(document, costs) / sent, 2),
        "per_message": {
            name: round(counts[name] / sent, 5)
            for name in (
                "list_locks",
                "list_handed_over",
                "list_waits",
                "list_wait_ns",
                "list_hold_ns",
                "list_moves",
                "remote_words",
                "compare_swaps",
                "remote_objects",
                "page_locks",
            )
        },
        "slab_kib": document["mean_slab_kib"],
        "live_kib": document["mean_live_kib"],
        "charged_kib": document["mean_charged_kib"],
        "messages": document["messages"],
    }


def change(before: float, after: float, whole: float) -> float:
    """In percent as the mail prints it: negative is worse."""
    return round(100 * (before - after) / whole, 2)


def hackbench_rows(quick: bool, seed: int) -> list[dict[str, Any]]:
    printed = read_mail("cpu_partial_hackbench")[:: QUICK_ROWS if quick else 1]
    loops, messages = (QUICK_LOOPS, QUICK_MESSAGES) if quick else (LOOPS, MESSAGES)
    cases: dict[tuple[object, ...], Case] = {}
    for row in printed:
        for rule in RULES:
            case = Case(row["kind"], MACHINES[row["machine"]], int(row["groups"]), rule)
            cases[case.shape()] = case
    done = run_all(
        "hackbench",
        list(cases.values()),
        lambda case: run_case(case, loops, messages, seed, charged=False),
        lambda case: max(loops * MESSAGES_OF_LOOP * case.groups, messages),
    )
    results = dict(zip(cases, done, strict=True))
    rows = []
    for row in printed:
        machine, groups = MACHINES[row["machine"]], int(row["groups"])
        before, after = (
            results[Case(row["kind"], machine, groups, rule).shape()] for rule in RULES
        )
        rows.append(
            {
                "machine": machine.slug,
                "kind": row["kind"],
                "groups": groups,
                "mail_seconds": [float(row["before_s"]), float(row["after_s"])],
                "mail_percent": float(row["change_percent"]),
                "allocator_percent": change(
                    before["allocator_ns_per_message"],
                    after["allocator_ns_per_message"],
                    before["busy_ns_per_message"],
                ),
                "elapsed_percent": change(
                    before["elapsed_ns_per_message"],
                    after["elapsed_ns_per_message"],
                    before["elapsed_ns_per_message"],
                ),
                "objects": before,
                "slabs": after,
            }
        )
    return rows


def charged_rows(quick: bool, seed: int) -> list[dict[str, Any]]:
    """Memory of hackbench in a memory group: what is charged, and what the slabs have."""
    loops = QUICK_LOOPS if quick else LOOPS
    cases = [
        Case("process", machine, CHARGED_GROUPS, rule)
        for machine in list(MACHINES.values())[:: 3 if quick else 1]
        for rule in RULES
    ]
    done = run_all(
        "memory groups", cases, lambda case: run_case(case, loops, 0, seed, True), lambda _: 1
    )
    return [
        {
            "machine": case.machine.slug,
            "rule": case.rule,
            "groups": CHARGED_GROUPS,
            "slab_kib": result["slab_kib"],
            "charged_kib": result["charged_kib"],
        }
        for case, result in zip(cases, done, strict=True)
    ]


# ---- Netperf -----------------------------------------------------------------------------------


def netperf_rows(quick: bool, seed: int) -> list[dict[str, Any]]:
    printed = read_mail("cpu_partial_netperf")
    cases = [
        (row["machine"], row["test"], rule, number)
        for row in printed
        for rule in RULES
        for number in range(2 if quick else NETPERF_RUNS)
    ]
    transactions = QUICK_TRANSACTIONS if quick else TRANSACTIONS

    def one(case: tuple[str, str, str, int]) -> float:
        slug, test, rule, number = case
        machine = MACHINES[slug]
        settings = {**machine.settings(), **NETPERF[test], "loops": transactions, "capacity": 1}
        settings["seed"] = seed * 1000 + number
        options = (*KERNEL, f"cpu_partial_accounting={rule}")
        document = run(Load("exchange", settings, options, costs=machine.costs()))
        return float(document["measured_messages"] / document["measured_ns"] * 1e9)

    rates = dict(zip(cases, run_all("netperf", cases, one, lambda _: 1), strict=True))
    rows: list[dict[str, Any]] = []
    for row in printed:
        figures: dict[str, Any] = {"machine": row["machine"], "test": row["test"]}
        for rule, name in zip(RULES, ("before", "after"), strict=True):
            ours = [
                rates[case] for case in cases if case[:3] == (row["machine"], row["test"], rule)
            ]
            stddev = row[f"stddev_{name}"]
            figures[rule] = {
                "hmean": round(statistics.harmonic_mean(ours), 2),
                "stddev": round(statistics.stdev(ours), 2),
                "mail_hmean": float(row[f"hmean_{name}"]),
                "mail_stddev": float(stddev) if stddev else None,
            }
        before, after = figures["objects"]["hmean"], figures["slabs"]["hmean"]
        figures["percent"] = round(100 * (after - before) / before, 2)
        figures["mail_percent"] = float(row["change_percent"])
        rows.append(figures)
    return rows


# ---- What is shown -----------------------------------------------------------------------------


def correlations(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """With the mail's percentages, over all rows and those of each machine."""
    output: dict[str, dict[str, float | None]] = {}
    for figure in ("allocator_percent", "elapsed_percent"):
        found: dict[str, float | None] = {}
        for name in ("all", *MACHINES):
            chosen = [row for row in rows if name in ("all", row["machine"])]
            if len(chosen) < 2:
                continue
            value = spearman([r[figure] for r in chosen], [r["mail_percent"] for r in chosen])
            found[name] = None if value is None else round(value, 3)
        output[figure] = found
    return output


def hackbench_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    output = Table(
        title="hackbench over sockets; right of the changes: each of a message, objects and slabs",
        title_justify="left",
        box=SIMPLE,
    )
    output.add_column("machine, kind", no_wrap=True)
    for heading in (
        "groups",
        "mail, s",
        "change",
        "by allocator",
        "elapsed",
        "allocator, ns",
        "list locks",
        "waits, ns",
        "slabs, MiB",
    ):
        output.add_column(heading, justify="right")
    last = ("", "")
    for row in rows:
        name = (str(row["machine"]), str(row["kind"]))
        before, after = row["objects"], row["slabs"]
        each = [(rule["per_message"]["list_locks"]) for rule in (before, after)]
        waits = [(rule["per_message"]["list_wait_ns"]) for rule in (before, after)]
        output.add_row(
            f"{MACHINES[name[0]].name}, {name[1]}" if name != last else "",
            str(row["groups"]),
            f"{row['mail_seconds'][0]:.3f} {row['mail_seconds'][1]:.3f}",
            f"{row['mail_percent']:+.2f}%",
            f"{row['allocator_percent']:+.2f}%",
            f"{row['elapsed_percent']:+.2f}%",
            f"{before['allocator_ns_per_message']:.0f} {after['allocator_ns_per_message']:.0f}",
            f"{each[0]:.3f} {each[1]:.3f}",
            f"{waits[0]:.0f} {waits[1]:.0f}",
            f"{before['slab_kib'] / 1024:.1f} {after['slab_kib'] / 1024:.1f}",
        )
        last = name
    return output


def netperf_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    output = Table(title="netperf, transactions a second: hmean (stddev)", title_justify="left")
    output.box = SIMPLE
    output.add_column("machine", no_wrap=True)
    for heading in ("test", "mail before", "mail after", "change", "before", "after", "change"):
        output.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        mail, ours = [], []
        for rule in RULES:
            stddev = row[rule]["mail_stddev"]
            said = "-" if stddev is None else f"{stddev:,.0f}"
            mail.append(f"{row[rule]['mail_hmean']:,.0f} ({said})")
            ours.append(f"{row[rule]['hmean']:,.0f} ({row[rule]['stddev']:,.0f})")
        output.add_row(
            MACHINES[row["machine"]].name,
            row["test"],
            *mail,
            f"{row['mail_percent']:+.2f}%",
            *ours,
            f"{row['percent']:+.2f}%",
        )
    return output


def charged_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    title = f"hackbench in a memory group, {CHARGED_GROUPS} groups of processes: mean MiB"
    output = Table(title=title, title_justify="left", box=SIMPLE)
    for heading in ("machine", "accounting", "slabs", "charged"):
        output.add_column(heading, justify="left" if heading == "machine" else "right")
    for row in rows:
        output.add_row(
            MACHINES[row["machine"]].name,
            row["rule"],
            f"{row['slab_kib'] / 1024:.2f}",
            f"{row['charged_kib'] / 1024:.2f}",
        )
    return output


def draw(rows: Sequence[Mapping[str, Any]], panels: Sequence[Axes]) -> None:
    for slug, machine in MACHINES.items():
        chosen = [row for row in rows if row["machine"] == slug]
        panels[0].plot(
            [row["mail_percent"] for row in chosen],
            [row["allocator_percent"] for row in chosen],
            "o",
            label=machine.name,
            alpha=0.7,
        )
        of_processes = [row for row in chosen if row["kind"] == "process"]
        for axes, figure in ((panels[1], "mail_percent"), (panels[2], "allocator_percent")):
            axes.plot(
                [row["groups"] for row in of_processes],
                [row[figure] for row in of_processes],
                "o-",
                label=machine.name,
                markersize=3,
            )
    panels[0].set_xlabel("change in the mail, %")
    panels[0].set_ylabel("change by allocator, modelled, %")
    panels[0].legend(fontsize="x-small")
    for axes, whose in ((panels[1], "the mail"), (panels[2], "modelled")):
        axes.set_xscale("log")
        axes.set_xlabel(f"groups of processes; {whose}")
    for axes in panels:
        axes.axhline(0, color="black", linewidth=0.5)
        axes.grid(alpha=0.3)


GOAL = 0.7


def verdict(found: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    lines = []
    for figure, name in (("allocator_percent", "by allocator"), ("elapsed_percent", "elapsed")):
        of_machines = ", ".join(
            f"{MACHINES[slug].name} {value:.2f}"
            for slug, value in found[figure].items()
            if slug != "all" and value is not None
        )
        value = found[figure]["all"]
        lines.append(
            f"rank correlation with the mail's percentages, {name}:"
            f" {'-' if value is None else f'{value:.2f}'} (goal {GOAL}); {of_machines}"
        )
    return lines


def cpu_partial_report(*, quick: bool = False, seed: int = 1) -> Report:
    rows = hackbench_rows(quick, seed)
    netperf = netperf_rows(quick, seed)
    charged = charged_rows(quick, seed)
    found = correlations(rows)
    same_sign = sum(row["mail_percent"] * row["allocator_percent"] > 0 for row in rows)
    document: dict[str, Any] = {
        "quick": quick,
        "seed": seed,
        "rank_correlation": found,
        "same_sign": same_sign,
        "machines": {
            slug: {**machine.settings(), "costs_ns": machine.costs()}
            for slug, machine in MACHINES.items()
        },
        "hackbench": rows,
        "netperf": netperf,
        "memory_groups": charged,
    }
    return Report(
        "cpu-partial",
        MAIL,
        document,
        [
            hackbench_table(rows),
            netperf_table(netperf),
            charged_table(charged),
            *verdict(found),
            f"{same_sign} of {len(rows)} rows have the mail's sign (by allocator)",
        ],
        list(NOTES),
        [Plot("objects to slabs accounting", lambda panels: draw(rows, panels), 3)],
    )


def show_cpu_partial(
    *, quick: bool, seed: int, json_file: Path | None, html_file: Path | None
) -> None:
    show_experiment(lambda: cpu_partial_report(quick=quick, seed=seed), json_file, html_file)
