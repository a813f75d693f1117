# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab lists`: slabs held on CPU partial lists under each accounting rule.

bench/lists.c makes the figures and describes them and the pattern.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.table import Table

from kmem.common.errors import BadUsage, KmemError
from kmem.common.tree import BUILD
from kmem.lab.report import Plot, Report, show_experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROGRAM = BUILD / "bench" / "lists"

MAIL = "mm, slub: change percpu partial accounting from objects to pages"
SLABS, SLABS_MOST = 200, 4000  # of the program

# The mail's statement on lists with the defaults of its time, in slabs: 30 objects "can translate
# to the same number of (empty) slab pages", and "up to 2 pages" with the patch.
MAIL_SLABS = {("objects", "seed"): 30, ("slabs", "seed"): 2}

NOTES = (
    "longest: slabs on the list at most; mail: the most it names, for any size.",
    "With few CPUs slabs have few objects, and as many objects are more slabs than the mail's 2.",
    "held, wasted, charged: with as many slabs as the longest list, after all their objects were"
    " freed; held on the list, wasted bytes in all slabs of the cache.",
    "charged: to a group by the page, as before 5.9, and by the object, as since then and here.",
    "locks, swaps: holds of list_lock and compare-and-swaps on slabs for the whole pattern.",
)


def measure(slabs: int) -> dict[str, Any]:
    done = subprocess.run([PROGRAM, f"slabs={slabs}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KmemError(f"lab lists: {done.stderr.strip() or f'status {done.returncode}'}")
    return dict(json.loads(done.stdout))


def as_table(rows: Sequence[dict[str, Any]], slabs: int) -> Table:
    output = Table(title=f"CPU partial lists, {slabs} slabs", box=SIMPLE)
    for heading in ("rule", "defaults", "freeze"):
        output.add_column(heading, no_wrap=True)
    for heading in ("size", "longest", "mail", "held", "wasted", "by page", "by object"):
        output.add_column(heading, justify="right", no_wrap=True)
    for heading in ("locks", "swaps"):
        output.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        freed = row["all_free"]
        said = MAIL_SLABS.get((row["accounting"], row["defaults"]))
        figures = (
            row["size"],
            row["longest"],
            "-" if said is None else said,
            freed["listed"],
            freed["wasted_bytes"],
            freed["slab_bytes"],
            freed["charged_bytes"],
            row["list_locks"],
            row["swaps"],
        )
        last_of_size = number + 1 < len(rows) and rows[number + 1]["size"] != row["size"]
        output.add_row(
            row["accounting"],
            row["defaults"],
            row["freeze"],
            *map(str, figures),
            end_section=last_of_size,
        )
    return output


def plot_lists(rows: Sequence[dict[str, Any]], panels: Sequence[Axes]) -> None:
    (axes,) = panels
    labels = [f"{row['accounting']}, {row['defaults']}, {row['freeze']}" for row in rows]
    kinds = list(dict.fromkeys(labels))
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    height = 0.8 / len(kinds)
    for number, kind in enumerate(kinds):
        longest = [row["longest"] for row, label in zip(rows, labels, strict=True) if label == kind]
        places = [place + number * height for place in range(len(sizes))]
        axes.barh(places, longest, height, label=kind)
    axes.set_yticks(
        [place + 0.4 for place in range(len(sizes))], [f"{size} bytes" for size in sizes]
    )
    axes.invert_yaxis()
    axes.set_xlabel("slabs on the longest list")
    axes.legend(fontsize="x-small", title="rule, defaults, freeze", loc="center right")


def lists_report(slabs: int = SLABS) -> Report:
    document = measure(slabs)
    rows = document["rows"]
    return Report(
        "lists",
        MAIL,
        document,
        [as_table(rows, slabs)],
        list(NOTES),
        [Plot("CPU partial lists", lambda panels: plot_lists(rows, panels))],
    )


def show_lists(slabs: int, json_file: Path | None, html_file: Path | None) -> None:
    if not 1 <= slabs <= SLABS_MOST:
        raise BadUsage(f"lab lists: --slabs {slabs}; expected 1 to {SLABS_MOST}")
    show_experiment(lambda: lists_report(slabs), json_file, html_file)
