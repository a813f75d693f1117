# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab boots`: recorded boots of kernels beside the same kernels' policies here.

Each boot is replayed with option kernel of its own version and of the other versions that were
recorded, on as many CPUs, and its slab pages are set beside /proc/slabinfo. The caches of that
table are made with the same options, for the shape of their slabs and their limits.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.files import write_json
from kmem.common.tree import build
from kmem.lab.loads import run_all
from kmem.replay.recorded import read_table
from kmem.replay.recorded_report import CACHE_PERCENT, LARGE_CACHE_PAGES, TOTAL_PERCENT
from kmem.replay.simulated import run_recorded
from kmem.replay.tool import run
from kmem.traces.slabinfo import CacheLine

if TYPE_CHECKING:
    from kmem.traces.file import Trace

TRACES = Path(__file__).parents[1] / "traces"
KERNELS = ("6.1", "6.12", "7.2")
LIMITS = ("cpu_partial", "min_partial", "sheaf_capacity")
TABLE_WIDTH = 110  # columns


@dataclass(frozen=True)
class Boot:
    kernel: str
    cpus: int

    @property
    def name(self) -> str:
        return f"boot-{self.kernel}-{self.cpus}cpu"

    @property
    def trace(self) -> Path:
        return TRACES / f"{self.name}.ktrace"

    @property
    def slabinfo(self) -> Path:
        return TRACES / f"{self.name}.slabinfo.txt"

    def attributes(self) -> dict[str, dict[str, str]]:
        """The values of /sys/kernel/slab by cache and attribute."""
        text = gzip.decompress((TRACES / f"{self.name}.attributes.tsv.gz").read_bytes()).decode()
        found: dict[str, dict[str, str]] = {}
        for cache, attribute, value in csv.reader(text.splitlines(), delimiter="\t"):
            found.setdefault(cache, {})[attribute] = value
        return found


BOOTS = [Boot(kernel, cpus) for cpus in (4, 16) for kernel in KERNELS]


def one_of_each(table: Mapping[str, CacheLine], cpus: int) -> Trace:
    """A trace that allocates an object of each cache."""
    import polars as pl

    from kmem.traces import file as tr

    count = len(table)
    sizes = [cache.object_size for cache in table.values()]
    given: dict[str, list[int]] = {
        "time": list(range(count)),
        "requested": sizes,
        "given": sizes,
        "object": list(range(count)),
        "cache": list(range(2, 2 + count)),
        "operation": [tr.ALLOC] * count,
    }
    columns = [
        pl.Series(name, given.get(name, [0] * count), kind) for name, kind in tr.TYPES.items()
    ]
    return tr.Trace(pl.DataFrame(columns), ["kmalloc", "?", *table], [""], count, cpus)


def caches_of_ours(boot: Boot, kernel: str) -> dict[str, dict[str, int]]:
    """The caches of the boot's table, as they are here with option kernel."""
    from kmem.traces.file import write_trace

    with TemporaryDirectory(prefix="kmem-boots-") as folder:
        file = Path(folder) / "caches.ktrace"
        write_trace(file, one_of_each(read_table(boot.slabinfo), boot.cpus))
        document, _ = run(file, [f"options=kernel={kernel},slab_merge=0"])
    return {cache["name"]: cache for cache in document["caches"]}


def other_shapes(boot: Boot, ours: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Caches whose slabs have other objects or pages than the kernel's."""
    return [
        name
        for name, line in read_table(boot.slabinfo).items()
        if (ours[name]["objects_per_slab"], 1 << ours[name]["order"])
        != (line.objects_per_slab, line.pages_per_slab)
    ]


def other_limits(boot: Boot, ours: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """Caches with another value of an attribute that limits what CPUs and nodes keep."""
    theirs = boot.attributes()
    return {
        limit: [
            name
            for name, values in theirs.items()
            if limit in values and int(values[limit]) != ours[name][limit]
        ]
        for limit in LIMITS
    }


def replay(boot: Boot, kernel: str) -> dict[str, Any]:
    """A row of the result."""
    ours = caches_of_ours(boot, kernel)
    document, _ = run_recorded(boot.trace, boot.slabinfo, [f"kernel={kernel}"])
    recorded = document["recorded"]
    return {
        "boot": boot.kernel,
        "cpus": boot.cpus,
        "kernel": kernel,
        "caches": len(ours),
        "other_shapes": other_shapes(boot, ours),
        "other_limits": other_limits(boot, ours),
        **{key: recorded[key] for key in ("kernel_pages", "pages", "difference_percent")},
        **{key: recorded[key] for key in ("large_caches", "large_caches_within")},
        "within": recorded["total_within"] and recorded["caches_within"],
        "live_objects": sum(row["inuse"] for row in recorded["caches"]),
        "objects_first": sum(recorded["objects_first"].values()),
        "as_counted_percent": recorded["as_counted"]["difference_percent"],
    }


def as_table(rows: list[dict[str, Any]]) -> Table:
    output = Table(title="recorded boots, replayed with option kernel", box=SIMPLE)
    output.title_justify = "left"
    headings = ("boot of", "kernel=", "shapes", "limits", "kernel's pages", "pages")
    for heading in (*headings, "caches within", "first"):
        output.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        shapes, limits = len(row["other_shapes"]), sum(map(len, row["other_limits"].values()))
        output.add_row(
            f"{row['boot']}, {row['cpus']} CPUs",
            row["kernel"],
            f"{shapes} of {row['caches']}",
            str(limits),
            f"{row['kernel_pages']:,}",
            f"{row['pages']:,} ({row['difference_percent']:+.2f}%)",
            f"{row['large_caches_within']} of {row['large_caches']}",
            f"{100 * row['objects_first'] / row['live_objects']:.0f}%",
        )
    return output


def print_rows(rows: list[dict[str, Any]]) -> None:
    console = wide_console(TABLE_WIDTH)
    console.print(as_table(rows))
    lines = [
        "shapes: of all caches in /proc/slabinfo, those with other objects or pages of a slab;"
        f" limits: other values of {', '.join(LIMITS)} in /sys/kernel/slab",
        f"caches within {CACHE_PERCENT}% of the kernel's pages, of those with more than"
        f" {LARGE_CACHE_PAGES}; wanted: pages within {TOTAL_PERCENT}% and nine of ten caches",
        "first: of the live objects, those that the replay allocates before the trace, until both"
        " tables count as many active objects: the trace has no allocation of them",
    ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def show_boots(json_file: Path | None) -> None:
    build()
    cases = [(boot, kernel) for boot in BOOTS for kernel in KERNELS]
    rows = run_all("boots", cases, lambda case: replay(*case))
    try:
        write_json(json_file, {"rows": rows})
    finally:  # a full disk must not take the figures
        print_rows(rows)
