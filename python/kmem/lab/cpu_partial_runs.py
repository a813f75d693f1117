# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The runs of `kmem lab cpu-partial`: hackbench and netperf on machines shaped as the mail's."""

from __future__ import annotations

import math
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
WITHIN_PERCENT = 2  # the mail, of machines without rows: "other machines - within 2%"


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
        "window": 1,
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


def hackbench_rows(quick: bool, seeds: Sequence[int]) -> list[list[dict[str, Any]]]:
    """The mail's rows, for each seed."""
    numbered = list(enumerate(read_mail("cpu_partial_hackbench")))
    return rows_of(numbered[:: QUICK_ROWS if quick else 1], quick, seeds)


def rows_of(
    numbered: Sequence[tuple[int, Mapping[str, str]]], quick: bool, seeds: Sequence[int]
) -> list[list[dict[str, Any]]]:
    """Of the mail's rows with these numbers, for each seed."""
    printed = [row for _, row in numbered]
    loops, messages = (QUICK_LOOPS, QUICK_MESSAGES) if quick else (LOOPS, MESSAGES)
    cases: dict[tuple[object, ...], Case] = {}
    for row in printed:
        for rule in RULES:
            case = Case(row["kind"], MACHINES[row["machine"]], int(row["groups"]), rule)
            cases[case.shape()] = case
    wanted = [(case, seed) for case in cases.values() for seed in seeds]
    done = run_all(
        "hackbench",
        wanted,
        lambda one: run_case(one[0], loops, messages, one[1], charged=False),
        lambda one: max(loops * MESSAGES_OF_LOOP * one[0].groups, messages),
    )
    results = {(case.shape(), seed): run for (case, seed), run in zip(wanted, done, strict=True)}
    return [
        [
            compared(index, row, [results[shape, seed] for shape in shapes_of(row)])
            for index, row in numbered
        ]
        for seed in seeds
    ]


def shapes_of(row: Mapping[str, str]) -> list[tuple[object, ...]]:
    """The runs of a row of the mail, before the patch and with it."""
    machine = MACHINES[row["machine"]]
    return [Case(row["kind"], machine, int(row["groups"]), rule).shape() for rule in RULES]


def compared(
    index: int, row: Mapping[str, str], results: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A row of the mail beside its two runs."""
    before, after = results
    return {
        "machine": row["machine"],
        "kind": row["kind"],
        "groups": int(row["groups"]),
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


def mail_netperf(slug: str, test: str) -> dict[str, Any]:
    """The mail's figures of a machine and a test; without a row their change is within 2%."""
    for row in read_mail("cpu_partial_netperf"):
        if (row["machine"], row["test"]) == (slug, test):
            found: dict[str, Any] = {"percent": float(row["change_percent"])}
            for rule, name in zip(RULES, ("before", "after"), strict=True):
                stddev = row[f"stddev_{name}"]
                found[rule] = (float(row[f"hmean_{name}"]), float(stddev) if stddev else None)
            return found
    return {"percent": None, **dict.fromkeys(RULES, (None, None))}


def in_deviations(row: Mapping[str, Any]) -> float | None:
    """The mail's change of a row, in standard deviations of the difference of two runs."""
    before, after = (row[rule] for rule in RULES)
    if before["mail_stddev"] is None or after["mail_stddev"] is None:
        return None
    deviation = math.hypot(before["mail_stddev"], after["mail_stddev"])
    return round(float(abs(after["mail_hmean"] - before["mail_hmean"])) / deviation, 2)


def netperf_rows(quick: bool, seed: int) -> list[dict[str, Any]]:
    """Every machine and test; the mail has rows of three machines."""
    cases = [
        (slug, test, rule, number)
        for slug in MACHINES
        for test in NETPERF
        for rule in RULES
        for number in range(2 if quick else NETPERF_RUNS)
    ]
    transactions = QUICK_TRANSACTIONS if quick else TRANSACTIONS

    def one(case: tuple[str, str, str, int]) -> dict[str, float]:
        slug, test, rule, number = case
        machine = MACHINES[slug]
        settings = {**machine.settings(), **NETPERF[test], "loops": transactions, "capacity": 1}
        settings["seed"] = seed * 1000 + number
        options = (*KERNEL, f"cpu_partial_accounting={rule}")
        document = run(Load("exchange", settings, options, costs=machine.costs()))
        return {
            "rate": float(document["measured_messages"] / document["measured_ns"] * 1e9),
            "list_locks": float(document["counts"]["list_locks"]),
        }

    done = dict(zip(cases, run_all("netperf", cases, one, lambda _: 1), strict=True))
    rows: list[dict[str, Any]] = []
    for slug in MACHINES:
        for test in NETPERF:
            mail = mail_netperf(slug, test)
            row: dict[str, Any] = {"machine": slug, "test": test}
            for rule in RULES:
                ours = [done[case] for case in cases if case[:3] == (slug, test, rule)]
                rates = [run["rate"] for run in ours]
                row[rule] = {
                    "hmean": round(statistics.harmonic_mean(rates), 2),
                    "stddev": round(statistics.stdev(rates), 2),
                    "list_locks": sum(run["list_locks"] for run in ours),
                    "mail_hmean": mail[rule][0],
                    "mail_stddev": mail[rule][1],
                }
            before, after = row["objects"]["hmean"], row["slabs"]["hmean"]
            row["percent"] = round(100 * (after - before) / before, 2)
            row["mail_percent"] = mail["percent"]
            row["mail_within_percent"] = WITHIN_PERCENT if mail["percent"] is None else None
            row["mail_deviations"] = in_deviations(row)
            rows.append(row)
    return rows
