# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem lab`: experiments with slab policies."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kmem.commands.bench import bulk
from kmem.commands.options import (
    HtmlFile,
    JsonFile,
    LabTraces,
    Quick,
    Scheduler,
    Seed,
    TraceMemory,
    file_name,
)
from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import why_not_written

app = typer.Typer(
    help="Run experiments with slab policies and compare them with published figures. The mails "
    "are five that proposed changes to Linux's allocators, with figures (docs/mails.md).",
    no_args_is_help=True,
)


@app.command()
def order(
    table_only: Annotated[
        bool, typer.Option("--table-only", help="Print the table of orders without the simulation.")
    ] = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    size: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Compute a single case, for objects of this many bytes with padding.",
        ),
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs of the case, 1 to 8192.")] = None,
    page_size: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Page size of the case, a power of two from 4096 to 65536; default: 4096",
        ),
    ] = None,
    order_rule: Annotated[
        Literal["6.12", "5.10"] | None,
        typer.Option(
            help="Kernel version of the rule; default: 5.10 for the table, 6.12 for a case"
        ),
    ] = None,
    slub_min_order: Annotated[
        int | None, typer.Option(help="Smallest slab order of the case; default: 0")
    ] = None,
    slub_max_order: Annotated[
        int | None, typer.Option(help="Largest slab order of the case; default: 3")
    ] = None,
    slub_min_objects: Annotated[
        int | None,
        typer.Option(help="Objects that a slab should hold; default: computed from --cpus"),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="Groups of the simulated hackbench, 1 to 10000; default: 200")
    ] = None,
    loops: Annotated[
        int | None,
        typer.Option(
            help="Messages from each sender to each receiver in each of five runs, 1 to 100000000; "
            "default: 40"
        ),
    ] = None,
    quick: Quick = False,
    __: Scheduler = None,
) -> None:
    """Compute the slab orders of the mail on orders, and simulate its hackbench.

    Prints each table beside the mail's. Takes half a minute without --table-only, and some seconds
    with --quick: messages are fewer, and processes are as many. With --size the command computes a
    single case, and prints objects, pages and order of a slab.
    """
    from kmem.lab.hackbench import QUICK_LOOPS
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
    if quick and (table_only or size is not None):
        raise BadUsage("lab order: --quick is for the load, which does not run")
    if quick and loops is not None:
        raise BadUsage("lab order: --quick and --loops exclude each other")
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
    if quick:
        of_load["loops"] = QUICK_LOOPS
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
    """Count the slabs on CPU partial lists under each rule of the mail on accounting."""
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
    __: Scheduler = None,
) -> None:
    """Run engine slob with one, two and three lists of pages, on recorded traces.

    The report compares them at every point of a trace, with the statistics of the mail on SLOB and
    with the other back ends. Equal traces and seed give equal JSON (docs/experiments.md).
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
    __: Scheduler = None,
) -> None:
    """Show the memory that sheaves and arrays of free objects hold back, and the time they save.

    Compares SLUB's sheaves and SLAB's arrays of several capacities with classic lists. Runs for
    more CPUs replay more copies of a trace. Equal traces give equal JSON (docs/experiments.md).
    """
    from kmem.lab.sheaves import show_sheaves

    show_sheaves(traces or [], quick=quick, json_file=json_file, html_file=html_file)


@app.command("cpu-partial")
def cpu_partial(
    quick: Quick = False,
    seed: Seed = 1,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=100,
            help="Run hackbench with N seeds, from --seed on; default: 3, with --quick 1",
        ),
    ] = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    __: Scheduler = None,
) -> None:
    """Compare CPU partial lists that are limited by objects and by slabs, in modelled time.

    Simulates hackbench and netperf on five machines, and prints them beside the 132 rows of the
    mail on accounting. Takes seven minutes on two idle CPUs. Equal seeds give equal JSON
    (docs/experiments.md).
    """
    from kmem.lab.cpu_partial import show_cpu_partial

    show_cpu_partial(quick=quick, seed=seed, seeds=seeds, json_file=json_file, html_file=html_file)


@app.command()
def freeze(
    quick: Quick = False,
    seed: Seed = 1,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=100,
            help="Run with N seeds, from --seed on; default: 10, with --quick 3",
        ),
    ] = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    __: Scheduler = None,
) -> None:
    """Compare eager with delayed freezing of CPU partial slabs on 128 simulated CPUs.

    Prints swaps, list locks and modelled time for messaging and for raw packets beside the mail on
    freezing, with an interval over the seeds. Equal seeds give equal JSON (docs/experiments.md).
    """
    from kmem.lab.freeze import show_freeze

    show_freeze(quick=quick, seed=seed, seeds=seeds, json_file=json_file, html_file=html_file)


@app.command()
def workloads(
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the recorded traces, to compute their figures anew; default: the "
            "stored figures.",
            parser=file_name,
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(help="Share of the recorded runs' loops that the generators make, 0 to 1."),
    ] = 1.0,
    _: TraceMemory = None,
    json_file: JsonFile = None,
) -> None:
    """Compare the workload generators with kernel traces of the real programs, recorded on 2 CPUs.

    Compares shares of caches and sizes, lifetimes, and frees on another CPU. The report names each
    figure that misses its bound. The last tables have recordings of Linux 6.1, 6.12 and 7.2 on
    emulated machines of 4 and 16 CPUs, with lifetimes in events of messages.
    """
    from kmem.lab.workloads import show_workloads

    show_workloads(traces, scale, json_file)


@app.command()
def kernels(
    versions: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="VERSION",
            help="A kernel to run, as 6.1; may be repeated. Default: all of docs/kernels.md.",
        ),
    ] = None,
    quick: Quick = False,
    seed: Seed = 1,
    __: Scheduler = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Run a boot, hackbench, netperf, packets and rings under policies of released kernels.

    Prints the allocator's modelled time, slab memory, and list locks with the time that they are
    held and waited for, side by side. The machine and the loads are equal for all kernels.
    """
    from kmem.lab.kernels import KERNELS, show_kernels

    for version in versions or ():
        if version not in KERNELS:
            raise BadUsage(f"lab kernels: --kernel {version}: expected one of {', '.join(KERNELS)}")
    show_kernels(
        versions or KERNELS, quick=quick, seed=seed, json_file=json_file, html_file=html_file
    )


