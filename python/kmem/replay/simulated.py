# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay`: a trace on the simulated machine, through the library's own code.

build/tools/replay takes the steps and counts; how copies of a trace share CPUs is said in
tools/replay/run.c, how caches are made in tools/replay/steps.c. Here its figures become the
optimum, shares and modelled time, which docs/kernel-rules.md (S7.6) and kmem.replay.costs define.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.common.console import wide_console
from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import write_json
from kmem.common.text import printable
from kmem.common.tree import BUILD, build
from kmem.replay.costs import ASSUMED, modelled_ns, read_costs

# By the KiB of a page.
TOOLS = {
    4: BUILD / "tools" / "replay",
    16: BUILD / "tools" / "replay-16k",
    64: BUILD / "tools" / "replay-64k",
}
TABLE_WIDTH = 110  # columns; a narrower terminal wraps lines, a cut figure is worse
CACHES_SHOWN = 12
FILE_OPTIONS = ("slabinfo", "attrs", "record")

NOTES = (
    "optimum: allocated bytes in whole pages, and the pages of large blocks; overhead: pages beyond"
    " it. Allocated are the bytes asked for; with engine slob its headers and units, as in the mail"
    " that split its list.",
    "waste: rounding to strides, behind the last object of slabs, free objects in slabs on lists of"
    " nodes, free objects that CPUs keep (sheaves, CPU slabs and CPU partial slabs, arrays), and"
    " the allocator's own records with 34 bytes for each page.",
)


