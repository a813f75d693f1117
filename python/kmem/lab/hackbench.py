# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tables of `kmem lab order` that need a load: slab memory and time of a hackbench.

The load runs on the simulated machine with pages of 64 KiB. tools/loads/messages.c describes its
work, hackbench_caches.csv its caches and objects. The times are a model: counts of the run, each
multiplied by an assumed cost, and waiting for list locks. The model leaves out the page cache with
its inodes and dentries, memory groups, interrupts and RCU's delay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import RenderableType
from rich.table import Table

from kmem.common.tree import BUILD
from kmem.lab import loads
from kmem.lab.mails import read_mail
from kmem.replay.costs import modelled_ns, read_costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOOL = BUILD / "tools" / "loads-64k"
CACHES = Path(__file__).parent / "hackbench_caches.csv"

# hackbench -s 1024 -l 200 -g 200 -f 25 -P
GROUPS, PAIRS, LOOPS = 200, 25, 200
SOCKET_MESSAGES = 212992 // 2304  # wmem_default divided by a message's room
POSSIBLE_CPUS = 64

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
STATES = {
    "After-boot": "start_kib",
    "After-hotplug": "hotplug_kib",
    "During-hackbench": "during_kib",
    "After-hackbench": "after_kib",
    "After-shrink": "shrunk_kib",
}

NOTES = (
    "a (b) c: as modelled here, in the mail, and the quotient; last column: second by first.",
    "Objects of the start, a process and a socket are assumed from recorded kernels, smaller than"
    " the mail's guest: python/kmem/lab/hackbench_caches.csv; the load is described in"
    " tools/loads/messages.c.",
    "The mail does not name the guest's CPUs: 16 online and 64 possible fit its table of orders and"
    " its second measurement.",
    "During: half of the messages sent, all processes there. The mail does not say when it looked.",
    "After-hackbench: all that the load took is freed. The mail dropped caches before, which gives"
    " back page cache, inodes and dentries, of which the load leaves none; it shrinks no slabs.",
    "After-shrink: kmem_cache_shrink of all caches, which the mail did not do.",
)
TIME_NOTE = (
    "Time: of the allocator alone, counts of the run by assumed costs ({costs} ns), shared by the"
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
    }
    options = (
        "freeze=eager",
        "cpu_partial_accounting=objects",
        "cpu_partial_defaults=seed",
        f"order_rule={rule}",
        f"order_cpus={setting.order_cpus}",
    )
    return loads.run(loads.Load("messages", settings, options, TOOL, CACHES, COSTS_NS))


def modelled_seconds(result: Mapping[str, Any]) -> float:
    """Time of the messages and of the exits."""
    nanoseconds = sum(
        modelled_ns(result[counts], COSTS_NS) + result[counts]["list_wait_ns"]
        for counts in ("counts", "exit_counts")
    )
    return float(nanoseconds / int(result["load_cpus"]) / 1e9)


def run_all(rule: str, groups: int, loops: int) -> dict[str, dict[str, Any]]:
    """Results by name of the setting."""
    results = loads.run_all(
        "hackbench", SETTINGS, lambda setting: run(setting, rule, groups, loops), lambda _: 1
    )
    for result in results:
        result["modelled_seconds"] = modelled_seconds(result)
    return {setting.name: result for setting, result in zip(SETTINGS, results, strict=True)}


def as_document(results: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that `lab order` adds to its result file."""
    return {"costs_ns": COSTS_NS, "load": dict(results)}


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
    """None for the state after a hot-plug that did not take place."""
    if key == "hotplug_kib" and result["boot_cpus"] == result["load_cpus"]:
        return None
    return float(result[key])


def memory_rows(columns: Sequence[str], file: str, results: Mapping[str, Any]) -> list[Row]:
    mail = {row["state"]: row for row in read_mail(file)}
    rows: list[Row] = []
    first, second = columns
    for state, key in STATES.items():
        ours = memory_figure(results[first], key), memory_figure(results[second], key)
        said = mail.get(state)
        if said:
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


def parts(results: Mapping[str, dict[str, Any]]) -> list[RenderableType]:
    """The tables."""
    one = results["current"]
    command = f"hackbench -s 1024 -l {one['loops']} -g {one['groups']} -f {one['pairs']} -P"
    output: list[RenderableType] = [""]
    if (one["groups"], one["loops"]) != (GROUPS, LOOPS):
        output.append(f"scaled down: the mail's load has -l {LOOPS} -g {GROUPS}")
    for columns, prefix, what in (
        (("current", "patched"), "", "16 of 64 CPUs"),
        (("boot_64_cpus", "boot_16_plus_48_hotplugged"), "hotplug_", "64 CPUs, patched"),
    ):
        memory = memory_rows(columns, f"online_cpus_{prefix}slab_memory", results)
        output.append(as_table(f"slab memory, kB; {what}", columns, memory, 0))
        time = time_rows(columns, f"online_cpus_{prefix}hackbench_time", results)
        output.append(as_table(f"{command}; {what}", columns, time, 3))
    return output


def notes() -> list[str]:
    costs = ", ".join(f"{name} {cost:g}" for name, cost in COSTS_NS.items())
    return [*NOTES, TIME_NOTE.format(costs=costs)]


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
