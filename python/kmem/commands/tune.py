# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem tune`: the search for options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kmem.commands.options import (
    Copies,
    CostsFile,
    Cpus,
    JsonFile,
    Kernel,
    Nodes,
    Scheduler,
    TraceMemory,
    file_name,
    options_with,
)
from kmem.common.errors import say
from kmem.common.sizes import size_text
from kmem.common.tree import need_extra

app = typer.Typer()


@app.command()
def tune(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE", help="Trace files (docs/trace-format.md).", parser=file_name
        ),
    ],
    goal: Annotated[
        Literal["time", "memory", "both"],
        typer.Option(help="Figure to reduce: modelled time, memory, or both."),
    ] = "both",
    trials: Annotated[
        int, typer.Option(min=1, help="Option sets to try, earlier trials of the study included.")
    ] = 100,
    __: Scheduler = None,
    study: Annotated[
        Path,
        typer.Option(metavar="FILE", help="SQLite file that keeps the trials.", parser=file_name),
    ] = Path("kmem-tune.sqlite"),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the search; another seed tries other option sets.")
    ] = 1,
    batch: Annotated[
        int, typer.Option(min=1, help="Option sets that are chosen and replayed at once.")
    ] = 8,
    kernel: Kernel = None,
    engine: Annotated[
        Literal["slub", "slab", "slob"] | None,
        typer.Option(help="Search only options of this back end; default: all back ends"),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTIONS",
            help="Options to keep fixed, NAME=VALUE,...; may be repeated.",
        ),
    ] = None,
    cpus: Cpus = None,
    nodes: Nodes = None,
    repeat: Copies = None,
    _: TraceMemory = None,
    costs: CostsFile = None,
    resident: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            parser=size_text,
            help="Peak resident memory of the program on the defaults (VmHWM), in bytes or with K, "
            "M, G or T: the promise then is a share of it, too.",
        ),
    ] = None,
    cpu_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.000001,
            max=1e9,
            help="CPU time of the program on the defaults, for the promise's share of it.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Search the options of the library that serve TRACEs best (docs/tuning.md).

    Prints the option sets that no other set beats in both time and memory, what the best of them
    promises of the process, and the KMEM_OPTIONS to use. A search repeated with an equal seed finds
    equal options; an interrupted search goes on where it stopped.
    """
    wanted = options_with("tune", kernel, engine, options)
    need_extra("tune")
    from kmem.tune.command import Interrupted
    from kmem.tune.command import tune as search

    try:
        search(
            traces,
            goal=goal,
            trials=trials,
            study_file=study,
            seed=seed,
            batch=batch,
            options=wanted,
            machine={"cpus": cpus, "nodes": nodes, "repeat": repeat},
            costs_file=costs,
            resident_bytes=resident,
            cpu_seconds=cpu_seconds,
            json_file=json_file,
        )
    except Interrupted as reason:
        say(f"tune: {reason}")
        raise typer.Exit(130) from None
