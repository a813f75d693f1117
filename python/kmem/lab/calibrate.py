# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab calibrate`: the table of costs for modelled time, measured on this machine.

bench/costs.c defines the measured operations. Every kind of lock gets an equal cost to take and to
hand over: the work under a lock is counted separately, or it is small.
"""

import csv
import io
import os
import platform
import subprocess
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.errors import KmemError
from kmem.common.files import why_not_written, write_result
from kmem.common.tree import BUILD, build
from kmem.replay.costs import read_costs

PROGRAM = BUILD / "bench" / "costs"
OPTIONS = "bare.sheaf_capacity=0,slob-*.engine=slob"

LOCKS = ("slot", "list", "barn", "alien", "slob")
WHAT = {
    "calls": "an allocation or a free that a sheaf serves",
    "slow_paths": "one that no sheaf serves, without its lock and its object",
    "moved_objects": "an object from a slab to a CPU's sheaf or array, or back",
    "compare_swaps": "on a word in this CPU's cache",
    "remote_words": "a word that another CPU changed last",
    "page_locks": "with the pages taken or given back under it",
    "page_scans": "engine slob: a page that cannot serve",
    "block_scans": "engine slob: a free block looked at",
}


def measure() -> dict[str, float]:
    done = subprocess.run(
        [PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"KMEM_OPTIONS": OPTIONS},
    )
    if done.returncode != 0:
        raise KmemError(f"lab calibrate: {done.stderr.strip() or f'status {done.returncode}'}")
    return {name: float(ns) for name, ns in map(str.split, done.stdout.splitlines())}


def costs_of(measured: dict[str, float], assumed: dict[str, float]) -> dict[str, float]:
    """The table of costs. A cost that could not be measured keeps its assumed value."""
    once = ("calls", "compare_swaps", "atomic_adds", "exchanges", "page_scans", "block_scans")
    costs = {name: measured[name] for name in once}
    # Moving an object costs a call that moves it, less the call itself and half a swap: half of
    # these calls swap a slab's state for a single object.
    costs["moved_objects"] = max(
        0.0, measured["moved_calls"] - measured["calls"] - measured["compare_swaps"] / 2
    )
    # A call without a sheaf also moves an object.
    costs["slow_paths"] = max(
        0.0,
        measured["bare_calls"] - measured["calls"] - measured["locks"] - costs["moved_objects"],
    )
    line = measured.get("line")
    costs["remote_words"] = assumed["remote_words"] if line is None else line
    for lock in LOCKS:
        costs[f"{lock}_locks"] = measured["locks"]
    costs["page_locks"] = measured["page_locks"]
    for lock in (*LOCKS, "page"):
        if lock != "slot":
            name = f"{lock}_handed_over"
            costs[name] = assumed[name] if line is None else line
    # Cache lines that move with a slab or an object; the extra cost of another node is not
    # measured.
    queued = measured.get("queued")
    if line is None or queued is None:
        waited = assumed["list_waits"]
    else:
        # The lock's own line and its instructions have costs already.
        waited = max(0.0, queued - line - measured["locks"])
    costs["list_waits"] = costs["barn_waits"] = waited
    for name, lines in (("list_moves", 1), ("remote_objects", 2), ("received_objects", 3)):
        costs[name] = assumed[name] if line is None else lines * line
    for name in (
        "remote_words_node",
        "list_handed_over_node",
        "list_waits_node",
        "barn_waits_node",
        "remote_objects_node",
        "received_objects_node",
    ):
        costs[name] = assumed[name]
    return costs


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write_costs(file: Path, costs: dict[str, float], line_measured: bool) -> None:
    output = io.StringIO()
    output.write(f"# Nanoseconds, measured by kmem lab calibrate on {processor()}.\n")
    if not line_measured:
        output.write("# One CPU only: remote words and hand-overs are assumed.\n")
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(("count", "ns", "what"))
    for name, ns in costs.items():
        writer.writerow((name, f"{ns:.3f}", WHAT.get(name, "")))
    write_result(file, "lab calibrate: --out", output.getvalue())


def show_calibration(file: Path | None) -> None:
    if file is not None and (reason := why_not_written(file)):
        raise KmemError(f"lab calibrate: --out {file}: {reason}")
    build()
    assumed = read_costs()
    measured = measure()
    costs = costs_of(measured, assumed)
    if file is not None:
        write_costs(file, costs, "line" in measured)
    output = Table(title="nanoseconds", title_justify="left", box=SIMPLE)
    output.add_column("count", no_wrap=True)
    for heading in ("measured", "assumed"):
        output.add_column(heading, justify="right", no_wrap=True)
    for name, ns in costs.items():
        output.add_row(name, f"{ns:.1f}", f"{assumed[name]:g}" if name in assumed else "-")
    console = wide_console()
    console.print(output)
    if "line" not in measured:
        console.print("one CPU only: remote words and hand-overs are assumed", highlight=False)
    if file is not None:
        console.print(f"kmem replay --costs {file} uses these", highlight=False, soft_wrap=True)
