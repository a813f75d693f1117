# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab cpu-partial`: CPU partial lists limited by objects or by slabs, beside a mail.

Hackbench and netperf run on simulated machines shaped as the mail's five, before its patch and
after it. The only input from the mail's tables is the list of rows. Times are a model: counts of
the runs multiplied by costs, waiting for list locks, and assumed costs of the kernel's other work.
"""

from __future__ import annotations

import statistics
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
    " hackbench passes 10,000 loops; the first 40% are not measured, and runs end at 80%. Sockets"
    " begin half full, because otherwise all CPUs want slabs at once and the locks come to rest"
    " late.",
    "A seed is another order of the same work. Rows are means over the seeds; each rank correlation"
    " is of a seed's rows, and the mean of these is compared with the goal.",
    "The model knows CPUs, nodes, caches and what a line takes to come over, which is assumed. Xeon"
    " 5218R and E5-2698 v4 are one machine to it. It knows no memory bandwidth, no interrupts, no"
    " page allocator's lock that is waited for, and one scheduler (that of 5.14).",
)


Found = dict[str, dict[str, float | None]]
FIGURES = {"allocator_percent": "by allocator", "elapsed_percent": "elapsed"}


def correlations(rows: Sequence[Mapping[str, Any]]) -> Found:
    """Rank correlations with the mail's percentages.

    Of all rows, of each machine's, and of the rows that were looked at and held back while the
    model's physics was chosen.
    """
    output: Found = {}
    for figure in FIGURES:
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


def same_signs(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(row["mail_percent"] * row["allocator_percent"] > 0 for row in rows)


def mean_of(values: Sequence[Any]) -> Any:
    """The mean of equal structures: of numbers; texts and truths are equal in all of them."""
    first = values[0]
    if isinstance(first, dict):
        return {key: mean_of([value[key] for value in values]) for key in first}
    if isinstance(first, list):
        return [mean_of(items) for items in zip(*values, strict=True)]
    if isinstance(first, str | bool) or all(value == first for value in values):
        return first
    return round(statistics.fmean(values), 5)


def mean_rows(by_seed: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows with the means over the seeds, and the percentages of each seed."""
    return [
        {
            **mean_of(rows),
            **{f"{figure}_by_seed": [row[figure] for row in rows] for figure in FIGURES},
        }
        for rows in zip(*by_seed, strict=True)
    ]


def over_seeds(found: Sequence[Found]) -> dict[str, dict[str, list[float]]]:
    """The correlations of each seed, where every seed has one."""
    output: dict[str, dict[str, list[float]]] = {}
    for figure in FIGURES:
        output[figure] = {}
        for name in found[0][figure]:
            values = [value for one in found if (value := one[figure][name]) is not None]
            if len(values) == len(found):
                output[figure][name] = values
    return output


def means(by_seed: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, float]]:
    return {
        figure: {name: round(statistics.fmean(values), 3) for name, values in found.items()}
        for figure, found in by_seed.items()
    }


GOAL = 0.5
SIGNS_GOAL = 110  # of the mail's 132 rows
HELD_BACK_GOAL = 0.1  # that the rows held back may be below the others


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Mean, least and most."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:{form}}"
    return f"{mean:{form}} ({min(values):{form}} to {max(values):{form}})"


def verdict(by_seed: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    lines = []
    for figure, name in FIGURES.items():
        found = by_seed[figure]
        if "all" not in found:
            continue
        of_machines = ", ".join(
            f"{MACHINES[slug].name} {spread(values)}"
            for slug, values in found.items()
            if slug in MACHINES
        )
        lines.append(
            f"rank correlation with the mail's percentages, {name}: {spread(found['all'])}"
            f" (goal {GOAL}); {of_machines}"
        )
    found = by_seed["allocator_percent"]
    if "looked_at" in found and "held_back" in found:
        lines.append(
            f"by allocator: {spread(found['looked_at'])} over rows that were looked at while the"
            f" physics was chosen, {spread(found['held_back'])} over rows that were held back"
            f" (goal: at most {HELD_BACK_GOAL} less)"
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


SEEDS, QUICK_SEEDS = 3, 1


def cpu_partial_report(*, quick: bool = False, seed: int = 1, seeds: int | None = None) -> Report:
    """@seeds: how many, from @seed on."""
    count = seeds or (QUICK_SEEDS if quick else SEEDS)
    numbers = range(seed, seed + count)
    of_seeds = hackbench_rows(quick, numbers)
    rows = mean_rows(of_seeds)
    netperf = netperf_rows(quick, seed)
    charged = charged_rows(quick, seed)
    by_seed = over_seeds([correlations(one) for one in of_seeds])
    signs = [same_signs(one) for one in of_seeds]
    above = ceilings(rows, {slug: machine.cpus for slug, machine in MACHINES.items()})
    document: dict[str, Any] = {
        "quick": quick,
        "seeds": list(numbers),
        "rank_correlation": means(by_seed),
        "rank_correlation_by_seed": by_seed,
        "rank_correlation_of_means": correlations(rows),
        "same_sign": round(statistics.fmean(signs), 2),
        "same_sign_by_seed": signs,
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
            f"seeds: {', '.join(map(str, numbers))}; figures of a seed: mean (least to most)",
            *verdict(by_seed),
            *bounds(above),
            f"{spread(signs, '.0f')} of {len(rows)} rows have the mail's sign, by allocator (goal"
            f" {SIGNS_GOAL} of 132)",
        ],
        list(NOTES),
        [Plot("objects to slabs accounting", lambda panels: draw(rows, panels), 3)],
    )


def show_cpu_partial(
    *, quick: bool, seed: int, seeds: int | None, json_file: Path | None, html_file: Path | None
) -> None:
    show_experiment(
        lambda: cpu_partial_report(quick=quick, seed=seed, seeds=seeds), json_file, html_file
    )
