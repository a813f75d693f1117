# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tables of `kmem lab order` that need a load: slab memory and time of a hackbench.

The load runs on the simulated machine with pages of 64 KiB. tools/loads/messages.c describes its
work, lives.c how its processes are forked, exit and are reaped, and hackbench_caches.csv its caches
and objects. Two numbers are fitted, both in the column without the mail's patch: BOOT_TASKS to the
memory after the boot, and the moment of "during" to the memory there. All else is a prediction.

The times are a model: counts of the run, each multiplied by an assumed cost, and waiting for list
locks. The model leaves out the page cache with its inodes and dentries, memory groups and
interrupts.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import RenderableType
from rich.table import Table

from kmem.common.tree import BUILD
from kmem.lab import loads, moments
from kmem.lab.mails import read_mail
from kmem.replay.costs import modelled_ns, read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOOL = BUILD / "tools" / "loads-64k"
CACHES = Path(__file__).parent / "hackbench_caches.csv"

# hackbench -s 1024 -l 200 -g 200 -f 25 -P, five times over, as the mail ran it. Each run passes
# a fifth of the messages here, so that all five pass as many as one of the mail's.
GROUPS, PAIRS, RUNS = 200, 25, 5
MAIL_LOOPS = 200
LOOPS = MAIL_LOOPS // RUNS
QUICK_LOOPS = 4
# A socket takes messages while those in it leave any room: wmem_default, 256 buffers of 896 bytes
# with lines of 128, divided by a message's room and rounded up.
SOCKET_MESSAGES = -(-256 * 896 // 2304)
POSSIBLE_CPUS = 64
# Fitted to the mail's memory after the boot without its patch, 205,760 kB: processes that were
# there at once in the boot and are gone. They leave slabs on the lists of all CPUs.
BOOT_TASKS = 1100
# Fits are compared with the mail's quotients to this distance.
NEAR = 0.1

# Only engine slob scans lists, and the load does not use it, so costs of scans are left out.
COSTS_NS = {name: cost for name, cost in read_costs().items() if name not in loads.NO_CLOCK}


@dataclass(frozen=True)
class Setting:
    """A column of the mail's tables: a machine and a kernel."""

    name: str  # in JSON
    order_cpus: str  # which CPUs slab orders count; online is the mail's patch
    boot_cpus: int
    load_cpus: int


SETTINGS = (
    Setting("current", "possible", 16, 16),
    Setting("patched", "online", 16, 16),
    Setting("boot_64_cpus", "online", 64, 64),
    Setting("boot_16_plus_48_hotplugged", "online", 16, 64),
)
HEADINGS = {
    "current": "current",
    "patched": "patched",
    "boot_64_cpus": "64 at boot",
    "boot_16_plus_48_hotplugged": "16 + 48 later",
}
DURING = "During-hackbench"
STATES = {
    "After-boot": "start_kib",
    "After-hotplug": "hotplug_kib",
    "During-hackbench": "during_kib",
    "During, as they end": "ending_kib",
    "After-hackbench": "after_kib",
    "After-shrink": "shrunk_kib",
}

# What the mail calls a state that has two names here.
MAIL_STATES = {"During, as they end": DURING}

PAIRS_OF_COLUMNS = (
    (("current", "patched"), "", "16 of 64 CPUs"),
    (("boot_64_cpus", "boot_16_plus_48_hotplugged"), "hotplug_", "64 CPUs, patched"),
)
# Moments of the table of the whole load.
MOMENTS: tuple[moments.Moment, ...] = (
    ("forked", 0.0),
    ("forked", 0.25),
    ("forked", 0.5),
    ("forked", 1.0),
    ("messages", 0.25),
    ("messages", 0.5),
    ("ended", 0.5),
    ("ended", 0.9),
    ("ended", 1.0),
)
# Each process has at least one of these, with a hashed page table: the mail's own sizes.
LEAST = ("thread_stack", "task_struct", "pgtable-2^8", "pgtable-2^11")

NOTES = (
    "a (b) c: as modelled here, in the mail, and the quotient; last column: second by first.",
    "Fitted, both to the column `current` alone: {boot_tasks:,} processes that were there in the"
    " boot, to After-boot, and the moment of During-hackbench. Every other figure is a prediction.",
    "During: {moment}, mean of the {runs} runs. The mail does not say when it looked. {least}",
    "Objects of the start, a process and a socket: python/kmem/lab/hackbench_caches.csv has the"
    " source of each; the load is described in tools/loads/messages.c and lives.c.",
    "The mail does not name the guest's CPUs: 16 online and 64 possible fit its table of orders and"
    " its second measurement.",
    "The mail says of During that it is of five runs, so the load is run five times; later runs"
    " begin with the slabs that earlier ones left on the lists of CPUs.",
    "After-hackbench: all that the load took is freed. The mail dropped caches before, which gives"
    " back page cache, inodes and dentries, of which the load leaves none; it shrinks no slabs.",
    "After-shrink: kmem_cache_shrink of all caches, which the mail did not do.",
)
TIME_NOTE = (
    "Time: of the allocator alone, counts of all runs by assumed costs ({costs} ns), shared by the"
    " CPUs, with waiting for list locks; a model until costs are calibrated. The mail's is all of"
    " hackbench: only the last column compares."
)


def run(setting: Setting, rule: str, groups: int, loops: int) -> dict[str, Any]:
    """Options of a kernel without sheaves that limits CPU partial lists by objects (5.10)."""
    settings: dict[str, int | str] = {
        "possible": POSSIBLE_CPUS,
        "boot_cpus": setting.boot_cpus,
        "load_cpus": setting.load_cpus,
        "groups": groups,
        "pairs": PAIRS,
        "loops": loops,
        "capacity": SOCKET_MESSAGES,
        "task": "process",
        "lives": 1,
        "runs": RUNS,
        "boot_tasks": BOOT_TASKS,
    }
    options = (
        "freeze=eager",
        "cpu_partial_accounting=objects",
        "cpu_partial_defaults=seed",
        f"order_rule={rule}",
        f"order_cpus={setting.order_cpus}",
    )
    result = loads.run(loads.Load("messages", settings, options, TOOL, CACHES, COSTS_NS))
    result["half_kib"] = result.pop("during_kib")
    result["curve"] = moments.as_columns(result["curve"])
    return result


def modelled_seconds(result: Mapping[str, Any]) -> float:
    """Time of the messages and of the exits, and of the forks of all runs but the first."""
    nanoseconds = sum(
        modelled_ns(result[counts], COSTS_NS) + result[counts]["list_wait_ns"]
        for counts in ("counts", "exit_counts")
    )
    return float(nanoseconds / int(result["load_cpus"]) / 1e9)


def mail_memory(name: str, state: str) -> float | None:
    """A figure of the mail in KiB."""
    for columns, prefix, _ in PAIRS_OF_COLUMNS:
        if name in columns:
            for row in read_mail(f"online_cpus_{prefix}slab_memory"):
                if row["state"] == MAIL_STATES.get(state, state):
                    return mail_figure(row, f"{name}_kb")
    return None


def find_share(results: Mapping[str, Mapping[str, Any]], phase: str) -> float | None:
    """When `current` has what the mail read during hackbench; None if it has not in the phase."""
    kib = mail_memory("current", DURING)
    assert kib is not None
    return moments.fit_share(results["current"]["curve"], phase, kib)


def set_moments(results: Mapping[str, dict[str, Any]]) -> None:
    """The memory while processes are forked, and while they end if that comes down so far."""
    forked, ended = (find_share(results, phase) for phase in ("forked", "ended"))
    for result in results.values():
        curve = result["curve"]
        result["forked_share"] = forked
        result["ended_share"] = ended
        share = 1.0 if forked is None else forked
        result["during_kib"] = round(moments.mean_at(curve, ("forked", share)))
        if ended is not None:
            result["ending_kib"] = round(moments.mean_at(curve, ("ended", ended)))
        result["moments_kib"] = [round(moments.mean_at(curve, moment)) for moment in MOMENTS]


def run_all(rule: str, groups: int, loops: int) -> dict[str, dict[str, Any]]:
    """Results by name of the setting."""
    results = loads.run_all(
        "hackbench", SETTINGS, lambda setting: run(setting, rule, groups, loops), lambda _: 1
    )
    named = {setting.name: result for setting, result in zip(SETTINGS, results, strict=True)}
    for result in results:
        result["modelled_seconds"] = modelled_seconds(result)
    set_moments(named)
    return named


def quotients(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Second column by first, here and in the mail, for each state that both have."""
    rows = []
    for columns, _, _ in PAIRS_OF_COLUMNS:
        for state, key in STATES.items():
            ours = [memory_figure(results[name], key) for name in columns]
            mail = [mail_memory(name, state) for name in columns]
            if None in (*ours, *mail):
                continue
            one, other = (second / first for first, second in (ours, mail))  # type: ignore[operator]
            row = {"pair": columns[1], "state": state, "ours": one, "mail": other}
            rows.append(row | {"near": abs(one - other) <= NEAR})
    return rows


def least_kib() -> float:
    """Slab memory that the mail's processes cannot do without, all of them alive."""
    with CACHES.open(encoding="utf-8") as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        sizes = {row["cache"]: int(row["size"]) for row in lines}
    return GROUPS * 2 * PAIRS * sum(sizes[cache] for cache in LEAST) / 1024


def as_document(results: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `lab order` adds to its result file."""
    return {
        "costs_ns": COSTS_NS,
        "load": dict(results),
        "quotients": quotients(results),
        "least_kib": least_kib(),
    }


def cell(ours: float | None, mail: float | None, digits: int) -> str:
    """libkmem's figure, the mail's and their quotient, as far as they exist."""
    if ours is None:
        return "-"
    if mail is None:
        return f"{ours:.{digits}f} (-)     "
    return f"{ours:.{digits}f} ({mail:.{digits}f}) {ours / mail:.2f}"


def quotient(figures: Sequence[float | None]) -> str:
    first, second = figures
    return "-" if first is None or second is None else f"{second / first:.3f}"


Row = tuple[str, tuple[float | None, float | None], tuple[float | None, float | None]]


def as_table(title: str, columns: Sequence[str], rows: Sequence[Row], digits: int) -> Table:
    """Rows of a label, libkmem's two figures and the mail's."""
    output = Table(title=title, title_justify="left", box=SIMPLE)
    output.add_column("", no_wrap=True)
    for column in columns:
        output.add_column(HEADINGS[column], justify="right", no_wrap=True)
    output.add_column("second / first", justify="right", no_wrap=True)
    for label, ours, mail in rows:
        cells = [cell(one, other, digits) for one, other in zip(ours, mail, strict=True)]
        output.add_row(label, *cells, f"{quotient(ours)} ({quotient(mail)})")
    return output


def mail_figure(row: Mapping[str, str], name: str) -> float | None:
    return None if row[name] == "-" else float(row[name])


def memory_figure(result: Mapping[str, Any], key: str) -> float | None:
    """None for a state after a hot-plug that did not take place, or that no moment has."""
    if key not in result or (key == "hotplug_kib" and result["boot_cpus"] == result["load_cpus"]):
        return None
    return float(result[key])


def memory_rows(columns: Sequence[str], file: str, results: Mapping[str, Any]) -> list[Row]:
    mail = {row["state"]: row for row in read_mail(file)}
    rows: list[Row] = []
    first, second = columns
    for state, key in STATES.items():
        ours = memory_figure(results[first], key), memory_figure(results[second], key)
        said = mail.get(MAIL_STATES.get(state, state))
        if said and (any(ours) or state not in MAIL_STATES):
            figures = mail_figure(said, f"{first}_kb"), mail_figure(said, f"{second}_kb")
            rows.append((state, ours, figures))
        elif any(ours):
            rows.append((state, ours, (None, None)))
    return rows


def time_rows(columns: Sequence[str], file: str, results: Mapping[str, Any]) -> list[Row]:
    (said,) = read_mail(file)
    first, second = columns
    return [
        (
            "seconds (ours: of the allocator)",
            (results[first]["modelled_seconds"], results[second]["modelled_seconds"]),
            (mail_figure(said, f"{first}_s"), mail_figure(said, f"{second}_s")),
        )
    ]


def moment_rows(results: Mapping[str, dict[str, Any]]) -> Table:
    """Memory through the load, and where the mail's figures lie."""
    output = Table(
        title="slab memory through the load, kB, mean of the runs", title_justify="left", box=SIMPLE
    )
    output.add_column("", no_wrap=True)
    for name in results:
        output.add_column(HEADINGS[name], justify="right", no_wrap=True)
    for number, (phase, share) in enumerate(MOMENTS):
        figures = [result["moments_kib"][number] for result in results.values()]
        output.add_row(f"{share:.0%} {phase}", *map(str, figures))
    mail = [mail_memory(name, DURING) for name in results]
    output.add_row("the mail, during", *(f"{figure:.0f}" for figure in mail if figure))
    return output


def quotient_line(rows: Sequence[Mapping[str, Any]]) -> str:
    far = [f"{row['state']} of {HEADINGS[row['pair']]}" for row in rows if not row["near"]]
    line = f"{len(rows) - len(far)} of {len(rows)} quotients of memory within {NEAR} of the mail's"
    return line + (f"; not {', '.join(far)}" if far else "")


def parts(results: Mapping[str, dict[str, Any]]) -> list[RenderableType]:
    """The tables."""
    one = results["current"]
    command = f"hackbench -s 1024 -l {one['loops']} -g {one['groups']} -f {one['pairs']} -P"
    output: list[RenderableType] = [""]
    if (one["groups"], one["loops"]) != (GROUPS, LOOPS):
        output.append(f"scaled down: the mail's load has -l {MAIL_LOOPS} -g {GROUPS}")
    for columns, prefix, what in PAIRS_OF_COLUMNS:
        memory = memory_rows(columns, f"online_cpus_{prefix}slab_memory", results)
        output.append(as_table(f"slab memory, kB; {what}", columns, memory, 0))
        time = time_rows(columns, f"online_cpus_{prefix}hackbench_time", results)
        output.append(as_table(f"{RUNS} times {command}; {what}", columns, time, 3))
    return [*output, moment_rows(results), quotient_line(quotients(results))]


def least_note() -> str:
    """Which of the mail's figures have no room for all processes."""
    full = [
        HEADINGS[setting.name]
        for setting in SETTINGS
        if (mail_memory(setting.name, "After-boot") or 0) + least_kib()
        > (mail_memory(setting.name, DURING) or 0)
    ]
    return (
        f"All {GROUPS * 2 * PAIRS:,} processes were not there then: their {', '.join(LEAST)} alone"
        f" take {least_kib():.0f} kB, more than the mail's growth since the boot in"
        f" {', '.join(full)}."
    )


def moment_text(results: Mapping[str, Mapping[str, Any]]) -> str:
    forked, ended = (results["current"][f"{phase}_share"] for phase in ("forked", "ended"))
    if forked is None:
        return "all processes forked (the load is too small for the mail's memory)"
    text = f"when {forked:.1%} of the processes have been forked"
    return text if ended is None else f"{text}, and when {ended:.1%} of them have ended"


def notes(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    costs = ", ".join(f"{name} {cost:g}" for name, cost in COSTS_NS.items())
    words = {
        "boot_tasks": BOOT_TASKS,
        "runs": RUNS,
        "moment": moment_text(results),
        "least": least_note(),
    }
    return [*(note.format(**words) for note in NOTES), TIME_NOTE.format(costs=costs)]


def plot_curve(results: Mapping[str, dict[str, Any]], panels: Sequence[Axes]) -> None:
    """Slab memory by modelled time, and the mail's figures as lines."""
    for axes, (columns, _, what) in zip(panels, PAIRS_OF_COLUMNS, strict=True):
        for number, name in enumerate(columns):
            curve = results[name]["curve"]
            seconds = [ns / 1e9 for ns in curve["ns"]]
            mib = [kib / 1024 for kib in curve["slab_kib"]]
            axes.plot(seconds, mib, color=f"C{number}", label=HEADINGS[name])
            mail = mail_memory(name, DURING) or 0
            axes.axhline(mail / 1024, color=f"C{number}", linestyle="--", linewidth=0.8)
        axes.set_title(f"{what}; dashed: the mail, during", fontsize="small")
        axes.set_xlabel("modelled seconds")
        axes.set_ylabel("slab memory, MiB")
        axes.legend(fontsize="small")


def plot_memory(results: Mapping[str, dict[str, Any]], panels: Sequence[Axes]) -> None:
    """Slab memory in each state, of all settings."""
    (axes,) = panels
    height = 0.8 / len(results)
    for number, (name, result) in enumerate(results.items()):
        figures = [(memory_figure(result, key) or 0) / 1024 for key in STATES.values()]
        places = [place + number * height for place in range(len(STATES))]
        axes.barh(places, figures, height, label=HEADINGS[name])
    axes.set_yticks([place + 0.4 for place in range(len(STATES))], list(STATES))
    axes.invert_yaxis()
    axes.set_xlabel("slab memory, MiB")
    axes.legend(fontsize="small")
