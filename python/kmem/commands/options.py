# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Arguments and options that several commands have, and how they are read."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kmem.common.errors import BadUsage, KmemError
from kmem.common.files import why_not_written
from kmem.common.sizes import interval_text, size_text
from kmem.common.tree import need_extra


def file_name(text: str) -> Path:
    """An empty text is an error; Path alone would take it for the current folder."""
    if not text:
        raise ValueError("expected a name")
    return Path(text)


def process_or_file(text: str) -> int | Path:
    """Digits are a process id, and all else is a file."""
    if not (text.isascii() and text.isdecimal()):
        return file_name(text)
    if int(text) < 1:
        raise ValueError("expected a process id of 1 or more, or a file")
    return int(text)


LabTraces = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="TRACE",
        help="Trace files; default: the traces in python/kmem/traces.",
        parser=file_name,
    ),
]


SampleInterval = Annotated[
    int | None,
    typer.Option(
        "--interval",
        metavar="BYTES",
        help="Average number of allocated bytes between two samples, 1K to 1T, with K, M, G or T "
        "if wanted; default: that of the program; if it is not sampled yet 512K, or more, chosen "
        "once so that at most about 100 samples come in a second.",
        parser=interval_text,
    ),
]


def allow_memory(text: str | None) -> None:
    """Put the limit into the environment, where readers in C and in other processes look for it."""
    if text is None:
        return
    try:
        size = size_text(text)
    except ValueError as error:
        raise BadUsage(f"--memory {text}: {error}") from None
    os.environ["KMEM_TRACE_MEMORY"] = str(size)


TraceMemory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        callback=allow_memory,
        expose_value=False,
        help="Most memory for the events of a trace, in bytes or with K, M, G or T; default: "
        "128 times the file, at least 256M.",
    ),
]


def spread_runs(context: typer.Context, scheduler: str | None) -> None:
    """Let the command's programs run on a cluster, until the command ends."""
    if scheduler is None:
        return
    need_extra("tune")
    from kmem.common.spread import spread_to

    name = context.command_path.removeprefix("kmem ")
    context.with_resource(spread_to(scheduler, name))


Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        callback=spread_runs,
        expose_value=False,
        help="Address of Dask's scheduler, as tcp://host:8786; default: run on this machine",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Run fewer cases; takes a few seconds.")]
Seed = Annotated[int, typer.Option(min=1, help="Seed for generated and permuted traces.")]
WorkloadSeed = Annotated[
    int,
    typer.Option(min=0, max=2**64 - 1, help="Seed for the orders of runs and for the workloads."),
]


def can_be_written(parameter: typer.CallbackParam, file: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the work starts, not after it."""
    if file is not None and (reason := why_not_written(file)):
        raise KmemError(f"{parameter.opts[0]} {file}: {reason}")
    return file


OUTPUTS = {"--json", "--html", "--out", "--output"}


def may_be_a_file(path: Path) -> bool:
    """Whether a result at this path would be a file; a name that the system refuses is none."""
    try:
        return path.is_file() or not path.exists()
    except OSError:
        return False


def keep_files_apart(parameters: Iterable[Any], values: Mapping[str, Any]) -> None:
    """Refuse a result that would be written over another file of the command line.

    Devices and pipes take several texts.
    """
    earlier: list[tuple[str, bool, str]] = []
    for parameter in parameters:
        is_argument = parameter.param_type_name == "argument"
        name = parameter.metavar if is_argument else parameter.opts[0]
        is_result = not OUTPUTS.isdisjoint(parameter.opts)
        value = values.get(parameter.name)
        for file in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(file, Path) or not may_be_a_file(file):
                continue
            if is_result and str(file) == "-":
                raise BadUsage(f"{name} -: expected the name of a file, as /dev/stdout")
            place = os.path.realpath(file)
            for other, was_result, before in earlier:
                if (is_result or was_result) and place == before:
                    raise BadUsage(f"{name} {file}: expected another file than for {other}")
            earlier.append((name, is_result, place))


def page_can_be_made(parameter: typer.CallbackParam, file: Path | None) -> Path | None:
    """Install the packages for plots, which the figures alone do not need."""
    if can_be_written(parameter, file) is not None:
        need_extra("plots")
    return file


JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the figures to FILE as JSON, too.",
        callback=can_be_written,
        parser=file_name,
    ),
]
LibraryOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTIONS",
        help="Options of the library, NAME=VALUE,...; may be repeated.",
    ),
]
Kernel = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        metavar="VERSION",
        help="Policies of this Linux, as 6.1 (docs/kernels.md); options of --set win.",
    ),
]
Cpus = Annotated[
    int | None,
    typer.Option(
        help="CPUs of the machine, 1 to 8192; default: the trace's, 1 for a program of one thread"
    ),
]
Nodes = Annotated[int | None, typer.Option(help="NUMA nodes of the machine, 1 to 8; default: 1")]
Copies = Annotated[
    int | None,
    typer.Option(
        help="Copies of the trace that run at once, 1 to 65536, each on the CPUs after the copy "
        "before; default: 1"
    ),
]
CostsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Table of costs for modelled time; default: the assumed costs.",
        parser=file_name,
    ),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write a page with plots to FILE, too.",
        callback=page_can_be_made,
        parser=file_name,
    ),
]


def options_with(
    command: str, kernel: str | None, engine: str | None, options: list[str] | None
) -> list[str]:
    """The option sets of --set, after the kernel of --kernel and the engine of --engine."""
    names = {pair.partition("=")[0] for text in options or () for pair in text.split(",")}
    for name, value in (("kernel", kernel), ("engine", engine)):
        if value and name in names:
            raise BadUsage(f"{command}: --{name} {value} and --set {name}= exclude each other")
    return [
        *([f"kernel={kernel}"] if kernel else []),
        *([f"engine={engine}"] if engine else []),
        *(options or []),
    ]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Pid = Annotated[int, typer.Argument(metavar="PID", min=1, help="Process id.")]