@app.command()
def ask(
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION", help="capacity, rings, nodes, forks, knee or memory; see above."
        ),
    ],
    quick: Quick = False,
    seed: Seed = 1,
    __: Scheduler = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Answer a question about sheaves with a table, a plot and a paragraph made from the figures.

    capacity: how many objects a sheaf and how many sheaves a barn should hold, by CPUs. rings:
    objects that one CPU allocates and another frees. nodes: from which share of remote frees on
    bypassing the sheaves pays. forks: what fork and exec lose without CPU slabs. knee: where CPUs
    begin to wait for lists and barns. memory: with pages of 64 KiB, and with CPUs plugged in.
    """
    from kmem.lab.ask import show_question

    show_question(question, quick=quick, seed=seed, json_file=json_file, html_file=html_file)


@app.command()
def scale(
    quick: Quick = False,
    seed: Seed = 1,
    __: Scheduler = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Compare operations on machines of up to 256 CPUs with a machine of 2 CPUs.

    The operations are local pairs, bursts, hand-over and births, on one node and on two, under the
    library's own policies, kernel=6.12 and kernel=7.2. Prints modelled time, lines of remote CPUs,
    and locks with the time that they are held and waited for; a row that takes over 1.3 times as
    long names the parts that grew.
    """
    from kmem.lab.scale import show_scale

    show_scale(quick=quick, seed=seed, json_file=json_file, html_file=html_file)


