# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands. Each imports what it needs when it is called."""

import errno
import os
import re
import signal
import sys
import tomllib
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import ValidationError
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError

from kmem.bench.allocators import Engine
from kmem.common.errors import BadUsage, KmemError, say
from kmem.common.files import why_not_written
from kmem.common.signals import end_as_by_ctrl_c
from kmem.common.tree import ROOT, need_extra

app = typer.Typer(
    help="Linux slab allocators for programs: run programs on libkmem and measure it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure the allocator.", no_args_is_help=True)
app.add_typer(bench, name="bench")
lab = typer.Typer(help="Try slab policies, compare with published figures.", no_args_is_help=True)
app.add_typer(lab, name="lab")
record = typer.Typer(help="Record traces of programs and of the kernel.", no_args_is_help=True)
app.add_typer(record, name="record")
# What follows the command's own options belongs to the recorded command.
RECORDED = {"allow_interspersed_args": False}


def show_version(wanted: bool) -> None:
    if wanted:
        document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        typer.echo(f"kmem {document['project']['version']}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    pass


@app.command(add_help_option=False)
def run() -> None:
    """Run a program on libkmem (kmem run --help)."""
    raise AssertionError("the launcher handles run")


@app.command()
def demo() -> None:
    """Run real programs on glibc's malloc and on libkmem; takes about two minutes."""
    from kmem.bench.demo import run_demo

    run_demo()


def file_name(text: str) -> Path:
    """Path alone makes the current folder of an empty text."""
    if not text:
        raise ValueError("expected a name")
    return Path(text)


LabTraces = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[TRACE]...",
        help="Trace files; default: those of python/kmem/traces.",
        parser=file_name,
    ),
]


def allow_memory(text: str | None) -> None:
    """For all readers of traces: those in C, also of other processes, look into the environment."""
    if text is None:
        return
    match = re.fullmatch(r"([1-9][0-9]{0,18})([KMGT]?)", text.upper(), re.ASCII)
    size = int(match[1]) << 10 * ("", *"KMGT").index(match[2]) if match else 0
    if not 0 < size < 1 << 64:
        raise BadUsage(f"--memory {text}: expected a number of bytes, with K, M, G or T if wanted")
    os.environ["KMEM_TRACE_MEMORY"] = str(size)


TraceMemory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        callback=allow_memory,
        expose_value=False,
        help="Memory that a trace may take; default: 128 times its file, 256M at least.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer cases: a look in a few seconds.")]
Seed = Annotated[int, typer.Option(min=1, help="Of what is made up or permuted.")]
WorkloadSeed = Annotated[
    int, typer.Option(min=0, max=2**64 - 1, help="Of the orders and of the workloads.")
]


def can_be_written(parameter: typer.CallbackParam, file: Path | None) -> Path | None:
    """Said before the work whose result it is for, not after."""
    if file is not None and (reason := why_not_written(file)):
        raise KmemError(f"{parameter.opts[0]} {file}: {reason}")
    return file


def page_can_be_made(parameter: typer.CallbackParam, file: Path | None) -> Path | None:
    """Its plots need packages that the figures do without."""
    if can_be_written(parameter, file) is not None:
        need_extra("plots")
    return file


JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the figures to FILE too.",
        callback=can_be_written,
        parser=file_name,
    ),
]
CostsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Costs of what is counted; default: assumed ones.",
        parser=file_name,
    ),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write a page with plots to FILE too.",
        callback=page_can_be_made,
        parser=file_name,
    ),
]


def options_with(command: str, engine: str | None, options: list[str] | None) -> list[str]:
    """The option sets of --set, after that of --engine."""
    names = {pair.partition("=")[0] for text in options or () for pair in text.split(",")}
    if engine and "engine" in names:
        raise BadUsage(f"{command}: --engine {engine} and --set engine= exclude each other")
    return ([f"engine={engine}"] if engine else []) + (options or [])


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Pid = Annotated[int, typer.Argument(metavar="PID", min=1, help="Process id.")]


@app.command()
def ps(as_json: AsJson = False) -> None:
    """List the processes that run on libkmem: your own, or as root all."""
    from kmem.live.tables import show_processes

    show_processes(as_json=as_json)


