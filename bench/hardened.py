#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Print the price of protect=hardened: CPU time and peak memory of real programs by glibc's.

The programs are rows of `kmem bench suite`, and run in turn on glibc's malloc, on libkmem at its
default and with protect=hardened. Other builds of libkmem-malloc.so can be measured beside them:

    make build && scripts/venv bench
    .venv/bin/python bench/hardened.py --build before=/tmp/libkmem-malloc.so
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from kmem.bench.allocators import GLIBC, LIBKMEM, Allocator
from kmem.bench.program_list import PROGRAMS
from kmem.bench.programs import Program, Run
from kmem.bench.rounds import Measured, Row, run_rows
from kmem.bench.timed import Sample

DEFAULT_PROGRAMS = "python3,gcc,sqlite3,perl,redis,nginx"
HARDENED = {"KMEM_OPTIONS": "protect=hardened"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=DEFAULT_PROGRAMS, metavar="NAME,...")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each program")
    parser.add_argument("--scale", type=float, default=1, help="factor for the work")
    parser.add_argument(
        "--build",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="another libkmem-malloc.so, measured with protect=hardened",
    )
    chosen = parser.parse_args()
    names = [program.name for program in PROGRAMS]
    for name in chosen.programs.split(","):
        if name not in names:
            parser.error(f"--programs {name}: there are {', '.join(names)}")
    if chosen.rounds < 1:
        parser.error(f"--rounds {chosen.rounds}: expected 1 or more")
    for build in chosen.build:
        name, _, file = build.partition("=")
        if not name or not Path(file).is_file():
            parser.error(f"--build {build}: expected a name, = and a file that exists")
    return chosen


def row_of(program: Program, run: Run) -> Row:
    """Every allocator but glibc's and the default runs with the option."""

    def run_on(allocator: Allocator) -> Sample:
        plain = allocator in (GLIBC, LIBKMEM)
        return run(allocator, {"KMEM_OPTIONS": ""} if plain else HARDENED)

    return Row(program.name, program.stands_for, run_on, program.memory_of)


def by_glibc(measured: Measured, name: str, rounds: int, value: Callable[[Sample], float]) -> str:
    figures = measured.figures(rounds, value)
    if name not in figures or GLIBC.name not in figures:
        return "-"
    return f"{np.median(figures[name]) / np.median(figures[GLIBC.name]):.2f}"


def main() -> None:
    chosen = arguments()
    allocators = [GLIBC, LIBKMEM, Allocator("hardened", LIBKMEM.library)]
    for build in chosen.build:
        name, _, file = build.partition("=")
        allocators.append(Allocator(name, Path(file).resolve()))
    folder = Path(tempfile.mkdtemp(prefix="kmem-hardened-"))
    folder.chmod(0o755)  # a server's user has to read files in it
    rows = []
    try:
        for program in PROGRAMS:
            if program.name not in chosen.programs.split(","):
                continue
            if files := program.missing():
                sys.exit(f"{files[0]} is missing; packages: {', '.join(program.packages)}")
            own = folder / program.name
            own.mkdir()
            rows.append(row_of(program, program.prepare(own, chosen.scale)))
        with Console(stderr=True).status("measuring") as status:
            results = run_rows(rows, allocators, chosen.rounds, 1, status.update, repeats=0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("CPU time, peak memory", *(row.row.name for row in results))
    for allocator in allocators[1:]:
        cells = []
        for row in results:
            cpu = by_glibc(row, allocator.name, chosen.rounds, lambda s: s.cpu_seconds)
            peak = by_glibc(row, allocator.name, chosen.rounds, lambda s: s.peak_bytes)
            cells.append(f"{cpu}, {peak}")
        table.add_row(allocator.name, *cells)
    Console().print(table)
    for row in results:
        for name, why in row.failures.items():
            print(f"{row.row.name} on {name}: {why}", file=sys.stderr)


main()
