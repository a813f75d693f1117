# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The workload generators beside recordings of three kernels on machines of 4 and of 16 CPUs.

The machines were emulated, so nothing is compared in time. An event is an allocation or a free of
a part of a message: its head or its data. Other objects of the recordings (of tasks, files,
mappings) are left out, as runs this short are mostly starts and ends of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.common.errors import KmemError
from kmem.lab.loads import Load, run, run_all

if TYPE_CHECKING:
    import polars as pl

    from kmem.traces.file import Trace

TRACES = Path(__file__).parents[1] / "traces"

KERNELS = ("6.1", "6.12", "7.2")
CPUS = (4, 16)
POINTS = 5.0  # that shares of frees on another CPU may differ by
TIMES = 2.0  # that lifetimes and live objects may differ by

# Functions of the kernels that allocate heads and data of messages, and the generators' caches.
FUNCTIONS = ("__alloc_skb", "kmalloc_reserve")
GENERATED = ("skbuff_head_cache", "skbuff_fclone_cache", "skbuff_small_head", "kmalloc-512")


@dataclass(frozen=True)
class Program:
    """A load of scripts/record_kernels.py and the generator that stands for it."""

    name: str
    load: str
    settings: Mapping[str, int | str]


def scheduler(cpus: int) -> dict[str, int | str]:
    """Linux's own times grow with the binary logarithm of at most 8 CPUs."""
    granule = 700_000 * min(cpus, 8).bit_length()
    return {
        "boot_cpus": cpus,
        "latency_ns": 2 * granule,
        "slice_ns": 2 * granule,
        "granule_ns": granule,
    }


# As on the machine of workloads.py; how long an exchange takes is not known.
PROCESS: dict[str, int | str] = {"send_ns": 600, "receive_ns": 850, "switch_ns": 2000}
THREAD: dict[str, int | str] = {"send_ns": 700, "receive_ns": 1000, "switch_ns": 1400}
EXCHANGE: dict[str, int | str] = {"send_ns": 1500, "receive_ns": 1500, "switch_ns": 2000}


def receiver_frees(kernel: str, kind: str) -> bool:
    """Whether the receiver frees a message; otherwise the CPU that allocated it does, later."""
    return kind == "udp" and kernel != "7.2"


def programs(cpus: int, kernel: str) -> list[Program]:
    hackbench = [
        Program(
            f"hackbench-g{groups}-{task}",
            "messages",
            {**times, "groups": groups, "pairs": 20, "loops": loops, "task": task, "seed": 1},
        )
        for groups, loops in ((1, 12), (4, 3), (16, 1))
        for task, times in (("process", PROCESS), ("thread", THREAD))
    ]
    pairs = cpus // 2
    exchanges = [
        Program(
            f"{kind}-rr",
            "exchange",
            {
                **EXCHANGE,
                "groups": pairs,
                "loops": 3000 // pairs,
                "capacity": 1 if receiver_frees(kernel, kind) else 2,
                "message": kind,
            },
        )
        for kind in ("tcp", "udp")
    ]
    return hackbench + exchanges


@dataclass(frozen=True)
class Figures:
    """Lifetimes in events, frees on another CPU in percent, the most live objects by cache."""

    median: float
    percentile_90: float
    other_cpu: float
    live: Mapping[str, int]  # by kmalloc-SIZE or cache-SIZE

    @property
    def live_at_once(self) -> int:
        return sum(self.live.values())


def messages_of(trace: Trace, *, recorded: bool) -> pl.DataFrame:
    """The events of the parts of messages, numbered."""
    import polars as pl

    from kmem.traces.file import ALLOC, FREE, IMPLIED, OPERATION_MASK

    named = trace.named().with_columns(pl.col("operation") & OPERATION_MASK)
    if recorded:
        parts = pl.col("site").str.split("+").list.first().is_in(FUNCTIONS)
    else:
        parts = pl.col("cache").is_in(GENERATED)
    born = named.filter((pl.col("operation") == ALLOC) & parts)
    return named.filter(
        pl.col("operation").is_in([ALLOC, FREE, IMPLIED])
        & pl.col("object").is_in(born["object"].implode())
    ).with_row_index("event")


def live_objects(events: pl.DataFrame) -> dict[str, int]:
    """The most objects that lived at once, of each cache and size."""
    import polars as pl

    from kmem.traces.file import ALLOC

    born = events.filter(pl.col("operation") == ALLOC)
    kind = pl.when(pl.col("cache").str.starts_with("kmalloc")).then(pl.lit("kmalloc"))
    kinds = born.select("object", kind=pl.format("{}-{}", kind.otherwise(pl.lit("cache")), "given"))
    step = pl.when(pl.col("operation") == ALLOC).then(1).otherwise(-1)
    counts = (
        events.join(kinds, on="object", maintain_order="left")
        .with_columns(live=step.cum_sum().over("kind"))
        .group_by("kind")
        .agg(pl.col("live").max())
    )
    return dict(sorted(counts.iter_rows()))


