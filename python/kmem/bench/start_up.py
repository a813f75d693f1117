# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench start`: time and memory that an allocator costs a program that allocates nothing."""

import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from kmem.bench import peers
from kmem.bench.allocators import GLIBC, LIBKMEM, Allocator
from kmem.bench.crates import check_library
from kmem.bench.suite import choose_peers, commit, own_options, tell_options
from kmem.bench.timed import Sample, Watch, timed_run
from kmem.common.files import write_json
from kmem.common.tree import build

PROGRAM = "/bin/true"
TABLE_WIDTH = 90  # columns; a narrower terminal wraps lines, a cut figure is worse


def measure(
    allocators: Sequence[Allocator], runs: int, seed: int, folder: Path
) -> dict[str, list[Sample]]:
    """Runs of each allocator, in turn and in a new order each time."""
    order = random.Random(seed)
    samples: dict[str, list[Sample]] = {allocator.name: [] for allocator in allocators}
    for _ in range(runs):
        for allocator in order.sample(allocators, len(allocators)):
            samples[allocator.name].append(timed_run(folder, [PROGRAM], allocator))
    return samples


def as_rows(samples: Mapping[str, Sequence[Sample]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "allocator": name,
            "microseconds": 1e6 * statistics.median(run.seconds for run in runs),
            "peak_bytes": int(statistics.median(run.peak_bytes for run in runs)),
            "page_faults": int(statistics.median(run.minor_faults for run in runs)),
        }
        for name, runs in samples.items()
    ]
    base = next(row for row in rows if row["allocator"] == GLIBC.name)
    for row in rows:
        row["microseconds_over_glibc"] = row["microseconds"] - base["microseconds"]
        row["bytes_over_glibc"] = row["peak_bytes"] - base["peak_bytes"]
    return rows


def show(rows: Sequence[Mapping[str, Any]], runs: int, *, disturbed: bool) -> None:
    table = Table(
        "allocator",
        *("us", "over glibc's", "peak KiB", "over glibc's ", "page faults"),
        box=box.SIMPLE,
        title=f"{PROGRAM}, medians of {runs} runs",
        title_justify="left",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(
            row["allocator"],
            f"{row['microseconds']:,.0f}",
            f"{row['microseconds_over_glibc']:+,.0f}",
            f"{row['peak_bytes'] / 1024:,.0f}",
            f"{row['bytes_over_glibc'] / 1024:+,.0f}",
            f"{row['page_faults']:,}",
        )
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table)
    tell_options(console)
    if disturbed:
        console.print("Other processes took CPU time meanwhile: the times are too long.")


def bench_start(wanted_peers: str | None, runs: int, seed: int, json_file: Path | None) -> None:
    chosen = [name for name in choose_peers(wanted_peers) if name != GLIBC.name]
    progress = Console(stderr=True)
    build()
    assert LIBKMEM.library is not None
    check_library(LIBKMEM.library)
    found, missing = peers.find(chosen, progress)
    allocators = [GLIBC, LIBKMEM, *(peer.allocator for peer in found)]
    watch = Watch()
    with (
        tempfile.TemporaryDirectory(prefix="kmem-start-") as folder,
        progress.status(f"{runs} runs of {PROGRAM} on each allocator"),
    ):
        rows = as_rows(measure(allocators, runs, seed, Path(folder)))
    disturbed = watch.disturbed()
    document = {
        "commit": commit(),
        "options": own_options(),
        "program": PROGRAM,
        "runs": runs,
        "disturbed": disturbed,
    }
    try:
        write_json(json_file, document | {"missing": missing, "rows": rows})
    finally:  # a full disk must not take the figures
        show(rows, runs, disturbed=disturbed)
        for name, why in missing.items():
            progress.print(f"{name}: {why}", highlight=False)
