# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab order`: slab orders from cache sizes and CPU counts.

build/tools/order computes the orders with the library's own code, so the rule is not written a
second time here.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import write_json
from kmem.common.tree import BUILD, build
from kmem.lab import hackbench
from kmem.lab.mails import read_mail
from kmem.lab.report import Plot, Report

TOOL = BUILD / "tools" / "order"

MAIL = "[RFC PATCH v0] mm/slub: Let number of online CPUs determine the slub page order"

# CPU numbers of the mail's guest, which the mail does not name. The table fits 32 to 127 possible
# CPUs. With the patch it fits exactly 1 CPU online for five of the boot caches, and 4 to 31 for
# net_namespace; another measurement of the mail has 16 CPUs online at boot (S3-31, S3-32).
NR_CPU_IDS = 64
ONLINE_CPUS = {"boot": 1, "later": 16}
PAGE_BYTES = 65536
RULE = "5.10"  # the kernel the mail was written for


@dataclass(frozen=True)
class Case:
    """The inputs of an order; the tool checks the values."""

    size: int  # of an object with padding
    cpus: int
    page_size: int
    rule: str
    slub_min_order: int = 0
    slub_max_order: int = 3
    slub_min_objects: int = 0  # computed from cpus

    def line(self) -> str:
        words = (self.rule, self.size, self.cpus, self.page_size)
        bounds = (self.slub_min_order, self.slub_max_order, self.slub_min_objects)
        return " ".join(map(str, words + bounds)) + "\n"


@dataclass(frozen=True)
class Slab:
    """A slab of the chosen order."""

    objects: int
    pages: int
    order: int


@dataclass(frozen=True)
class Row:
    """A cache of the mail's table: the printed figures and the computed figures."""

    cache: str
    size: int
    cpus: tuple[int, int]  # that the unpatched and the patched kernel count
    mail: tuple[tuple[int, int], tuple[int, int]]  # objects and pages, without and with the patch
    computed: tuple[tuple[int, int], tuple[int, int]]

    @property
    def exact(self) -> bool:
        return self.mail == self.computed


def compute(cases: Sequence[Case]) -> list[Slab]:
    done = subprocess.run(
        [TOOL],
        input="".join(case.line() for case in cases),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        kind = BadUsage if done.returncode == BadUsage.status else KmemError
        raise kind(f"lab order: {done.stderr.strip() or f'status {done.returncode}'}")
    return [Slab(*map(int, line.split())) for line in done.stdout.splitlines()]


def compute_rows(rule: str) -> list[Row]:
    caches = {row["cache"]: row for row in read_mail("online_cpus_caches")}
    rows = []
    for printed in read_mail("online_cpus_orders"):
        cache = caches[printed["cache"]]
        size = int(cache["size"])
        cpus = (NR_CPU_IDS, ONLINE_CPUS[cache["made"]])
        current, patched = compute([Case(size, count, PAGE_BYTES, rule) for count in cpus])
        rows.append(
            Row(
                printed["cache"],
                size,
                cpus,
                (
                    (int(printed["current_objperslab"]), int(printed["current_pagesperslab"])),
                    (int(printed["patched_objperslab"]), int(printed["patched_pagesperslab"])),
                ),
                ((current.objects, current.pages), (patched.objects, patched.pages)),
            )
        )
    return rows


def as_document(rows: Sequence[Row]) -> dict[str, object]:
    """The result file: [objects, pages] as computed, and the counts that give them."""
    return {
        "rows": [
            {
                "cache": row.cache,
                "current": list(row.computed[0]),
                "patched": list(row.computed[1]),
                "size": row.size,
                "current_cpus": row.cpus[0],
                "patched_cpus": row.cpus[1],
            }
            for row in rows
        ]
    }


def as_table(rows: Sequence[Row]) -> Table:
    output = Table(title="objects and pages a slab, as computed (and in the mail)")
    output.add_column("cache", no_wrap=True)
    for heading in ("size", "CPUs", "current", "CPUs", "patched"):
        output.add_column(heading, justify="right", no_wrap=True)
    output.add_column("")
    for row in rows:
        cells = [str(row.size)]
        for cpus, (objects, pages), mail in zip(row.cpus, row.computed, row.mail, strict=True):
            cells += [str(cpus), f"{objects} {pages} ({mail[0]} {mail[1]})"]
        output.add_row(row.cache, *cells, "exact" if row.exact else "differs")
    return output


def show_case(case: Case, json_file: Path | None) -> None:
    build()
    (slab,) = compute([case])
    try:
        write_json(json_file, asdict(case) | asdict(slab))
    finally:  # a full disk must not take the figures
        print(slab.objects, slab.pages, slab.order)


def order_report(
    rule: str = RULE,
    *,
    table_only: bool = False,
    groups: int = hackbench.GROUPS,
    loops: int = hackbench.LOOPS,
) -> Report:
    rows = compute_rows(rule)
    results = None if table_only else hackbench.run_all(rule, groups, loops)
    at_boot = sum(row.cpus[1] == ONLINE_CPUS["boot"] for row in rows)
    report = Report(
        "order",
        MAIL,
        as_document(rows) | (hackbench.as_document(results) if results else {}),
        [
            as_table(rows),
            f"{sum(row.exact for row in rows)} of {len(rows)} rows exact",
            f"current: nr_cpu_ids {NR_CPU_IDS}; patched: {ONLINE_CPUS['boot']} CPU online for the"
            f" {at_boot} caches made at boot, {ONLINE_CPUS['later']} for the"
            f" {len(rows) - at_boot} made later; {PAGE_BYTES // 1024} KiB pages, rule {rule}",
        ],
    )
    if results:
        report.parts += hackbench.parts(results)
        report.notes += hackbench.notes(results)
        report.plots.append(
            Plot("slab memory of a hackbench", lambda p: hackbench.plot_memory(results, p))
        )
        report.plots.append(
            Plot(
                "slab memory through five hackbenches",
                lambda p: hackbench.plot_curve(results, p),
                panels=2,
            )
        )
    differing = sum(not row.exact for row in rows)
    if differing:
        report.failure = f"lab order: {differing} rows differ from the mail"
    return report
