# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem replay`: a trace on the simulated machine, or in real time."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kmem.commands.options import (
    Copies,
    CostsFile,
    Cpus,
    JsonFile,
    Kernel,
    LibraryOptions,
    Nodes,
    TraceMemory,
    file_name,
    options_with,
)
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
    kernel: Kernel = None,
    engine: Annotated[
        Literal["slub", "slab", "slob"] | None,
        typer.Option(help="Back end of all caches; default: slub"),
    ] = None,
    options: LibraryOptions = None,
    cpus: Cpus = None,
    nodes: Nodes = None,
    repeat: Copies = None,
    slabinfo: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="/proc/slabinfo from the end of a boot trace: add the missing objects, and "
            "compare the result with it.",
            parser=file_name,
        ),
    ] = None,
    costs: CostsFile = None,
    real_time: Annotated[
        bool,
        typer.Option(
            "--real-time",
            help="Replay on this machine with a thread for each CPU, at most 1024, instead of the "
            "simulation.",
        ),
    ] = False,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTIONS",
            help="Real time: a further option set to run in turn with --set; may be repeated.",
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Real time: runs of each option set; default: 7")
    ] = None,
    touch: Annotated[
        bool, typer.Option("--touch", help="Real time: write to every byte of each object.")
    ] = False,
    window: Annotated[
        int | None,
        typer.Option(
            help="Real time: events that a thread may be ahead of the others, 1 to 1073741824; "
            "default: 1024"
        ),
    ] = None,
    _: TraceMemory = None,
    json_file: JsonFile = None,
) -> None:
    """Replay a trace on a simulated machine, and print pages, waste, locks and modelled time.

    Equal traces and options give equal JSON, byte for byte. CPUs beyond the trace's own stay idle
    without --repeat. With it, copy K runs on the CPUs after the CPUs of copy K-1, from CPU 0 again
    when none is left, and the copies take their events in turn.

    With --real-time the command prints seconds, events a second and resident memory of the library
    that ships. With --compare it ranks option sets by CPU time, beside their modelled time.
    """
    wanted = options_with("replay", kernel, engine, options)
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