@app.command()
def info(
    process: Pid,
    cache: Annotated[str | None, typer.Argument(metavar="[CACHE]", help="One cache only.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the slab table of a running process, in the format of /proc/slabinfo.

    Objects are active that the back end has handed out: to the program, or to per-CPU sheaves.
    """
    from kmem.live.tables import show_info

    show_info(process, cache, as_json=as_json)


# A value below zero is refused as a value, with what was expected.
@app.command(context_settings={"ignore_unknown_options": True})
def attr(
    process: Pid,
    name: Annotated[
        str, typer.Argument(metavar="CACHE/NAME", help="An attribute, as kmalloc-64/cpu_partial.")
    ],
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", help="Write this; without it, read.")
    ] = None,
    effective: Annotated[
        bool, typer.Option("--effective", help="Read the value in force, not the one asked for.")
    ] = False,
) -> None:
    """Read or write an attribute of a cache in a running process (docs/attributes.md).

    A written value is in force from the process's next refill or drain on.
    """
    from kmem.live.tables import read_attribute, write_attribute

    if value is None:
        read_attribute(process, name, in_force=effective)
    elif effective:
        raise BadUsage("attr: --effective is for reading")
    else:
        write_attribute(process, name, value)


@app.command()
def trim(process: Pid) -> None:
    """Make a running process give back the memory that it does not use."""
    from kmem.live.tables import trim

    trim(process)


@app.command()
def profile(
    process: Pid,
    outputs: Annotated[
        list[Path],
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="NAME.pb.gz (pprof) or NAME.svg; may be repeated.",
            parser=file_name,
        ),
    ],
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="How long; Ctrl-C ends it earlier.")
    ] = 10,
    interval: Annotated[
        int, typer.Option("--interval", metavar="BYTES", help="A sample in so many on average.")
    ] = 512 << 10,
    view: Annotated[
        Literal["live", "rate"],
        typer.Option(help="What the picture shows: bytes in use, or allocated in the time."),
    ] = "live",
    slices: Annotated[
        int,
        typer.Option(
            "--slices",
            metavar="PERCENT",
            min=0,
            max=50,
            help="For so much of the time no call is served from a sheaf, and what was allocated is"
            " estimated from that: it sees sites that never leave a sheaf.",
        ),
    ] = 0,
) -> None:
    """Profile the heap of a running process by samples (docs/profiles.md).

    In use is what was allocated since sampling began and is not freed; a program that begins with
    option profile_interval=BYTES is sampled from its start.
    """
    from kmem.live.profile import profile

    profile(process, seconds=seconds, interval=interval, slices=slices, outputs=outputs, view=view)


@app.command()
def top(
    process: Annotated[
        int | None, typer.Argument(metavar="[PID]", min=1, help="Process id; without: choose.")
    ] = None,
    delay: Annotated[
        float, typer.Option("--delay", "-d", metavar="SECONDS", help="Between two looks.")
    ] = 1.0,
    sort: Annotated[
        str, typer.Option("--sort", "-s", metavar="KEY", help="The key that sorts caches so.")
    ] = "c",
    once: Annotated[bool, typer.Option("--once", "-o", help="Print one table.")] = False,
) -> None:
    """Watch the caches of a running process, or all processes on libkmem.

    Keys sort: c size, g growth, w waste, o objects, a active objects, u use, s object size,
    l slabs, v active slabs, b objects per slab, p pages per slab, n name. Enter shows a cache's
    attributes, or a process's caches; Escape goes back, q ends.
    """
    from kmem.live.top import show_top

    show_top(process, delay=delay, order=sort, once=once)


@app.command()
def serve(
    port: Annotated[int, typer.Option("--port", help="TCP port on 127.0.0.1; 0: any.")] = 9745,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Between two looks.")
    ] = 1.0,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let the page change attributes.")
    ] = False,
) -> None:
    """Serve Prometheus metrics and a page with live charts, on this machine only.

    Whoever has an account on the machine can read them. Changes need the address as it is
    printed, with its token.
    """
    from kmem.live.serve import show_service

    show_service(port, interval, allow_writes=allow_writes)


@app.command()
def replay(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE", help="Trace file (docs/trace-format.md).", parser=file_name
        ),
    ],
    engine: Annotated[
        Literal["slub", "slab", "slob"] | None,
        typer.Option(help="The back end of all caches; default: slub"),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTIONS", help="Options of the library; may be repeated."),
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(help="CPUs of the machine; default: as many as the trace has")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Memory nodes; default: 1")] = None,
    repeat: Annotated[
        int | None,
        typer.Option(help="Copies of the trace at once, each on the next CPUs; default: 1"),
    ] = None,
    slabinfo: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="/proc/slabinfo at the end of a boot trace: complete the trace by it, compare.",
            parser=file_name,
        ),
    ] = None,
    costs: CostsFile = None,
    real_time: Annotated[
        bool,
        typer.Option(
            "--real-time",
            help="On this machine, with a thread for each CPU, instead of a simulated one.",
        ),
    ] = False,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTIONS",
            help="Real time: these beside those of --set, in turn; may be repeated.",
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Real time: runs of each set; default: 7")
    ] = None,
    touch: Annotated[
        bool, typer.Option("--touch", help="Real time: write to all bytes of each object.")
    ] = False,
    window: Annotated[
        int | None,
        typer.Option(help="Real time: events by which a thread may be ahead; default: 1024"),
    ] = None,
    _: TraceMemory = None,
    json_file: JsonFile = None,
) -> None:
    """Replay a trace on a simulated machine: pages, waste, locks, modelled time.

    The same trace and options give the same JSON, byte for byte. CPUs beyond those of the trace
    have something to do only with --repeat: copy K uses the CPUs after those of copy K-1, all
    over again from CPU 0 when there are no more, and copies take their events in turn.

    With --real-time: seconds, events a second and resident memory of the library that ships; with
    --compare option sets are ranked by CPU time, beside their modelled time.
    """
    wanted = options_with("replay", engine, options)
    if real_time:
        from kmem.replay.real_time import show_real_time

        for name, value in (("nodes", nodes), ("repeat", repeat), ("slabinfo", slabinfo)):
            if value is not None:
                raise BadUsage(f"replay: --{name} is for the simulated machine, not --real-time")
        if costs and not compare:
            raise BadUsage("replay: --costs with --real-time needs --compare, which models times")
        show_real_time(
            trace,
            options=wanted,
            compared=compare or [],
            cpus=cpus,
            window=window,
            rounds=rounds or 7,
            touch=touch,
            costs_file=costs,
            json_file=json_file,
        )
        return
    for name, given in (
        ("compare", compare or None),
        ("rounds", rounds),
        ("touch", touch or None),
        ("window", window),
    ):
        if given is not None:
            raise BadUsage(f"replay: --{name} needs --real-time")
    from kmem.replay.simulated import show_replay

    show_replay(
        trace,
        options=wanted,
        cpus=cpus,
        nodes=nodes,
        repeat=repeat,
        slabinfo=slabinfo,
        costs_file=costs,
        json_file=json_file,
    )


@app.command()
def tune(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...", help="Trace files (docs/trace-format.md).", parser=file_name
        ),
    ],
    goal: Annotated[
        Literal["time", "memory", "both"], typer.Option(help="What is to be little.")
    ] = "both",
    trials: Annotated[
        int, typer.Option(min=1, help="Option sets to try, those tried earlier included.")
    ] = 100,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Dask's scheduler, as tcp://host:8786; default: here"),
    ] = None,
    study: Annotated[
        Path,
        typer.Option(metavar="FILE", help="SQLite file with what was tried.", parser=file_name),
    ] = Path("kmem-tune.sqlite"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed searches another way.")] = 1,
    batch: Annotated[
        int, typer.Option(min=1, help="Sets that are chosen, and replayed, at once.")
    ] = 8,
    engine: Annotated[
        Literal["slub", "slab", "slob"] | None,
        typer.Option(help="Search the options of this back end only."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTIONS", help="Options that stay; may be repeated."),
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="As for replay.")] = None,
    nodes: Annotated[int | None, typer.Option(help="As for replay.")] = None,
    repeat: Annotated[int | None, typer.Option(help="As for replay.")] = None,
    _: TraceMemory = None,
    costs: CostsFile = None,
    json_file: JsonFile = None,
) -> None:
    """Search the options of the library that serve TRACEs best (docs/tuning.md).

    Prints the sets that none beats in time and memory at once, and the KMEM_OPTIONS to use. The
    same command with the same seed finds the same; interrupted, it goes on where it was.
    """
    wanted = options_with("tune", engine, options)
    need_extra("tune")
    from kmem.tune.search import Interrupted
    from kmem.tune.search import tune as search

    try:
        search(
            traces,
            goal=goal,
            trials=trials,
            scheduler=scheduler,
            study_file=study,
            seed=seed,
            batch=batch,
            options=wanted,
            machine={"cpus": cpus, "nodes": nodes, "repeat": repeat},
            costs_file=costs,
            json_file=json_file,
        )
    except Interrupted as reason:
        say(f"tune: {reason}")
        raise typer.Exit(130) from None


@record.command("program", context_settings=RECORDED)
def record_program(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The program and its arguments.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The trace to write.", parser=file_name)
    ] = Path("program.ktrace"),
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTIONS", help="Options of the library; may be repeated."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Write traces of all processes, the others to NAME.N-PID.ktrace."
        ),
    ] = False,
) -> None:
    """Run COMMAND on libkmem and record what it allocates and frees.

    A trace is of one process: of several the one with the most events is written. The exit status
    is the command's.
    """
    from kmem.record.program import record_program

    raise typer.Exit(record_program(command, out, options or [], every=every))


@record.command("kernel", context_settings=RECORDED)
def record_kernel(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND]", help="Record until COMMAND ends.", show_default=False
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="N", help="Record for N seconds.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The trace to write.", parser=file_name)
    ] = Path("kernel.ktrace"),
    buffer_kib: Annotated[
        int,
        typer.Option("--buffer", metavar="KIB", min=64, help="Ring buffer of each CPU, in KiB."),
    ] = 32768,
) -> None:
    """Record what the running kernel allocates and frees (kmem tracepoints; root).

    Says how many events were lost, and what share of frees is unpaired because bulk calls have no
    tracepoint. The exit status is that of COMMAND.
    """
    from kmem.record.program import record_kernel

    raise typer.Exit(record_kernel(command or [], seconds, out, buffer_kib))


@record.command("recover")
def record_recover(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A .kmem-record-* that a recording left.", parser=file_name
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The trace to write.", parser=file_name)
    ],
    every: Annotated[
        bool, typer.Option("--all", help="A trace of each process of a program.")
    ] = False,
) -> None:
    """Make the trace of a recording whose command was killed, or had no room for it.

    The folder goes when the trace is there; FILE may be on another disk. A kernel's recording can
    be read until the machine is started anew.
    """
    from kmem.record.program import recover

    recover(folder, out, every=every)


@bench.command()
def micro(
    peers: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Allocators beside libkmem; default: all."),
    ] = None,
    json_file: JsonFile = None,
    rounds: Annotated[int, typer.Option(min=30, help="Rounds of each allocator.")] = 60,
) -> None:
    """Time single operations beside other allocators, in one interleaved run; some minutes."""
    from kmem.bench.micro import bench_micro

    bench_micro(peers, rounds, json_file)


@bench.command()
def bulk(
    engine: Annotated[Engine, typer.Option(help="The back end to measure.")] = Engine.SLUB,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    rounds: Annotated[int, typer.Option(min=30, help="Rounds of each setting.")] = 60,
) -> None:
    """Time bulk calls beside the mail that brought kfree_bulk; takes some seconds."""
    from kmem.lab.bulk import bench_bulk

    bench_bulk(engine, rounds, json_file, html_file)


@bench.command(name="profile")
def bench_profile(
    json_file: JsonFile = None,
    rounds: Annotated[int, typer.Option(min=1, help="Windows of each setting, at least 11.")] = 80,
    window: Annotated[float, typer.Option(help="Seconds of a window, 0.1 to 10.")] = 0.4,
    seed: Annotated[int, typer.Option(min=0, help="Of the order in which they take turns.")] = 1,
) -> None:
    """What sampling costs a running program, switched on and off; takes some minutes."""
    from kmem.bench.profile_cost import bench_profile

    bench_profile(rounds, window, seed, json_file)


@bench.command()
def suite(
    peers: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Allocators beside libkmem; default: all."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="PATTERN,...", help="Rows to run, as 'server*,redis'; default: all."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of each row; bounds need at least 7.")
    ] = 7,
    scale: Annotated[
        float, typer.Option(help="Times the work of each row; 1 is about 0.5 to 3 s a run.")
    ] = 1,
    seed: WorkloadSeed = 1,
    bound: Annotated[
        float, typer.Option(min=1, help="Ratio to a row's best above which a row is listed.")
    ] = 1.25,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Run workloads and programs on libkmem and its peers, in interleaved rounds.

    Time and peak memory as ratios to the best of each row, with geometric means. All rows on all
    allocators take about an hour.
    """
    from kmem.bench.suite import bench_suite

    bench_suite(peers, only, rounds, scale, seed, bound, json_file, html_file)


@bench.command("start")
def start_up(
    peers: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Allocators beside libkmem and glibc; default: all."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each allocator.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the order in which they take turns.")] = 1,
    json_file: JsonFile = None,
) -> None:
    """Time and peak memory of /bin/true on each allocator, over glibc's; takes some seconds."""
    from kmem.bench.start_up import bench_start

    bench_start(peers, runs, seed, json_file)


@bench.command()
def watch(
    rounds: Annotated[
        int, typer.Option(min=1, help="Windows watched, and beside each its others; at least 11.")
    ] = 300,
    rate: Annotated[float, typer.Option(help="Polls a second.")] = 1000,
    window: Annotated[float, typer.Option(help="Seconds of a window, 0.01 to 10.")] = 0.1,
    seed: WorkloadSeed = 1,
    json_file: JsonFile = None,
) -> None:
    """Measure what a program pays for being watched from another CPU; takes some minutes."""
    from kmem.bench.watch import bench_watch

    bench_watch(rounds, rate, window, seed, json_file)


@lab.command()
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


@lab.command()
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


@lab.command()
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


@lab.command()
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


@lab.command("cpu-partial")
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


@lab.command()
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


@lab.command()
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
lab.command("bulk")(bulk)


@lab.command("all")
def everything(
    quick: Quick = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Every experiment, in one report; takes minutes. bulk alone times this machine."""
    from kmem.lab.everything import show_all

    show_all(quick=quick, json_file=json_file, html_file=html_file)


@lab.command()
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


def command_path(words: Sequence[str]) -> str:
    """The command that words of a command line name, as `kmem lab order`."""
    path, command = "kmem", typer.main.get_command(app)
    for word in words:
        commands = getattr(command, "commands", {})
        if word not in commands:
            break
        path, command = f"{path} {word}", commands[word]
    return path


EXPECTED = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


def wrong_value(error: typer.BadParameter) -> str:
    """The option or argument, its value, and what was expected."""
    parameter = error.param
    if not isinstance(error.__cause__, ValidationError) or parameter is None:
        return error.format_message()
    wrong = error.__cause__.errors()[0]
    name = parameter.get_error_hint().split(" / ")[0].strip("'[].")
    if wrong["type"] in EXPECTED:
        expected = "expected " + EXPECTED[wrong["type"]].format(**wrong.get("ctx", {}))
    else:
        reason = wrong["msg"].removeprefix("Value error, ").rstrip(".")
        expected = reason.replace(f"{wrong['input']!r} is not one of", "expected one of")
    return f"{name} {str(wrong['input'])!r}: {expected}"


def as_line(error: typer.TyperException) -> str:
    """What is wrong with the command line, in the manner of the other messages."""
    path = command_path(sys.argv[1:])
    if isinstance(error, typer.BadParameter) and not isinstance(error, MissingParameter):
        text = wrong_value(error)
    else:
        text = error.format_message().rstrip(".")
        text = f"{text[:1].lower()}{text[1:]} ({path} --help says what there is)"
    return ": ".join([*filter(None, [path[len("kmem ") :]]), text])


def run_command() -> int:
    """Run the command line; errors for the user are one line. The exit status."""
    try:
        # What a command returns is its exit status, if it raised typer.Exit.
        status = app(prog_name="kmem", standalone_mode=False)
    except NoArgsIsHelpError as error:  # which has printed it
        return error.exit_code
    except typer.TyperException as error:
        say(as_line(error))
        return error.exit_code
    except KmemError as error:
        say(str(error))
        return error.status
    return status if isinstance(status, int) else 0


def output_fails() -> bool:
    """Whether what was printed cannot be written: it is in the buffer still."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def start() -> int:
    """Run the command line and write what it printed; the exit status."""
    # Else the programs that it waits for would go on, and its folders stay.
    end_as_by_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    # Names of files, processes and caches may have letters that the locale has not.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return run_command()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        if not output_fails():  # no more processes, descriptors or memory
            say(str(error.strerror))
            return 1
        # What is left in its buffer cannot be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        # A reader that has seen enough is no error.
        if error.errno != errno.EPIPE:
            say(f"standard output: {error.strerror}")
        return 1
