# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench bulk`: bulk calls beside the tables of the mail that brought kfree_bulk.

bench/bulk.c defines the measured operations. The three settings are three worker processes, because
a memory group changes its caches for good, and the library reads its options once. The mail's
figures are in the files of `mail/`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import RenderableType
from rich.table import Table

from kmem.bench.allocators import Engine
from kmem.bench.worker import Job, Series, machine, measure
from kmem.common.errors import KmemError
from kmem.common.library_options import with_options
from kmem.common.tree import BUILD
from kmem.lab.mails import read_mail
from kmem.lab.report import Plot, Report, show_experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORKER = BUILD / "bench" / "bulk"
LIBRARY = BUILD / "src" / "libkmem.a"

BULKS = (1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250)
# Name in the worker's lines and in JSON: head of the column, name in the mail's files.
WAYS = {
    "fallback": ("fallback", "fallback"),
    "cache_bulk": ("cache_bulk", "kmem_cache_free_bulk"),
    "kfree_bulk": ("kfree_bulk", "kfree_bulk"),
}


# A function of the library that allocates has one of these texts in its name; the others free.
ALLOCATE = ("alloc", "pop", "take", "clear")

GROUPS = (
    "groups on: an accounted cache, the thread in a group; the mail's with MEMCG_KMEM at run time"
)
# SLUB without sheaves is the classic algorithm. SLAB's classic algorithm has its array.
CLASSIC = {
    Engine.SLUB: "sheaf_capacity=0: the classic algorithm",
    Engine.SLAB: "sheaf_capacity=0: no arrays; the classic algorithm, with them, is the default",
}


@dataclass(frozen=True)
class Setting:
    """A table of libkmem's figures."""

    name: str  # in JSON
    title: str
    options: str
    groups: bool = False


def settings(engine: Engine) -> list[Setting]:
    options = f"engine={engine}"
    return [
        Setting("results", "default settings", options),
        Setting("groups", GROUPS, options, True),
        Setting("classic", CLASSIC[engine], f"{options},sheaf_capacity=0"),
    ]


def job(setting: Setting) -> Job:
    return Job(
        setting.name,
        (WORKER, "groups") if setting.groups else (WORKER,),
        {"KMEM_OPTIONS": with_options(setting.options)},
    )


def mail_block(engine: Engine, *, groups: bool) -> dict[str, str]:
    """A block of the mail as cells "CYCLES NS", under the names that the worker uses."""
    rows = read_mail(f"kfree_bulk_{engine}_memcg" if groups else f"kfree_bulk_{engine}")
    cells = {
        f"{way}/{row['bulk_size']}": figure(
            float(row[f"{column}_cycles"]), float(row[f"{column}_ns"]), decimals=0
        )
        for row in rows
        for way, (_, column) in WAYS.items()
    }
    wanted = f"{engine.upper()}, MEMCG_KMEM enabled at run time" if groups else engine.upper()
    (pair,) = (row for row in read_mail("kfree_bulk_fast_path") if row["configuration"] == wanted)
    cells["fast_path"] = figure(float(pair["cycles_tsc"]), float(pair["ns"]), decimals=0)
    return cells


def figure(cycles: float, ns: float, *, decimals: int = 1) -> str:
    return f"{cycles:.{decimals}f} {ns:4.1f}"


def our_block(series: dict[str, Series]) -> dict[str, str]:
    return {name: figure(s.median, s.ns(s.median)) for name, s in series.items()}


def table(setting: Setting, engine: Engine, series: dict[str, Series]) -> Table:
    """libkmem's figures, the mail's block of this back end, and its block of the other back end."""
    engines = [engine, *(other for other in Engine if other != engine)]
    sources = {"libkmem": our_block(series)} | {
        f"mail {other.upper()}": mail_block(other, groups=setting.groups) for other in engines
    }
    output = Table(title=f"engine {engine}, {setting.title}", box=SIMPLE, padding=(0, 1, 0, 0))
    output.add_column("\nobjects", justify="right", no_wrap=True)
    for source in sources:
        for head, _ in WAYS.values():
            output.add_column(f"{source}\n{head}", justify="right", no_wrap=True)
    pairs = (cell for block in sources.values() for cell in (block["fast_path"], "", ""))
    output.add_row("pair", *pairs, end_section=True)
    for bulk in BULKS:
        output.add_row(
            str(bulk), *(block[f"{way}/{bulk}"] for block in sources.values() for way in WAYS)
        )
    return output


