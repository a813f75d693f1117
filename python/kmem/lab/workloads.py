# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab workloads`: the workload generators beside recorded runs of the real programs.

The recorded runs are kernel traces of Linux 6.18 on 2 CPUs. They are large, so their figures are
kept in load_recorded.csv; with their folder they are read anew. Behind them come recordings of
three kernels on emulated machines (workload_kernels.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.errors import BadUsage
from kmem.common.files import write_json
from kmem.common.tree import build
from kmem.lab import workload_kernels
from kmem.lab.loads import Load, run, run_all
from kmem.lab.shapes import Shape, read_recorded, shape_of

TABLE_WIDTH = 110  # columns; a narrower terminal wraps lines, a cut figure is worse
SHARES_SHOWN = 4
POINTS = 5.0  # that shares may differ by
TIMES = 2.0  # that lifetimes may differ by


@dataclass(frozen=True)
class Recorded:
    """A program that was recorded, and the generator that stands for it."""

    trace: str  # file without its ending
    command: str
    load: str
    settings: Mapping[str, int | str]


# Linux 6.18 on two CPUs: the scheduler's times, and the settings of each program. The CPUs share a
# cache, but other programs ran there, so a task that wakes seldom finds the other CPU idle.
SCHEDULER: dict[str, int | str] = {
    "boot_cpus": 2,
    "cache_cpus": 1,
    "latency_ns": 2_800_000,
    "slice_ns": 2_800_000,
    "granule_ns": 1_400_000,
}
HACKBENCH: dict[str, int | str] = {"groups": 4, "pairs": 20, "loops": 200, **SCHEDULER}
PROCESSES: dict[str, int | str] = {
    "task": "process",
    "send_ns": 600,
    "receive_ns": 850,
    "switch_ns": 2000,
}
THREADS: dict[str, int | str] = {
    "task": "thread",
    "send_ns": 700,
    "receive_ns": 1000,
    "switch_ns": 1400,
}

# The exchanges were recorded at a tenth of the speed of an idle machine. A message lives for a
# whole exchange there, so its ends had a CPU each: each finds its last CPU idle.
SLOW_EXCHANGE: dict[str, int | str] = {
    "cache_cpus": 2,
    "message": "tcp",
    "send_ns": 15000,
    "receive_ns": 15000,
    "switch_ns": 5000,
}

PROGRAMS = (
    Recorded(
        "hackbench-g4-l200-process",
        "hackbench -g 4 -l 200 -P",
        "messages",
        HACKBENCH | PROCESSES,
    ),
    Recorded(
        "hackbench-g4-l200-thread", "hackbench -g 4 -l 200 -T", "messages", HACKBENCH | THREADS
    ),
    Recorded(
        "hackbench-g4-l200-pipe",
        "hackbench -g 4 -l 200 -P -p",
        "messages",
        HACKBENCH | PROCESSES | {"message": "", "capacity": 655, "send_ns": 200, "receive_ns": 250},
    ),
    Recorded(
        "perf-messaging-g2-l200",
        "perf bench sched messaging -g 2 -l 200",
        "messages",
        HACKBENCH | PROCESSES | {"groups": 2},
    ),
    Recorded(
        "rawpkt-1s",
        "stress-ng --rawpkt 1 -t 1",
        "packets",
        {
            "message": "packet",
            "loops": 100_000,
            "send_ns": 1500,
            "receive_ns": 300,
            "wake_ns": 100,
            "switch_ns": 500,
            **SCHEDULER,
        },
    ),
    Recorded(
        "tcp-rr-60k",
        "netperf TCP_RR (60,000 transactions)",
        "exchange",
        {"loops": 60_000, "capacity": 2, **SCHEDULER, **SLOW_EXCHANGE},
    ),
    Recorded(
        "udp-rr-100k",
        "netperf UDP_RR (100,000 transactions)",
        "exchange",
        {"loops": 60_000, "capacity": 2, **SCHEDULER, **SLOW_EXCHANGE, "message": "udp"},
    ),
)


def read_traces(folder: Path) -> dict[str, Shape]:
    """The shapes of the traces in a folder."""
    from kmem.traces.file import read_trace

    return {
        program.trace: shape_of(read_trace(folder / f"{program.trace}.slt.zst"))
        for program in PROGRAMS
    }


def generate(program: Recorded, scale: float) -> Shape:
    from kmem.traces.file import read_trace

    with TemporaryDirectory(prefix="kmem-loads-") as folder:
        file = Path(folder) / "load.ktrace"
        settings = dict(program.settings)
        settings["loops"] = max(1, int(int(settings["loops"]) * scale))
        run(Load(program.load, settings | {"trace": str(file)}))
        return shape_of(read_trace(file))


@dataclass(frozen=True)
class Comparison:
    program: Recorded
    recorded: Shape
    generated: Shape

    @property
    def share_points(self) -> tuple[float, str]:
        """The greatest difference of a share, and of which size."""
        names = self.recorded.shares.keys() | self.generated.shares.keys()
        points = [
            (abs(self.recorded.shares.get(name, 0) - self.generated.shares.get(name, 0)), name)
            for name in sorted(names)
        ]
        return max(points)

    def misses(self) -> list[str]:
        found = []
        points, name = self.share_points
        if points > POINTS:
            found.append(f"share of {name} by {points:.1f} points")
        for what in ("median_ns", "percentile_90_ns"):
            ours, theirs = getattr(self.generated, what), getattr(self.recorded, what)
            if not theirs / TIMES <= ours <= theirs * TIMES:
                found.append(f"{what.removesuffix('_ns').replace('_', ' ')} {ours / theirs:.2f}x")
        other = self.generated.other_cpu - self.recorded.other_cpu
        if abs(other) > POINTS:
            found.append(f"frees on another CPU by {other:+.1f} points")
        return found


def as_document(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    def figures(shape: Shape) -> dict[str, Any]:
        return {
            "shares_percent": {name: round(value, 2) for name, value in shape.shares.items()},
            "median_ns": round(shape.median_ns),
            "percentile_90_ns": round(shape.percentile_90_ns),
            "other_cpu_percent": round(shape.other_cpu, 2),
        }

    return {
        comparison.program.trace: {
            "command": comparison.program.command,
            "recorded": figures(comparison.recorded),
            "generated": figures(comparison.generated),
            "misses": comparison.misses(),
        }
        for comparison in comparisons
    }


def as_table(comparison: Comparison) -> Table:
    output = Table(title=comparison.program.command, title_justify="left", box=SIMPLE)
    output.add_column("", no_wrap=True)
    for heading in ("recorded", "generated"):
        output.add_column(heading, justify="right", no_wrap=True)
    shapes = (comparison.recorded, comparison.generated)
    for name in list(comparison.recorded.shares)[:SHARES_SHOWN]:
        output.add_row(f"share of {name}", *(f"{s.shares.get(name, 0):.1f}%" for s in shapes))
    points, name = comparison.share_points
    output.add_row(f"greatest difference of a share ({name})", "", f"{points:.1f} points")
    output.add_row("median lifetime", *(f"{s.median_ns / 1e3:,.1f} us" for s in shapes))
    output.add_row("90th percentile", *(f"{s.percentile_90_ns / 1e3:,.1f} us" for s in shapes))
    output.add_row("frees on another CPU", *(f"{s.other_cpu:.1f}%" for s in shapes))
    return output


def print_comparisons(
    comparisons: list[Comparison], recordings: list[workload_kernels.Comparison]
) -> None:
    console = wide_console(TABLE_WIDTH)
    for comparison in comparisons:
        console.print(as_table(comparison))
        misses = comparison.misses()
        console.print(
            f"misses: {', '.join(misses)}" if misses else "within all bounds", highlight=False
        )
    for cpus in workload_kernels.CPUS:
        console.print(workload_kernels.as_table(recordings, cpus))
    console.print(
        f"bounds: shares and frees on another CPU {POINTS:g} points, lifetimes and live objects"
        f" {TIMES:g}x. Packet rings were not recorded.",
        highlight=False,
        soft_wrap=True,
    )


def show_workloads(traces: Path | None, scale: float, json_file: Path | None) -> None:
    if not 0 < scale <= 1:
        raise BadUsage(f"lab workloads: --scale {scale:g}: expected more than 0, at most 1")
    build()
    recorded = read_traces(traces) if traces else read_recorded()
    shapes = run_all(
        "workloads", PROGRAMS, lambda program: generate(program, scale), lambda program: 1
    )
    comparisons = [
        Comparison(program, recorded[program.trace], shape)
        for program, shape in zip(PROGRAMS, shapes, strict=True)
    ]
    recordings = workload_kernels.compare_all()
    rows = workload_kernels.as_rows(recordings)
    try:
        write_json(json_file, {**as_document(comparisons), "recordings": rows})
    finally:  # a full disk must not take the figures
        print_comparisons(comparisons, recordings)
