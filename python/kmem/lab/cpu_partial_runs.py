# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The runs of `kmem lab cpu-partial`: hackbench and netperf on machines shaped as the mail's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmem.lab.loads import Load, allocator_ns, run, run_all
from kmem.lab.mails import read_mail
from kmem.replay.costs import read_costs

# Linux 5.14: before the patch, and with it.
KERNEL = ("freeze=eager", "order_rule=5.10", "order_cpus=present", "cpu_partial_defaults=seed")
RULES = ("objects", "slabs")

# Lines that a receiver reads of a head (list pointers and control block, length and destructor,
# data pointers and reference count), and of its data (100 bytes, and the count behind them).
RECEIVED_LINES = 3
# Lines that a queued lock moves from a CPU to the next that waits, besides the lock's own: `kmem
# lab calibrate` measures 5.1 on two CPUs of a Xeon (356 ns; a line takes 57, a free lock 9).
WAITED_LINES = 4


@dataclass(frozen=True)
class Machine:
    """A machine of the mail; the cost of fetching a cache line from another CPU is assumed."""

    slug: str
    name: str
    cpus: int
    nodes: int
    cache_cpus: int  # CPUs that share a last-level cache
    line_ns: float  # a line out of another core's cache, in the socket
    other_socket_ns: float  # additional, from the other socket

    def settings(self) -> dict[str, int]:
        return {
            "boot_cpus": self.cpus,
            "possible": self.cpus,
            "nodes": self.nodes,
            "cache_cpus": self.cache_cpus,
        }

    def costs(self) -> dict[str, float]:
        """The assumed costs, with this machine's cost of cache lines."""
        costs = read_costs()
        for name in ("remote_words", "list_moves", "list_handed_over"):
            costs[name] = self.line_ns
        costs["list_waits"] = WAITED_LINES * self.line_ns
        costs["list_waits_node"] = WAITED_LINES * self.other_socket_ns
        costs["page_handed_over"] = self.line_ns
        costs["remote_words_node"] = costs["list_handed_over_node"] = self.other_socket_ns
        costs["remote_objects"] = 2 * self.line_ns
        costs["remote_objects_node"] = 2 * self.other_socket_ns
        costs["received_objects"] = RECEIVED_LINES * self.line_ns
        costs["received_objects_node"] = RECEIVED_LINES * self.other_socket_ns
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

# Rows that are not looked at while the model's physics and its costs are chosen: a whole machine,
# and every second row of the others, in the order of the mail.
HELD_BACK_MACHINE = "e5-2670v3"


def is_held_back(row: Mapping[str, str], index: int) -> bool:
    """Of a row of the mail's table, and its number there, from 0 on."""
    return row["machine"] == HELD_BACK_MACHINE or index % 2 == 1


# The kernel's other work for a message, from the gaps between the messages of recorded runs.
KINDS: dict[str, dict[str, int | str]] = {
    "process": {"send_ns": 600, "receive_ns": 850, "switch_ns": 2000},
    "thread": {"send_ns": 700, "receive_ns": 1000, "switch_ns": 1400},
}
PAIRS = 20
MESSAGES_OF_LOOP = PAIRS * PAIRS  # messages of a group in a loop
LOOPS, MESSAGES = 80, 800_000  # at least, and at least in a run; the mail's have 10,000 loops
QUICK_LOOPS, QUICK_MESSAGES = 6, 60_000
QUICK_ROWS = 6  # every sixth row of the mail
SKIP = 40  # percent of the messages, after which a run has come to rest
FILLED = 50  # percent of its capacity that a socket begins with
CHARGED_GROUPS = 12

# Netperf: a single pair; the receiver frees a message, as before Linux 5.19.
NETPERF: dict[str, dict[str, int | str]] = {
    "TCP-RR": {"message": "tcp", "send_ns": 1800, "receive_ns": 1200},
    "UDP-RR": {"message": "udp", "send_ns": 1300, "receive_ns": 900},
}
TRANSACTIONS, QUICK_TRANSACTIONS, NETPERF_RUNS = 20_000, 2_000, 8


@dataclass(frozen=True)
class Case:
    """A run. Rows of machines that do not differ in the model share it."""

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
        "filled": FILLED,
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
    numbered = list(enumerate(read_mail("cpu_partial_hackbench")))
    return rows_of(numbered[:: QUICK_ROWS if quick else 1], quick, seed)


def rows_of(
    numbered: Sequence[tuple[int, Mapping[str, str]]], quick: bool, seed: int
) -> list[dict[str, Any]]:
    """Of the mail's rows with these numbers."""
    printed = [row for _, row in numbered]
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
    for index, row in numbered:
        machine, groups = MACHINES[row["machine"]], int(row["groups"])
        before, after = (
            results[Case(row["kind"], machine, groups, rule).shape()] for rule in RULES
        )
        rows.append(
            {
                "machine": machine.slug,
                "kind": row["kind"],
                "groups": groups,
                "held_back": is_held_back(row, index),
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
    """Memory of hackbench in a memory group: the charged bytes, and the bytes of the slabs."""
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
