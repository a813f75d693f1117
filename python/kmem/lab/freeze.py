# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab freeze`: eager against delayed freezing of CPU partial slabs, beside a mail.

Messaging and raw packets on a simulated machine as the mail's, 128 CPUs on 2 nodes: swaps, list
locks with the time they are held and waited for, and modelled time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table
from scipy.stats import t as student_t

from kmem.lab.loads import Load, allocator_ns, run, run_all
from kmem.lab.mails import read_mail
from kmem.lab.report import Plot, Report, show_experiment
from kmem.replay.costs import read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAIL = "slub: Delay freezing of CPU partial slabs"

# Linux 6.6, before the patches and with them.
KERNEL = ("cpu_partial_accounting=slabs", "cpu_partial_defaults=later", "order_cpus=present")
POLICIES = ("eager", "delayed")
CPUS = {"boot_cpus": 128, "possible": 128, "nodes": 2}
SCHEDULER = {"latency_ns": 3_000_000, "slice_ns": 3_000_000, "granule_ns": 3_000_000}
GOAL = 1 / 3  # difference to the mail's change that counts as agreement


@dataclass(frozen=True)
class Program:
    command: str  # as in the mail
    load: str
    settings: Mapping[str, int | str]
    loops: int  # scaled down
    mail_loops: str


PROGRAMS = (
    Program(
        "perf bench sched messaging -g 5 -t -l 100000",
        "messages",
        {"groups": 5, "pairs": 20, "send_ns": 700, "receive_ns": 1000, "switch_ns": 1400},
        1000,
        "100,000 loops",
    ),
    Program(
        "stress-ng --rawpkt 128 --rawpkt-ops 100000000",
        "packets",
        {
            "message": "packet",
            "groups": 128,
            "send_ns": 1500,
            "receive_ns": 300,
            "wake_ns": 100,
            "switch_ns": 500,
        },
        7_500,
        "100,000,000 packets",
    ),
)
SEEDS, QUICK_SEEDS = 10, 3
QUICK_PART = 5  # of the loops; with less packets fit CPU slabs, and every figure is 0
CONFIDENCE = 0.95  # of the interval of the mean over seeds
SKIP = 25  # percent, after which a run has come to rest

COUNTS = {
    "compare_swaps": "compare-and-swaps",
    "remote_words": "states in another CPU's cache",
    "list_locks": "list locks",
    "list_handed_over": "list locks handed over",
    "list_waits": "list locks waited for",
    "list_hold_ns": "list locks held, ns",
    "list_wait_ns": "list locks waited for, ns",
}

NOTES = (
    "Each of a message or packet, mean over the seeds. time: modelled; of all CPUs what a message"
    " or packet takes. allocator: counts by costs, and waiting for list locks.",
    "The change by allocator is that of the allocator's time in all CPUs' busy time; elapsed is the"
    " modelled clock's, of which some percent are chance.",
    "A packet socket hears all packets of its interface, so every packet is cloned twice for each"
    " reader whose socket has room (tools/loads/packets.c). The size of its change cannot be known:"
    " in stress-ng the reader counts, so the mail's 100,000,000 are packets that readers got from"
    " their own writers. How many were sent, cloned and dropped meanwhile the mail does not say,"
    " and these are what the allocator works for.",
    "What is assumed: the costs, and what the kernel does besides.",
)


def one_run(program: Program, policy: str, seed: int, loops: int) -> dict[str, Any]:
    settings = {**CPUS, **SCHEDULER, **program.settings, "loops": loops, "seed": seed, "skip": SKIP}
    document = run(Load(program.load, settings, (*KERNEL, f"freeze={policy}")))
    sent, counts = document["measured_messages"], document["counts"]
    return {
        "elapsed_ns": document["measured_ns"] * CPUS["boot_cpus"] / sent,
        "busy_ns": document["busy_ns"] / sent,
        "allocator_ns": allocator_ns(document, read_costs()) / sent,
        **{name: counts[name] / sent for name in COUNTS},
    }


def mean(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.fmean(one[name] for one in runs), 4) for name in runs[0]}


def mail_seconds(command: str) -> tuple[float, float]:
    rows = [row for row in read_mail("freeze") if row["command"] == command]
    before, after = (
        statistics.median(float(row[name]) for row in rows) for name in ("baseline_s", "delayed_s")
    )
    return before, after