def run_tool(
    tool: Path, trace: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The document of a tool that replays, and its lines for people."""
    done = subprocess.run(
        [tool, trace, *arguments],
        capture_output=True,
        text=True,
        errors="replace",  # names of files are bytes
        check=False,
        env=environment,
    )
    lines = done.stderr.splitlines()
    if done.returncode != 0:
        reason = next(filter(None, lines), f"status {done.returncode}")
        kind = BadUsage if done.returncode == BadUsage.status else KmemError
        raise kind(f"replay: {reason.removeprefix('replay: ').removeprefix('kmem: ')}")
    return dict(json.loads(done.stdout)), lines


def complaint(line: str) -> KmemError:
    """What the library said when it started."""
    text = line.removeprefix("kmem: ")
    kind = BadUsage if text.startswith(("option ", "unknown option ")) else KmemError
    return kind(f"replay: {text}")


def run(
    trace: Path,
    arguments: Sequence[str],
    page_kib: int = 4,
    environment: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], str]:
    """The simulation's document, and its line about speed; what else it says is an error."""
    document, (*messages, speed) = run_tool(TOOLS[page_kib], trace, arguments, environment)
    if messages:
        raise complaint(messages[0])
    return document, speed


def add_optimum(state: dict[str, Any], page_bytes: int) -> None:
    """The pages that the bytes would fill without fragments (S7.6)."""
    optimum = -(-state["allocated_bytes"] // page_bytes) + state["large_pages"]
    state["optimum_pages"] = optimum
    state["overhead_percent"] = (
        round(100 * (state["pages"] - optimum) / optimum, 2) if optimum else None
    )


def add_derived(document: dict[str, Any], costs: Mapping[str, float], costs_file: Path) -> None:
    counts = document["counts"]
    for state in (document["end"], document["peak"], *document.get("moments", [])):
        add_optimum(state, document["machine"]["page_bytes"])
    document["overhead_percent"] = document["end"]["overhead_percent"]
    document["peak_overhead_percent"] = document["peak"]["overhead_percent"]
    calls = counts["calls"]
    document["fast_path_share"] = round(1 - counts["slow_calls"] / calls, 6) if calls else None
    if statistics := document.get("statistics"):
        fast = statistics["alloc_fastpath"] + statistics["free_fastpath"]
        seen = fast + statistics["alloc_slowpath"] + statistics["free_slowpath"]
        document["slub_fast_path_share"] = round(fast / seen, 6) if seen else None
    scans = {name: document.get("slob", {}).get(name, 0) for name in ("page_scans", "block_scans")}
    nanoseconds = modelled_ns({**counts, **scans}, costs)
    document["modelled"] = {
        "ns": round(nanoseconds),
        "ns_per_call": round(nanoseconds / calls, 3) if calls else None,
        "costs": "assumed" if costs_file == ASSUMED else str(costs_file),
        "costs_ns": dict(costs),
    }
    del document["whole"]


def state_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Slabs by state and waste by kind, at the end."""
    return [
        (f"slabs: {name.replace('_', ' ')}", f"{count:,}")
        for name, count in document["slabs"].items()
    ] + [
        (f"waste: {name.replace('_', ' ')}", f"{count / 1024:,.1f} KiB")
        for name, count in document["waste_bytes"].items()
    ]


def figures(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The lines of the table, name and value."""
    end, peak, counts = document["end"], document["peak"], document["counts"]
    rows = [
        (f"pages at the {name}", f"{state['pages']:,}  ({state['slab_pages']:,} in slabs)")
        for name, state in (("peak", peak), ("end", end))
    ]
    for name, state in (("peak", peak), ("end", end)):
        overhead = state["overhead_percent"]
        percent = "-" if overhead is None else f"{overhead:.2f}%"
        rows.append((f"over the optimum at the {name}", f"{percent} of {state['optimum_pages']:,}"))
    rows += state_rows(document)
    share = document["fast_path_share"]
    modelled = document["modelled"]
    rows += [
        ("calls", f"{counts['calls']:,}"),
        ("on the fast path", "-" if share is None else f"{100 * share:.2f}%"),
        *(
            [("on the fast path of SLUB itself", f"{100 * slub_share:.2f}%")]
            if (slub_share := document.get("slub_fast_path_share")) is not None
            else []
        ),
        ("compare-and-swaps", f"{counts['compare_swaps']:,}"),
        ("list_lock taken", f"{counts['list_locks']:,}"),
        ("list_lock handed over", f"{counts['list_handed_over']:,}"),
        ("modelled time", f"{modelled['ns'] / 1e6:,.2f} ms  ({modelled['costs']} costs)"),
        ("modelled time of a call", f"{modelled['ns_per_call'] or 0:.1f} ns"),
    ]
    if orphans := document["trace"]["orphans_left_out"]:
        rows.append(("frees of older objects, left out", f"{orphans:,}"))
    return rows


def as_table(document: Mapping[str, Any]) -> Table:
    output = Table(box=SIMPLE, show_header=False)
    output.add_column("", no_wrap=True)
    output.add_column("", justify="right", no_wrap=True)
    for name, value in figures(document):
        output.add_row(name, value)
    return output


def cache_table(caches: Sequence[Mapping[str, Any]]) -> Table:
    """The caches with the most pages."""
    output = Table(title="caches with the most pages", title_justify="left", box=SIMPLE)
    output.add_column("cache", no_wrap=True)
    for heading in ("stride", "order", "in use", "objects", "slabs", "pages"):
        output.add_column(heading, justify="right", no_wrap=True)
    names = ("stride_bytes", "order", "inuse", "objects", "slabs", "pages")
    most = sorted(caches, key=lambda cache: (-cache["pages"], cache["name"]))
    for cache in [cache for cache in most if cache["pages"]][:CACHES_SHOWN]:
        output.add_row(printable(cache["name"]), *(str(cache[name]) for name in names))
    return output


def check_options(texts: Sequence[str]) -> None:
    """Refuses options that have files written: those of a replay would be of the tool itself."""
    for entry in ",".join(texts).replace("\n", ",").split(","):
        if entry.partition("=")[0] in FILE_OPTIONS:
            raise BadUsage(
                f"option {entry}: a replay writes no such file; expected options of the allocator"
            )


def tool_arguments(
    options: str, cpus: int | None, nodes: int | None, repeat: int | None
) -> list[str]:
    given = {"cpus": cpus, "nodes": nodes, "repeat": repeat}
    return [f"{name}={value}" for name, value in given.items() if value is not None] + [
        f"options={options}"
    ]


def show_table(document: Mapping[str, Any], title: str) -> Console:
    output = wide_console(TABLE_WIDTH)
    output.print(title, highlight=False, markup=False, soft_wrap=True)
    output.print(as_table(document))
    if any(cache["pages"] for cache in document["caches"]):
        output.print(cache_table(document["caches"]))
    for note in NOTES:
        output.print(note, highlight=False, markup=False, soft_wrap=True)
    return output


def title_of(trace: Path, machine: Mapping[str, Any]) -> str:
    counts = [
        f"{machine[name]} {what}{'' if machine[name] == 1 else 's'}"
        for name, what in (("cpus", "CPU"), ("nodes", "node"))
    ]
    copies = f", {machine['repeat']} copies" if machine["repeat"] > 1 else ""
    return f"{trace.name} on {', '.join(counts)}{copies}; {machine['options'] or 'default options'}"


def run_recorded(trace: Path, slabinfo: Path, options: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The replay of a trace that a slab table completes, and what compares both."""
    from kmem.replay import recorded
    from kmem.traces import file as tr  # Polars takes its time to load

    work = recorded.Recorded(tr.read_trace(trace), recorded.read_table(slabinfo))
    lacking = sum(work.missing.values())
    if work.trace.objects + lacking > tr.OBJECTS_MOST:
        raise KmemError(
            f"replay: --slabinfo {slabinfo}: {lacking:,} objects that the trace lacks; expected at"
            f" most {tr.OBJECTS_MOST - work.trace.objects:,}"
        )
    tr.check_memory(
        f"replay: --slabinfo {slabinfo}: {lacking:,} objects that the trace lacks",
        trace.stat().st_size + slabinfo.stat().st_size,
        lacking * recorded.FIRST_BYTES,
    )
    # So much was allowed just now, and what was made of it compresses well.
    environment = os.environ | {tr.MEMORY_VARIABLE: str(2**63)}
    arguments = tool_arguments(",".join([*recorded.OPTIONS, *options]), None, None, None)
    speed = ""

    with TemporaryDirectory(prefix="kmem-replay-") as folder:

        def replay(completed: tr.Trace) -> dict[str, Any]:
            nonlocal speed
            file = Path(folder) / "completed.ktrace"
            tr.write_trace(file, completed)
            document, speed = run(file, arguments, environment=environment)
            return document

        plain, document = recorded.complete(work, replay)
    document["recorded"] = recorded.as_document(work, plain, document)
    return document, speed


def show_replay(
    trace: Path,
    *,
    options: Sequence[str],
    cpus: int | None,
    nodes: int | None,
    repeat: int | None,
    slabinfo: Path | None,
    costs_file: Path | None,
    json_file: Path | None,
) -> None:
    if slabinfo and (cpus, nodes, repeat) != (None, None, None):
        raise BadUsage("replay: --slabinfo is for one CPU, so without --cpus, --nodes, --repeat")
    check_options(options)
    build()
    costs_file = costs_file or ASSUMED
    costs = read_costs(costs_file)
    if slabinfo:
        document, speed = run_recorded(trace, slabinfo, options)
    else:
        document, speed = run(trace, tool_arguments(",".join(options), cpus, nodes, repeat))
    add_derived(document, costs, costs_file)
    write_json(json_file, document)
    output = show_table(document, title_of(trace, document["machine"]))
    if slabinfo:
        from kmem.replay import recorded

        recorded.show(document["recorded"], output)
    output.print(speed, highlight=False)
