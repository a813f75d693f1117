# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem explain`: answers from slab tables as people paste them."""

from pathlib import Path
from typing import Annotated

import typer

from kmem.commands.options import JsonFile, can_be_written, file_name

app = typer.Typer()


@app.command()
def explain(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Reports with slab tables, in the order of their times; a folder or a tar like "
            "/sys/kernel/slab; - for standard input.",
            parser=file_name,
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
    nodes: Annotated[int, typer.Option(min=1, max=1024, help="NUMA nodes of the machine.")] = 1,
    page_size: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Page size of the machine: 4096, 16384 or 65536; default: the one that fits",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Caches that tables show.")] = 20,
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
    """Explain slab tables: who holds memory, what is waste, what other kernels would make of it.

    Reads /proc/slabinfo, slabtop, crash's kmem -s, /sys/kernel/slab, the kernel's slabinfo tool,
    reports of the out-of-memory killer and others (docs/explain.md), out of logs and mails.
    """
    from kmem.common.errors import BadUsage
    from kmem.explain.answers import Machine
    from kmem.explain.facts import PAGE_SIZES
    from kmem.explain.show import show

    if page_size is not None and page_size not in PAGE_SIZES:
        raise BadUsage(f"explain: --page-size {page_size}: expected 4096, 16384 or 65536")
    machine = Machine(cpus, online, nodes, page_size)
    show(files, machine, top=top, json_file=json_file, html_file=html_file)
