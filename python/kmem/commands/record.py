# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem record`: traces of programs and of the kernel."""

from pathlib import Path
from typing import Annotated

import typer

from kmem.commands.options import file_name

app = typer.Typer(help="Record traces of programs and of the kernel.", no_args_is_help=True)

# What follows the command's own options belongs to the recorded command.
RECORDED = {"allow_interspersed_args": False}


@app.command("program", context_settings=RECORDED)
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


@app.command("kernel", context_settings=RECORDED)
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
    from kmem.record.kernel import record_kernel

    raise typer.Exit(record_kernel(command or [], seconds, out, buffer_kib))


@app.command("recover")
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
    from kmem.record.recover import recover

    recover(folder, out, every=every)
