# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem tune`: the search for options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kmem.commands.options import CostsFile, JsonFile, TraceMemory, file_name, options_with
from kmem.common.errors import say
from kmem.common.tree import need_extra

app = typer.Typer()


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
    from kmem.tune.command import Interrupted
    from kmem.tune.command import tune as search

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