def judge(ours: float, mail: float) -> str:
    """Both in percent, negative for less time."""
    if ours * mail <= 0:
        return "the sign differs"
    if abs(ours - mail) <= GOAL * abs(mail):
        return "sign right, size within a third"
    return f"sign right, size {ours / mail:.2f} of the mail's"


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The t-interval of the mean; of a single value it is a point."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return mean, mean
    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = float(student_t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return mean - reach, mean + reach


def change(eager: Mapping[str, float], delayed: Mapping[str, float], name: str) -> float:
    """In percent of all time that a message takes; negative: delayed freezing takes less."""
    whole = {"allocator_ns": "busy_ns"}.get(name, name)
    return 100 * (delayed[name] - eager[name]) / eager[whole]


def changes_over(
    figure: str, name: str, eager: Sequence[dict[str, float]], delayed: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """The change of a figure: the mean over the seeds, its interval, and each seed's."""
    values = [change(*pair, name) for pair in zip(eager, delayed, strict=True)]
    return {
        f"{figure}_percent": round(statistics.fmean(values), 2),
        f"{figure}_interval": [round(bound, 2) for bound in mean_interval(values)],
        f"{figure}_by_seed": [round(value, 2) for value in values],
    }


def freeze_row(
    program: Program, eager: Sequence[dict[str, float]], delayed: Sequence[dict[str, float]]
) -> dict[str, Any]:
    before, after = mail_seconds(program.command)
    mail_percent = round(100 * (after - before) / before, 2)
    by_allocator = changes_over("allocator", "allocator_ns", eager, delayed)
    return {
        "command": program.command,
        "mail_seconds": [before, after],
        "mail_percent": mail_percent,
        **by_allocator,
        **changes_over("elapsed", "elapsed_ns", eager, delayed),
        "same_sign": sum(value * mail_percent > 0 for value in by_allocator["allocator_by_seed"]),
        "verdict": judge(by_allocator["allocator_percent"], mail_percent),
        "eager": mean(eager),
        "delayed": mean(delayed),
    }


def freeze_rows(quick: bool, seeds: Sequence[int]) -> list[dict[str, Any]]:
    cases = [(program, policy, one) for program in PROGRAMS for policy in POLICIES for one in seeds]
    done = run_all(
        "freeze",
        cases,
        lambda case: one_run(*case, max(1, case[0].loops // (QUICK_PART if quick else 1))),
        lambda _: 1,
    )
    results = {
        (program.load, policy, one): result
        for (program, policy, one), result in zip(cases, done, strict=True)
    }
    return [
        freeze_row(
            program,
            *([results[program.load, policy, one] for one in seeds] for policy in POLICIES),
        )
        for program in PROGRAMS
    ]


def as_table(row: Mapping[str, Any]) -> Table:
    output = Table(title=str(row["command"]), title_justify="left", box=SIMPLE)
    output.add_column("", no_wrap=True)
    for heading in (*POLICIES, "change"):
        output.add_column(heading, justify="right", no_wrap=True)
    before, after = row["mail_seconds"]
    output.add_row(
        "the mail: seconds", f"{before:.3f}", f"{after:.3f}", f"{row['mail_percent']:+.1f}%"
    )
    names = {
        "elapsed_ns": "time, ns",
        "busy_ns": "of that busy, ns",
        "allocator_ns": "allocator, ns",
        **COUNTS,
    }
    for name, what in names.items():
        eager, delayed = row["eager"][name], row["delayed"][name]
        change = f"{100 * (delayed - eager) / eager:+.1f}%" if eager else "-"
        output.add_row(what, f"{eager:,.3f}", f"{delayed:,.3f}", change)
    return output


def draw(rows: Sequence[Mapping[str, Any]], panels: Sequence[Axes]) -> None:
    bars = {
        "mail": [row["mail_percent"] for row in rows],
        "by allocator": [row["allocator_percent"] for row in rows],
        "elapsed": [row["elapsed_percent"] for row in rows],
    }
    for number, (name, values) in enumerate(bars.items()):
        panels[0].bar([x + 0.25 * number for x in range(len(rows))], values, 0.25, label=name)
    panels[0].set_xticks([x + 0.25 for x in range(len(rows))], ["messaging", "raw packets"])
    panels[0].set_ylabel("change of time, %")
    panels[0].axhline(0, color="black", linewidth=0.5)
    panels[0].legend(fontsize="small")
    for number, policy in enumerate(POLICIES):
        panels[1].bar(
            [x + 0.4 * number for x in range(len(rows))],
            [row[policy]["compare_swaps"] for row in rows],
            0.4,
            label=policy,
        )
    panels[1].set_xticks([x + 0.2 for x in range(len(rows))], ["messaging", "raw packets"])
    panels[1].set_ylabel("compare-and-swaps a message or packet")
    panels[1].legend(fontsize="small")


def said_of(row: Mapping[str, Any]) -> str:
    """The line below a table."""
    figures = []
    for figure, name in (("allocator", "by allocator"), ("elapsed", "elapsed")):
        low, high = row[f"{figure}_interval"]
        each = row[f"{figure}_by_seed"]
        figures.append(
            f"{name} {row[f'{figure}_percent']:+.2f}% ({CONFIDENCE:.0%} interval {low:+.2f} to"
            f" {high:+.2f}, seeds {min(each):+.2f} to {max(each):+.2f})"
        )
    return (
        f"change {', '.join(figures)}, mail {row['mail_percent']:+.2f}%: {row['verdict']};"
        f" {row['same_sign']} of {len(row['allocator_by_seed'])} seeds have the mail's sign"
    )


def freeze_report(*, quick: bool = False, seed: int = 1, seeds: int | None = None) -> Report:
    """@seeds: how many, from @seed on."""
    numbers = range(seed, seed + (seeds or (QUICK_SEEDS if quick else SEEDS)))
    rows = freeze_rows(quick, numbers)
    parts: list[Any] = []
    for row in rows:
        parts += [as_table(row), said_of(row)]
    scale = "; ".join(f"{p.loops:,} loops or packets each for {p.mail_loops}" for p in PROGRAMS)
    return Report(
        "freeze",
        MAIL,
        {
            "quick": quick,
            "seeds": list(numbers),
            "costs_ns": read_costs(),
            "machine": CPUS,
            "rows": rows,
        },
        parts,
        [*NOTES, f"Scaled down: {scale}; with --quick a fifth of these, and three seeds."],
        [Plot("eager to delayed freezing", lambda panels: draw(rows, panels), 2)],
    )


def show_freeze(
    *, quick: bool, seed: int, seeds: int | None, json_file: Path | None, html_file: Path | None
) -> None:
    show_experiment(
        lambda: freeze_report(quick=quick, seed=seed, seeds=seeds), json_file, html_file
    )
