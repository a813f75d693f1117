# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The rows of `kmem bench suite`: workloads of our own (workloads.py) and real programs."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from kmem.bench.program_list import PROGRAMS
from kmem.bench.programs import Program, Run
from kmem.bench.rounds import Row
from kmem.bench.timed import RunError, timed_run
from kmem.bench.workloads import WORKLOADS
from kmem.common.errors import KmemError
from kmem.common.tree import need_packages


@dataclass
class Rows:
    """The rows that can run, and the reason for each row that cannot."""

    ready: list[Row] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def names() -> list[str]:
    return [workload.name for workload in WORKLOADS] + [program.name for program in PROGRAMS]


def listed() -> list[tuple[str, str, str]]:
    """Name, kind of work and Debian packages of each row."""
    own = [(workload.name, workload.stands_for, "") for workload in WORKLOADS]
    return own + [(p.name, p.stands_for, " ".join(p.packages)) for p in PROGRAMS]


def add_workloads(rows: Rows, chosen: Sequence[str], folder: Path, scale: float, seed: int) -> None:
    cpus = len(os.sched_getaffinity(0))
    for workload in WORKLOADS:
        if workload.name not in chosen:
            continue
        command = workload.command(cpus, scale, seed)
        if Path(command[0]).exists():
            run = partial(timed_run, folder, command)
            rows.ready.append(Row(workload.name, workload.stands_for, run))
        else:
            rows.missing[workload.name] = "its program was not built; it needs a C++ compiler"


def program_row(program: Program, run: Run) -> Row:
    return Row(
        program.name,
        program.stands_for,
        lambda allocator: run(allocator, {}),
        program.memory_of,
    )


def add_programs(
    rows: Rows, chosen: Sequence[str], folder: Path, scale: float, report: Callable[[str], None]
) -> None:
    for program in PROGRAMS:
        if program.name not in chosen:
            continue
        if files := program.missing():
            packages = ", ".join(program.packages)
            rows.missing[program.name] = f"no {files[0]}; Debian packages {packages}"
            continue
        report(f"preparing {program.name}")
        own = folder / program.name
        own.mkdir()
        try:
            run = program.prepare(own, scale)
        except RunError as error:
            rows.missing[program.name] = str(error)
            continue
        rows.ready.append(program_row(program, run))


def need_programs(chosen: Sequence[str], progress: Console) -> None:
    """Ask for the missing packages of the chosen programs, all at once."""
    absent = [program for program in PROGRAMS if program.name in chosen and program.missing()]
    if packages := [name for program in absent for name in program.packages]:
        try:
            need_packages(*packages)
        except KmemError:
            progress.print("going on without them")


def prepare(
    chosen: Sequence[str], folder: Path, scale: float, seed: int, progress: Console
) -> Rows:
    """The chosen rows, in the order of names(). FOLDER holds their input and output."""
    rows = Rows()
    need_programs(chosen, progress)
    add_workloads(rows, chosen, folder, scale, seed)
    with progress.status("preparing") as status:
        add_programs(rows, chosen, folder, scale, status.update)
    return rows