def figures_of(trace: Trace, *, recorded: bool) -> Figures:
    """Frees that nobody recorded end an object, and have no CPU and no lifetime."""
    import polars as pl

    from kmem.traces.file import ALLOC, FREE

    events = messages_of(trace, recorded=recorded)
    begins = events.filter(pl.col("operation") == ALLOC)
    lives = (
        events.filter(pl.col("operation") == FREE)
        .join(begins.select("object", begin="event", cpu_then="cpu"), on="object")
        .select(
            life=pl.col("event").cast(pl.Int64) - pl.col("begin").cast(pl.Int64),
            other=pl.col("cpu") != pl.col("cpu_then"),
        )
    )
    if not lives.height:
        raise KmemError("lab workloads: a trace without a free of a message that it allocates")
    quantiles = [float(lives["life"].quantile(share, "nearest") or 0) for share in (0.5, 0.9)]
    other = 100 * int(lives["other"].sum()) / lives.height
    return Figures(quantiles[0], quantiles[1], other, live_objects(events))


def generate(program: Program, cpus: int) -> Figures:
    from kmem.traces.file import read_trace

    with TemporaryDirectory(prefix="kmem-loads-") as folder:
        file = Path(folder) / "load.ktrace"
        run(Load(program.load, {**program.settings, **scheduler(cpus), "trace": str(file)}))
        return figures_of(read_trace(file), recorded=False)


@dataclass(frozen=True)
class Comparison:
    program: str
    kernel: str
    cpus: int
    recorded: Figures
    generated: Figures

    def misses(self) -> list[str]:
        found = []
        for what in ("median", "percentile_90", "live_at_once"):
            ours, theirs = getattr(self.generated, what), getattr(self.recorded, what)
            if not theirs / TIMES <= ours <= theirs * TIMES:
                found.append(what)
        if abs(self.generated.other_cpu - self.recorded.other_cpu) > POINTS:
            found.append("other_cpu")
        return found


def compare_all() -> list[Comparison]:
    from kmem.traces.file import read_trace

    cases = [
        (program, kernel, cpus)
        for cpus in CPUS
        for program_of_all in zip(*(programs(cpus, kernel) for kernel in KERNELS), strict=True)
        for program, kernel in zip(program_of_all, KERNELS, strict=True)
    ]
    # Most settings are those of all kernels, so that they are generated once.
    distinct: list[tuple[Program, int]] = []
    for program, _, cpus in cases:
        if (program, cpus) not in distinct:
            distinct.append((program, cpus))
    generated = run_all("recordings", distinct, lambda case: generate(*case), lambda case: 1)
    return [
        Comparison(
            program.name,
            kernel,
            cpus,
            figures_of(
                read_trace(TRACES / f"{program.name}-{kernel}-{cpus}cpu.ktrace"), recorded=True
            ),
            generated[distinct.index((program, cpus))],
        )
        for program, kernel, cpus in cases
    ]


def as_rows(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    def shown(figures: Figures) -> dict[str, Any]:
        return {
            "median_events": round(figures.median),
            "percentile_90_events": round(figures.percentile_90),
            "other_cpu_percent": round(figures.other_cpu, 2),
            "live": figures.live,
            "live_at_once": figures.live_at_once,
        }

    return [
        {
            "program": comparison.program,
            "kernel": comparison.kernel,
            "cpus": comparison.cpus,
            "recorded": shown(comparison.recorded),
            "generated": shown(comparison.generated),
            "misses": comparison.misses(),
        }
        for comparison in comparisons
    ]


def as_table(comparisons: Sequence[Comparison], cpus: int) -> Table:
    """Recorded and generated, side by side; a star behind what misses its bound."""
    output = Table(
        title=f"recordings of kernels on {cpus} CPUs: recorded, generated (* beyond the bound)",
        title_justify="left",
        box=SIMPLE,
    )
    for heading in ("program", "kernel"):
        output.add_column(heading, no_wrap=True)
    for heading in ("median, events", "90th percentile", "other CPU, %", "live at once"):
        output.add_column(heading, justify="right", no_wrap=True)
    for row in comparisons:
        if row.cpus != cpus:
            continue
        misses = row.misses()
        cells = [
            f"{getattr(row.recorded, what):,.{digits}f}, {getattr(row.generated, what):,.{digits}f}"
            f"{'*' if what in misses else ' '}"
            for what, digits in (
                ("median", 0),
                ("percentile_90", 0),
                ("other_cpu", 1),
                ("live_at_once", 0),
            )
        ]
        output.add_row(row.program, row.kernel, *cells)
    return output
