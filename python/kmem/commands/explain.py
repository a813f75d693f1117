# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem explain`: answers from slab tables as people paste them, and from heap profiles."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kmem.commands.options import JsonFile, can_be_written, file_name, process_or_file

app = typer.Typer()


@app.command()
def explain(
    files: Annotated[
        list[Any],
        typer.Argument(
            metavar="PID|FILE",
            help="A process id; or reports with slab tables, in the order of their times; a folder "
            "or a tar like /sys/kernel/slab; heap profiles; - for standard input.",
            parser=process_or_file,
        ),
    ],
    cpus: Annotated[
        int | None,
        typer.Option(
            min=1, max=8192, help="CPUs of the machine; default: those that the slabs fit"
        ),
    ] = None,
    online: Annotated[
        int | None,
        typer.Option(
            min=1, max=8192, help="CPUs online, for the mail on orders; default: those of --cpus"
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="NUMA nodes of the machine; default: as SLUB's line of the boot says, or 1",
        ),
    ] = None,
    page_size: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Page size of the machine: 4096, 16384 or 65536; default: the one that fits",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Caches or call sites that tables show.")] = 20,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Of a process: sample what it allocates for so long, to name call sites; default: "
            "0, the samples that it takes by itself",
        ),
    ] = None,
    json_file: JsonFile = None,
    html_file: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write a page with treemaps to FILE, too.",
            callback=can_be_written,
            parser=file_name,
        ),
    ] = None,
) -> None:
    """Explain slab tables, heap profiles, or a running process: who holds memory, what would help.

    Reads /proc/slabinfo, slabtop, crash's kmem -s, /sys/kernel/slab, the kernel's slabinfo tool,
    reports of the out-of-memory killer and others (docs/explain.md), out of logs and mails; and
    heap profiles of jemalloc, tcmalloc, Go and DHAT, in pprof's format or as text. Of a process on
    libkmem it reads the registry, and says what kmem trim and other options would save.
    """
    from kmem.common.errors import BadUsage

    processes = [one for one in files if isinstance(one, int)]
    if processes:
        if len(files) > 1:
            raise BadUsage("explain: expected a single process id, or files (./7 for a file 7)")
        options = {"cpus": cpus, "online": online, "nodes": nodes, "page-size": page_size}
        for name, value in options.items():
            if value is not None:
                raise BadUsage(f"explain: --{name} is for files, not for process {processes[0]}")
        from kmem.explain.running import explain_process

        explain_process(
            processes[0], seconds=seconds or 0, top=top, json_file=json_file, html_file=html_file
        )
        return
    if seconds is not None:
        raise BadUsage("explain: --seconds is for a process, not for files")
    from kmem.explain.answers import Machine
    from kmem.explain.facts import PAGE_SIZES
    from kmem.explain.show import show

    if page_size is not None and page_size not in PAGE_SIZES:
        raise BadUsage(f"explain: --page-size {page_size}: expected 4096, 16384 or 65536")
    machine = Machine(cpus, online, nodes, page_size)
    show(files, machine, top=top, json_file=json_file, html_file=html_file)
