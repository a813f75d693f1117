# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay`: a trace on the simulated machine, or in real time."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kmem.commands.options import CostsFile, JsonFile, TraceMemory, file_name, options_with
from kmem.common.errors import BadUsage

app = typer.Typer()


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
