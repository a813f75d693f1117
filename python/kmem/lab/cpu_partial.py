# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab cpu-partial`: CPU partial lists limited by objects or by slabs, beside a mail.

Hackbench and netperf run on simulated machines shaped as the mail's five, before its patch and
after it. The only input from the mail's tables is the list of rows. Times are a model: counts of
the runs multiplied by costs, waiting for list locks, and assumed costs of the kernel's other work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kmem.common.figures import rank_correlation
from kmem.lab.ceilings import ceilings
from kmem.lab.cpu_partial_runs import MACHINES, charged_rows, hackbench_rows, netperf_rows
from kmem.lab.cpu_partial_show import charged_table, draw, hackbench_table, netperf_table
from kmem.lab.report import Plot, Report, show_experiment

MAIL = "mm, slub: change percpu partial accounting from objects to pages"

NOTES = (
    "Groups that pass messages over sockets, as tools/loads/messages.c says. A line: seconds of the"
    " mail and its change in percent (negative: worse with slabs); then ours, modelled.",
    "by allocator: what the allocator takes longer (counts by costs, and waiting for list locks),"
    " of all CPUs' busy time before. elapsed: from the modelled clock; a few percent of it are"
    " chance, as another order of wake-ups gives another schedule.",
    "Scaled down: 80 loops and 800,000 messages at least (quick: 6 and 60,000), where the mail's"
    " hackbench passes 10,000 loops; the first 40% and the last 20% are not measured. Sockets begin"
    " half full, because otherwise all CPUs want slabs at once and the locks come to rest late.",
    "The model knows CPUs, nodes, caches and what a line takes to come over, which is assumed. Xeon"
    " 5218R and E5-2698 v4 are one machine to it. It knows no memory bandwidth, no interrupts, no"
    " page allocator's lock that is waited for, and one scheduler (that of 5.14).",
)


def correlations(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Rank correlations with the mail's percentages.

    Of all rows, of each machine's, and of the rows that were looked at and held back while the
    model's physics was chosen.
    """
    output: dict[str, dict[str, float | None]] = {}
    for figure in ("allocator_percent", "elapsed_percent"):
        found: dict[str, float | None] = {}
        for name in ("all", "looked_at", "held_back", *MACHINES):
            chosen = [
                row
                for row in rows
                if name in ("all", row["machine"], "held_back" if row["held_back"] else "looked_at")
            ]
            if len(chosen) < 2:
                continue
            value = rank_correlation(
                [r[figure] for r in chosen], [r["mail_percent"] for r in chosen]
            )
            found[name] = None if value is None else round(value, 3)
        output[figure] = found
    return output


GOAL = 0.5


def verdict(found: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    lines = []
    for figure, name in (("allocator_percent", "by allocator"), ("elapsed_percent", "elapsed")):
        of_machines = ", ".join(
            f"{MACHINES[slug].name} {value:.2f}"
            for slug, value in found[figure].items()
            if slug in MACHINES and value is not None
        )
        value = found[figure]["all"]
        lines.append(
            f"rank correlation with the mail's percentages, {name}:"
            f" {'-' if value is None else f'{value:.2f}'} (goal {GOAL}); {of_machines}"
        )
    by_allocator = found["allocator_percent"]
    looked_at, held_back = (by_allocator.get(name) for name in ("looked_at", "held_back"))
    if looked_at is not None and held_back is not None:
        lines.append(
            f"by allocator: {looked_at:.2f} over rows that were looked at while the physics was"
            f" chosen, {held_back:.2f} over rows that were held back"
        )
    return lines


def bounds(found: Mapping[str, Any]) -> list[str]:
    """Lines about the ceilings, from the mail's own rows."""
    lines = []
    if found["resampled"]:
        mean, low, high = found["resampled"]
        lines.append(
            "ceilings, rank correlations of the mail's own rows: processes with threads"
            f" {found['kinds']:.2f}, the two machines alike {found['like_machines'] or 0:.2f}, the"
            f" table with the noise of the former {mean:.2f} ({low:.2f} to {high:.2f}); the number"
            f" of CPUs alone has {found['cpus_alone']:.2f}"
        )
    if found["other_signs"]:
        names = ", ".join(f"{slug} {groups}" for slug, groups in found["other_signs"])
        lines.append(f"processes and threads differ in sign, so no model has both: {names}")
    return lines


def cpu_partial_report(*, quick: bool = False, seed: int = 1) -> Report:
    rows = hackbench_rows(quick, seed)
    netperf = netperf_rows(quick, seed)
    charged = charged_rows(quick, seed)
    found = correlations(rows)
    above = ceilings(rows, {slug: machine.cpus for slug, machine in MACHINES.items()})
    same_sign = sum(row["mail_percent"] * row["allocator_percent"] > 0 for row in rows)
    document: dict[str, Any] = {
        "quick": quick,
        "seed": seed,
        "rank_correlation": found,
        "same_sign": same_sign,
        "ceilings": above,
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
            *bounds(above),
            f"{same_sign} of {len(rows)} rows have the mail's sign (by allocator)",
        ],
        list(NOTES),
        [Plot("objects to slabs accounting", lambda panels: draw(rows, panels), 3)],
    )


def show_cpu_partial(
    *, quick: bool, seed: int, json_file: Path | None, html_file: Path | None
) -> None:
    show_experiment(lambda: cpu_partial_report(quick=quick, seed=seed), json_file, html_file)
