# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem import` and `kmem export`: traces from other tools' recordings, and as tables."""

from pathlib import Path
from typing import Annotated

import typer

from kmem.commands.options import TraceMemory, file_name

app = typer.Typer()


@app.command("import")
def import_recording(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Recording of another tool, plain or packed; - for standard input.",
            parser=file_name,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="TRACE", help="Trace to write.", parser=file_name)
    ],
    cpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65536,
            help="CPUs of the recorded machine; default: as the recording says, or as many as "
            "have events.",
        ),
    ] = None,
    page_size: Annotated[
        int, typer.Option(metavar="BYTES", help="Page size of the machine: 4096, 16384 or 65536.")
    ] = 4096,
) -> None:
    """Make a trace of a recording that another tool made: of a kernel, or of a program's heap.

    Reads kmem events of Linux 2.6.32 to 7.2 as perf script, perf trace, trace-cmd report, ftrace
    and babeltrace print them, perf.data and trace.dat where perf and trace-cmd are there, logs of
    mtrace and ltrace, data of heaptrack, and heap profiles of jemalloc and tcmalloc
    (docs/importing.md). The form is recognised by itself.
    """
    from kmem.common.errors import BadUsage
    from kmem.importing.text import import_text

    if page_size not in (4096, 16384, 65536):
        raise BadUsage(f"import: --page-size {page_size}: expected 4096, 16384 or 65536")
    import_text(file, out, cpus or 0, page_size)


@app.command()
def export(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE", help="Trace file (docs/trace-format.md).", parser=file_name
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Table to write; its name ends in .parquet or .csv.",
            parser=file_name,
        ),
    ],
    _: TraceMemory = None,
) -> None:
    """Write a trace as a table with a row for each event, for other tools."""
    from kmem.importing.table import export

    export(trace, out)
