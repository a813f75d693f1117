# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands. Each imports what it needs when it is called."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from kmem.allocators import Engine
from kmem.setup import KmemError

app = typer.Typer(
    help="Linux slab allocators for programs: run programs on libkmem and measure it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure the allocator.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kmem {version('kmem')}")
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
    from kmem.demo import run_demo

    run_demo()


@bench.command()
def micro(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to FILE too.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=30, help="Rounds of each allocator.")] = 60,
) -> None:
    """Time single operations beside other allocators, in one interleaved run."""
    from kmem.micro import bench_micro

    bench_micro(rounds, json_file)


@bench.command()
def bulk(
    engine: Annotated[Engine, typer.Option(help="The back end to measure.")] = Engine.SLUB,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures to FILE too.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=30, help="Rounds of each setting.")] = 60,
) -> None:
    """Time bulk calls beside the mail that brought kfree_bulk; takes some seconds."""
    from kmem.bulk import bench_bulk

    bench_bulk(engine, rounds, json_file)


def start() -> int:
    """Run the command line; errors for the user are one line."""
    try:
        app(prog_name="kmem")
    except KmemError as error:
        print(f"kmem: {error}", file=sys.stderr)
        return 1
    return 0
