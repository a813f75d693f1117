# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab kernels`: what the allocator of each released kernel does with a load.

Each kernel is option kernel of its version; the loads and the machine are equal for all. Time is
modelled, by counts of the run and assumed costs, and by waiting for list locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.lab import boots, freeze
from kmem.lab.cpu_partial_runs import KINDS, NETPERF, PAIRS
from kmem.lab.loads import Load, allocator_ns, run, run_all
from kmem.lab.replays import Job, replay
from kmem.lab.report import Plot, Report, show_experiment
from kmem.replay.costs import read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The kernels of option kernel (src/base/kernels.c), oldest first.
KERNELS = ("2.6.24", "5.14", "5.15", "5.16", "5.17", "6.1", "6.7", "6.8", "6.12", "6.18", "7.2")
BOOT = boots.Boot("6.1", 4).trace
MACHINE = {"boot_cpus": 16, "possible": 16, "nodes": 2}
SKIP = 40  # percent of the messages, after which a run has come to rest


@dataclass(frozen=True)
class Program:
    """A load of tools/loads, or the boot if it has no load."""

    name: str
    load: str = ""
    settings: Mapping[str, int | str] | None = None
    loops: int = 0
    quick_loops: int = 0


HACKBENCH = {**KINDS["process"], "pairs": PAIRS}
PROGRAMS = (
    Program("boot of 6.1"),
    Program("hackbench -g 1", "messages", {**HACKBENCH, "groups": 1}, 200, 20),
    Program("hackbench -g 16", "messages", {**HACKBENCH, "groups": 16}, 40, 8),
    Program(
        "netperf TCP_RR",
        "exchange",
        {**NETPERF["TCP-RR"], "capacity": 1},
        20_000,
        2_000,
    ),
    Program(
        "raw packets",
        "packets",
        {**freeze.PROGRAMS[1].settings, "groups": 16},
        3_000,
        500,
    ),
    Program(
        "rings, bulks of 16",
        "rings",
        {"groups": 8, "message": "udp", "capacity": 256, "bulk": 16},
        5_000,
        500,
    ),
    Program(
        "rings, bulks of 128",
        "rings",
        {"groups": 8, "message": "udp", "capacity": 1024, "bulk": 128},
        1_000,
        100,
    ),
)
FIGURES = {
    "ns": "allocator, ns",
    "slab_kib": "slabs, KiB",
    "list_locks": "list locks",
    "list_hold_ns": "held, ns",
    "list_wait_ns": "waited, ns",
    "barn_locks": "barn locks",
}

NOTES = (
    "Each figure but the slabs is of a message, packet or buffer; of the boot, of a call."
    " allocator: modelled time of all CPUs. list locks: those of the nodes' lists.",
    "slabs: the mean of a run; of the boot, at its end.",
    "16 CPUs on 2 nodes; the boot has 4 CPUs and was recorded on Linux 6.1. It is replayed without"
    " clocks, so nobody waits for a lock there.",
    "2.6.24 is SLOB: its single lock is counted and not waited for, and it has no slabs to count.",
    "Versions with equal policies have equal figures (docs/kernels.md).",
)


def boot_row(kernel: str) -> dict[str, float]:
    document = replay(Job(BOOT, f"kernel={kernel}"))
    counts = document["counts"]
    calls = counts["calls"]
    return {
        "ns": document["modelled"]["ns_per_call"],
        "slab_kib": 4 * document["end"]["pages"],
        "list_locks": counts["list_locks"] / calls,
        "barn_locks": counts["barn_locks"] / calls,
        "list_hold_ns": 0,
        "list_wait_ns": 0,
    }


def load_row(program: Program, kernel: str, loops: int, seed: int) -> dict[str, float]:
    settings = {**MACHINE, **(program.settings or {}), "loops": loops, "skip": SKIP, "seed": seed}
    document = run(Load(program.load, settings, (f"kernel={kernel}",)))
    sent, counts = document["measured_messages"], document["counts"]
    return {
        "ns": allocator_ns(document, read_costs()) / sent,
        "slab_kib": document["mean_slab_kib"],
        **{
            name: counts[name] / sent
            for name in ("list_locks", "list_hold_ns", "list_wait_ns", "barn_locks")
        },
    }


def one_row(program: Program, kernel: str, *, quick: bool, seed: int) -> dict[str, Any]:
    loops = program.quick_loops if quick else program.loops
    figures = load_row(program, kernel, loops, seed) if program.load else boot_row(kernel)
    return {
        "program": program.name,
        "kernel": kernel,
        **{name: round(figures[name], 4) for name in FIGURES},
    }


def table(program: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    output = Table(title=program, title_justify="left", box=SIMPLE)
    output.add_column("kernel", no_wrap=True)
    for heading in FIGURES.values():
        output.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        ns, kib, *rest = (row[name] for name in FIGURES)
        output.add_row(row["kernel"], f"{ns:.1f}", f"{kib:,.0f}", *(f"{one:.3f}" for one in rest))
    return output


def draw(rows: Sequence[Mapping[str, Any]], panels: Sequence[Axes]) -> None:
    for name, axes in zip(("ns", "slab_kib"), panels, strict=True):
        for program in PROGRAMS:
            chosen = [row for row in rows if row["program"] == program.name]
            least = min((row[name] for row in chosen if row[name]), default=1)
            axes.plot(
                [row["kernel"] for row in chosen],
                [row[name] / least for row in chosen],
                marker="o",
                label=program.name,
            )
        axes.set_ylabel(f"{FIGURES[name]}, of the least")
        axes.set_xlabel("kernel")
    panels[0].legend(fontsize="small")


def kernels_report(kernels: Sequence[str], *, quick: bool = False, seed: int = 1) -> Report:
    cases = [(program, kernel) for program in PROGRAMS for kernel in kernels]
    rows = run_all(
        "kernels",
        cases,
        lambda case: one_row(*case, quick=quick, seed=seed),
        lambda case: (case[0].quick_loops if quick else case[0].loops) or 1,
    )
    return Report(
        "kernels",
        "Loads under the policies of released kernels",
        {"quick": quick, "seed": seed, "machine": MACHINE, "rows": rows},
        [
            table(program.name, [row for row in rows if row["program"] == program.name])
            for program in PROGRAMS
        ],
        list(NOTES),
        [Plot("time and memory by kernel", lambda panels: draw(rows, panels), 2)],
    )


def show_kernels(
    kernels: Sequence[str],
    *,
    quick: bool,
    seed: int,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    show_experiment(lambda: kernels_report(kernels, quick=quick, seed=seed), json_file, html_file)
