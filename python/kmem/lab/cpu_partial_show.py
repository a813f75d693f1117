# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tables and plots of `kmem lab cpu-partial`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.lab.cpu_partial_runs import CHARGED_GROUPS, MACHINES, RULES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


def of_mail(row: Mapping[str, Any]) -> list[str]:
    """The mail's figures of a row of netperf; of two machines it has a bound only."""
    if row["mail_percent"] is None:
        return ["-", "-", f"within {row['mail_within_percent']}%", "-"]
    cells = []
    for rule in RULES:
        stddev = row[rule]["mail_stddev"]
        said = "-" if stddev is None else f"{stddev:,.0f}"
        cells.append(f"{row[rule]['mail_hmean']:,.0f} ({said})")
    deviations = row["mail_deviations"]
    said = "-" if deviations is None else f"{deviations:.1f}"
    return [*cells, f"{row['mail_percent']:+.2f}%", said]


def netperf_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    output = Table(
        title="netperf, transactions a second: hmean (stddev); deviations: the mail's change in"
        " those of the difference of two of its runs",
        title_justify="left",
    )
    output.box = SIMPLE
    output.add_column("machine", no_wrap=True)
    for heading in (
        "test",
        "mail before",
        "mail after",
        "change",
        "deviations",
        "before",
        "after",
        "change",
    ):
        output.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        ours = [f"{row[rule]['hmean']:,.0f} ({row[rule]['stddev']:,.0f})" for rule in RULES]
        name = MACHINES[row["machine"]].name
        output.add_row(name, row["test"], *of_mail(row), *ours, f"{row['percent']:+.2f}%")
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
