# SPDX-License-Identifier: Apache-2.0 OR MIT
"""All commands, in the order of the help."""

from typing import Annotated

import typer

from kmem.commands import bench, explain, importing, lab, processes, record, replay, tune

app = typer.Typer(
    help="Linux slab allocators for programs: run programs on libkmem and measure it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def show_version(wanted: bool) -> None:
    if wanted:
        raise AssertionError("the launcher handles --version")


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Print the version and exit."
        ),
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


# Commands of a part without a name are commands of kmem itself.
for part in (processes, explain, importing, replay, tune):
    app.add_typer(part.app)
for name, group in {"bench": bench, "lab": lab, "record": record}.items():
    app.add_typer(group.app, name=name)