@app.command()
def heaps(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Programs of the set; all without. With --check also perl, gcc, ruby, git, "
            "memcached and haproxy, which had no part in what is said of a promise's errors.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="OPTIONS",
            help="Run the programs themselves, on the defaults, on these options and on the "
            "defaults again, and say what recordings of that load promised.",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=3, max=100, help="Rounds of --check, of three runs each; default: 7"),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Replay recorded heaps of eight real programs under each policy of malloc.

    Shows events, sizes and the live peak of each heap, and pages at the peak, MiB-events and
    modelled time of each policy. With --check the programs run, and what changes of their CPU time
    and peak memory stands beside what replays promised, with intervals (docs/tuning.md).
    """
    from kmem.lab.heaps import show_heaps

    if rounds is not None and check is None:
        raise BadUsage(f"lab heaps: --rounds {rounds} needs --check")
    show_heaps(names or [], check, rounds or 7, json_file)


@app.command()
def boots(json_file: JsonFile = None) -> None:
    """Replay recorded boots of Linux 6.1, 6.12 and 7.2 with option kernel.

    Each boot, on 4 and on 16 CPUs, is replayed with the policies of its own kernel and of the
    others. Compares objects and pages of a slab, limits, and slab pages with the kernel's tables.
    """
    from kmem.lab.boots import show_boots

    show_boots(json_file)


@app.command()
def synth(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SLABINFO",
            help="Slab tables in any form that kmem explain reads, in the order of their times.",
            parser=file_name,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="TRACE", help="Trace to write.", parser=file_name),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Make loads of recorded traces' tables, and compare both."),
    ] = False,
    cpus: Annotated[
        int | None,
        typer.Option(
            min=1, max=8192, help="CPUs of the machine; default: the fewest that the slabs fit."
        ),
    ] = None,
    page_size: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Page size of the machine: 4096, 16384 or 65536; default: the one that fits.",
        ),
    ] = None,
    objects: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000_000,
            help="Most objects of the load; a larger table is made smaller; default: 1000000",
        ),
    ] = None,
    calls: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1_000_000_000,
            help="Calls after the table is reached; default: four for each of its objects.",
        ),
    ] = None,
    seed: Seed = 1,
    quick: Annotated[bool, typer.Option("--quick", help="With --check, three traces.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Make a load whose steady state has the caches, sizes, objects and free share of slab tables.

    The load is a trace, so that policies can be tried on a machine that nobody has (kmem replay,
    kmem tune). With --check the command makes loads of the tables at the end of recorded traces,
    and prints how well they rank policies beside the traces themselves; half a minute on two idle
    CPUs.
    """
    from kmem.explain.facts import PAGE_SIZES
    from kmem.lab.report import show_experiment

    if check:
        if tables or out:
            raise BadUsage("lab synth: --check has tables of its own; expected no SLABINFO, --out")
        for name, changed in (
            ("cpus", cpus is not None),
            ("page-size", page_size is not None),
            ("objects", objects is not None),
            ("calls", calls is not None),
            ("seed", seed != 1),
        ):
            if changed:
                raise BadUsage(f"lab synth: --{name} is for SLABINFO, not for --check")
        from kmem.explain.synth_check import check_report

        show_experiment(lambda: check_report(quick=quick), json_file, None)
        return
    if quick or json_file:
        raise BadUsage(f"lab synth: --{'quick' if quick else 'json'} is for --check")
    if not tables:
        raise BadUsage("lab synth: expected SLABINFO, or --check")
    if out is None:
        raise BadUsage("lab synth: expected --out TRACE, the trace to write")
    if page_size is not None and page_size not in PAGE_SIZES:
        raise BadUsage(f"lab synth: --page-size {page_size}: expected 4096, 16384 or 65536")
    if reason := why_not_written(out):
        raise KmemError(f"lab synth: --out {out}: {reason}; expected a file to write")
    from kmem.explain.synth import OBJECTS_MOST
    from kmem.explain.synth import synth as make

    make(
        tables,
        out,
        cpus=cpus,
        page_bytes=page_size,
        objects_most=objects or OBJECTS_MOST,
        calls=calls,
        seed=seed,
    )


# `kmem bench bulk` measures this machine, and it also is an experiment with a mail's figures.
app.command("bulk")(bulk)


@app.command("all")
def everything(
    quick: Quick = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    __: Scheduler = None,
) -> None:
    """Run every experiment and write a single report.

    Takes five minutes on two idle CPUs; only bulk times this machine.
    """
    from kmem.lab.everything import show_all

    show_all(quick=quick, json_file=json_file, html_file=html_file)


@app.command()
def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the table of costs to FILE, for kmem replay --costs FILE.",
            parser=file_name,
        ),
    ] = None,
) -> None:
    """Measure how long a lock, a swap, a call and the like take on this machine.

    Takes some seconds.
    """
    from kmem.lab.calibrate import show_calibration

    show_calibration(out)
