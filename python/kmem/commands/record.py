# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem record`: traces of programs and of the kernel."""

from pathlib import Path
from typing import Annotated

import typer

from kmem.commands.options import LibraryOptions, file_name

app = typer.Typer(help="Record traces of programs and of the kernel.", no_args_is_help=True)

# Words after the command's own options belong to the recorded command.
RECORDED = {"allow_interspersed_args": False}


@app.command("program", context_settings=RECORDED)
def record_program(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="Program to record, and its arguments.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Trace to write.", parser=file_name)
    ] = Path("program.ktrace"),
    options: LibraryOptions = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Write a trace of every process; further processes go to NAME.N-PID.ktrace.",
        ),
    ] = False,
) -> None:
    """Run COMMAND on libkmem and record its allocations and frees.

    A trace holds the events of a single process. If there are several, the process with the most
    events is written. The exit status is the status of COMMAND.
    """
    from kmem.record.program import record_program

    raise typer.Exit(record_program(command, out, options or [], every=every))


@app.command("kernel", context_settings=RECORDED)
def record_kernel(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="Record until COMMAND ends.", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="N", help="Record for N seconds, at most 86400.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Trace to write.", parser=file_name)
    ] = Path("kernel.ktrace"),
    buffer_kib: Annotated[
        int,
        typer.Option(
            "--buffer", metavar="KIB", min=64, help="Size of each CPU's ring buffer, in KiB."
        ),
    ] = 32768,
) -> None:
    """Record the allocations and frees of the running kernel (kmem tracepoints; needs root).

    Prints how many events were lost, and the share of frees without a partner: bulk calls have no
    tracepoint. The exit status is the status of COMMAND.
    """
    from kmem.record.kernel import record_kernel

    raise typer.Exit(record_kernel(command or [], seconds, out, buffer_kib))


@app.command("recover")
def record_recover(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Folder .kmem-record-* that a recording left behind.",
            parser=file_name,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Trace to write.", parser=file_name)
    ],
    every: Annotated[
        bool, typer.Option("--all", help="Write a trace of each process of a program.")
    ] = False,
) -> None:
    """Make the trace of a recording that was killed or ran out of room.

    The folder is removed once the trace is written; FILE may be on another disk. A recording of the
    kernel can be recovered until the machine is restarted.
    """
    from kmem.record.recover import recover

    recover(folder, out, every=every)