def code_sizes() -> dict[str, int]:
    """Bytes of every function of the library's two files of bulk calls, largest first."""
    done = subprocess.run(
        ["nm", "--print-size", "--defined-only", LIBRARY],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise KmemError(f"nm {LIBRARY} failed: {done.stderr.strip()}")
    sizes: dict[str, int] = {}
    member = ""
    for line in done.stdout.splitlines():
        match line.split():
            case [name] if name.endswith(":"):
                member = name.rstrip(":")
            case [_, size, "t" | "T", name] if member.endswith("_bulk.c.o"):
                # .localalias is a second name of a function's code; other suffixes are parts of a
                # function.
                if not name.endswith(".localalias"):
                    function = name.partition(".")[0]
                    sizes[function] = sizes.get(function, 0) + int(size, 16)
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def code_table(sizes: dict[str, int]) -> Table:
    """The mail's lines, then libkmem's."""
    output = Table(
        title="code size in bytes; libkmem by nm, without the sequences' abort handlers", box=SIMPLE
    )
    output.add_column("")
    output.add_column("function", no_wrap=True)
    for head in ("before", "with kfree_bulk", "grown by"):
        output.add_column(head, justify="right")
    for row in read_mail("kfree_bulk_code_size"):
        output.add_row(
            f"mail {row['allocator']}", row["function"], row["old"], row["new"], row["delta"]
        )
    allocate = [name for name in sizes if any(part in name for part in ALLOCATE)]
    free = [name for name in sizes if name not in allocate]
    for title, functions in (("allocate", allocate), ("free", free)):
        output.add_section()
        for function in functions:
            output.add_row(f"libkmem, {title}", function, "", str(sizes[function]), "")
        total = sum(sizes[function] for function in functions)
        output.add_row(f"libkmem, {title}", f"all {len(functions)}", "", str(total), "")
    return output


def json_rows(series: dict[str, Series]) -> list[dict[str, int | float]]:
    """A row for each bulk size: medians in cycles an object, these in ns, and minima in cycles."""
    rows: list[dict[str, int | float]] = []
    for bulk in BULKS:
        ways = {way: series[f"{way}/{bulk}"] for way in WAYS}
        row: dict[str, int | float] = {"bulk": bulk}
        row |= {way: round(s.median, 3) for way, s in ways.items()}
        row |= {f"{way}_ns": round(s.ns(s.median), 3) for way, s in ways.items()}
        row |= {f"{way}_min": round(s.minimum, 3) for way, s in ways.items()}
        rows.append(row)
    return rows


def as_document(
    engine: Engine, results: dict[str, dict[str, Series]], rounds: int, sizes: dict[str, int]
) -> dict[str, Any]:
    """The result file; without a unit in the name, figures are TSC cycles an object."""
    return {
        "engine": str(engine),
        "machine": machine(results),
        "rounds": rounds,
        "options": {s.name: with_options(s.options) for s in settings(engine)},
        **{name: json_rows(series) for name, series in results.items()},
        "fast_path": {
            name: {
                "cycles": round(series["fast_path"].median, 3),
                "ns": round(series["fast_path"].ns(series["fast_path"].median), 3),
                "cycles_min": round(series["fast_path"].minimum, 3),
            }
            for name, series in results.items()
        },
        "code_bytes": sizes,
    }


def plot_bulk(
    engine: Engine, results: dict[str, dict[str, Series]], panels: Sequence[Axes]
) -> None:
    """Cycles an object by the size of the bulk; dotted lines are the mail's."""
    for axes, setting in zip(panels, settings(engine), strict=True):
        series = results[setting.name]
        mail = mail_block(engine, groups=setting.groups)
        for way, (head, _) in WAYS.items():
            names = [f"{way}/{bulk}" for bulk in BULKS]
            (line,) = axes.plot(BULKS, [series[name].median for name in names], label=head)
            said = [float(mail[name].split()[0]) for name in names]
            axes.plot(BULKS, said, ":", color=line.get_color())
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("objects in a bulk")
        axes.set_title(setting.title.partition(";")[0].partition(":")[0], fontsize="medium")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("TSC cycles an object")
    panels[0].legend(fontsize="small")


def bulk_report(engine: Engine = Engine.SLUB, rounds: int = 60) -> Report:
    sizes = code_sizes()
    results = measure([job(setting) for setting in settings(engine)], rounds)
    parts: list[RenderableType] = [
        "mail: [PATCH V2 10/11] mm: new API kfree_bulk() for SLAB+SLUB allocators; in the kernel, "
        "on an i7-4790K at 4 GHz\n"
        f"libkmem: medians of {rounds} rounds, on this machine\n"
        "fallback: single calls; cache_bulk and kfree_bulk: how objects are freed that "
        "kmem_cache_alloc_bulk took;\n"
        "pair: one object allocated and freed at once (the mail's fast path)\n"
    ]
    if inherited := os.environ.get("KMEM_OPTIONS"):
        parts.append(f"KMEM_OPTIONS={inherited} holds for all of ours")
    parts += [table(setting, engine, results[setting.name]) for setting in settings(engine)]
    return Report(
        "bulk",
        "TSC cycles and ns an object of 256 bytes, its allocation and free together.",
        as_document(engine, results, rounds, sizes),
        [*parts, code_table(sizes)],
        [],
        [
            Plot(
                "bulk calls (dotted: the mail)",
                lambda panels: plot_bulk(engine, results, panels),
                len(settings(engine)),
            )
        ],
    )


def bench_bulk(engine: Engine, rounds: int, json_file: Path | None, html_file: Path | None) -> None:
    show_experiment(lambda: bulk_report(engine, rounds), json_file, html_file)
