# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab`: experiments with slab policies."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kmem.commands.bench import bulk
from kmem.commands.options import HtmlFile, JsonFile, LabTraces, Quick, Seed, TraceMemory, file_name
from kmem.common.errors import BadUsage

app = typer.Typer(help="Try slab policies, compare with published figures.", no_args_is_help=True)


@app.command()
def order(
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Only the table of orders, no simulation.")
    ] = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    size: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="One case: bytes from one object to the next."),
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs of the case.")] = None,
    page_size: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Page size of the case; default: 4096")
    ] = None,
    order_rule: Annotated[
        Literal["6.12", "5.10"] | None,
        typer.Option(help="Kernel whose rule counts; default: 5.10 for the table, 6.12 for a case"),
    ] = None,
    slub_min_order: Annotated[
        int | None, typer.Option(help="Least order of the case; default: 0")
    ] = None,
    slub_max_order: Annotated[
        int | None, typer.Option(help="Greatest order of the case; default: 3")
    ] = None,
    slub_min_objects: Annotated[
        int | None, typer.Option(help="Objects wanted in a slab; default: from --cpus")
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="Groups of the simulated hackbench; default: 200")
    ] = None,
    loops: Annotated[
        int | None, typer.Option(help="Messages from each sender to each receiver; default: 200")
    ] = None,
) -> None:
    """Slab orders, and slab memory of a simulated hackbench, beside a mail's tables.

    Takes about half a minute without --table-only. With --size: one case; prints objects, pages
    and order of a slab.
    """
    from kmem.lab.orders import RULE, Case, order_report, show_case
    from kmem.lab.report import show_experiment

    given = {
        "cpus": cpus,
        "page_size": page_size,
        "slub_min_order": slub_min_order,
        "slub_max_order": slub_max_order,
        "slub_min_objects": slub_min_objects,
    }
    of_case = {name: value for name, value in given.items() if value is not None}
    scale = {"groups": groups, "loops": loops}
    of_load = {name: value for name, value in scale.items() if value is not None}
    if of_load and (table_only or size is not None):
        raise BadUsage(f"lab order: --{next(iter(of_load))} is for the load, which does not run")
    if size is not None:
        if table_only:
            raise BadUsage("lab order: --table-only and --size exclude each other")
        if cpus is None:
            raise BadUsage("lab order: --size needs --cpus")
        if html_file is not None:
            raise BadUsage("lab order: --html is for the tables, not for --size")
        case = {"page_size": 4096} | of_case
        show_case(Case(size=size, rule=order_rule or "6.12", **case), json_file)
        return
    for name in of_case:
        option = name.replace("_", "-")
        raise BadUsage(f"lab order: --{option} needs --size; the table has values of its own")
    rule = order_rule or RULE
    show_experiment(
        lambda: order_report(rule, table_only=table_only, **of_load), json_file, html_file
    )


@app.command()
def lists(
    slabs: Annotated[
        int, typer.Option(help="Slabs that the pattern fills and frees, 1 to 4000.")
    ] = 200,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """What CPU partial lists hold under each accounting rule, beside a mail's statement."""
    from kmem.lab.lists import show_lists

    show_lists(slabs, json_file, html_file)


@app.command()
def slob(
    traces: LabTraces = None,
    _: TraceMemory = None,
    quick: Quick = False,
    seed: Seed = 1,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Engine slob with one, two and three lists, at every point of recorded traces.

    Beside the statistics of the mail that split the list, and the other back ends. The same
    traces and seed give the same JSON (docs/experiments.md).
    """
    from kmem.lab.slob import show_slob

    show_slob(traces or [], quick=quick, seed=seed, json_file=json_file, html_file=html_file)


@app.command()
def sheaves(
    traces: LabTraces = None,
    _: TraceMemory = None,
    quick: Quick = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """What SLUB's sheaves and SLAB's arrays cost in slabs and give in time, against classic lists.

    Over capacities and CPUs: more CPUs are more copies of a trace. The same traces give the same
    JSON (docs/experiments.md).
    """
    from kmem.lab.sheaves import show_sheaves

    show_sheaves(traces or [], quick=quick, json_file=json_file, html_file=html_file)


@app.command("cpu-partial")
def cpu_partial(
    quick: Quick = False,
    seed: Seed = 1,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Objects against slabs accounting of CPU partial lists, beside a mail's 132 rows of hackbench.

    Hackbench and netperf on five simulated machines, with modelled time; 2.5 minutes on two
    idle CPUs. The same seed gives the same JSON (docs/experiments.md).
    """
    from kmem.lab.cpu_partial import show_cpu_partial

    show_cpu_partial(quick=quick, seed=seed, json_file=json_file, html_file=html_file)


@app.command()
def freeze(
    quick: Quick = False,
    seed: Seed = 1,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Eager against delayed freezing of CPU partial slabs on 128 simulated CPUs, beside a mail.

    Swaps, list locks and modelled time of messaging and raw packets. The same seed gives the same
    JSON (docs/experiments.md).
    """
    from kmem.lab.freeze import show_freeze

    show_freeze(quick=quick, seed=seed, json_file=json_file, html_file=html_file)


@app.command()
def workloads(
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Read the recorded traces anew from this folder.",
            parser=file_name,
        ),
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Loops of the generators, of those recorded; 0 to 1.")
    ] = 1.0,
    _: TraceMemory = None,
    json_file: JsonFile = None,
) -> None:
    """The workload generators beside kernel traces of the real programs, recorded on 2 CPUs.

    Shares of caches and sizes, lifetimes and frees on another CPU; what misses its bound is named.
    """
    from kmem.lab.workloads import show_workloads

    show_workloads(traces, scale, json_file)


# A measurement of this machine, and one of the mails' experiments.
app.command("bulk")(bulk)


@app.command("all")
def everything(
    quick: Quick = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Every experiment, in one report; takes minutes. bulk alone times this machine."""
    from kmem.lab.everything import show_all

    show_all(quick=quick, json_file=json_file, html_file=html_file)


@app.command()
def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the table here, for kmem replay --costs FILE.",
            parser=file_name,
        ),
    ] = None,
) -> None:
    """Measure what one lock, swap, call and so on takes on this machine; takes some seconds."""
    from kmem.lab.calibrate import show_calibration

    show_calibration(out)
