# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench suite`: every workload on every allocator, in interleaved rounds.

suite_rows.py has the rows, peers.py the allocators, rounds.py the order of the runs, and
suite_report.py the printed tables and the result files.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from kmem.bench import peers, suite_rows
from kmem.bench.allocators import LIBKMEM, Allocator
from kmem.bench.crates import check_library
from kmem.bench.rounds import check_rounds, measure_rows
from kmem.bench.suite_report import OURS, Report, as_document, as_html, options_line, show
from kmem.common.errors import BadUsage
from kmem.common.files import write_json, write_result
from kmem.common.tree import ROOT, build

TABLE_WIDTH = 250  # columns; a narrower terminal wraps lines, a cut figure is worse
SCALES = (0.0001, 1000.0)  # limits of the workload programs


def commit() -> str | None:
    """The commit of the tree, with a mark if files differ from it."""
    done = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def own_options() -> str:
    """KMEM_OPTIONS of the caller, which libkmem has in every run."""
    return os.environ.get("KMEM_OPTIONS", "")


def tell_options(console: Console) -> None:
    if options := own_options():
        console.print(options_line(options), highlight=False, markup=False, soft_wrap=True)


def words_of(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def choose_rows(only: str | None, names: Sequence[str]) -> list[str]:
    """The rows that match at least a pattern; without patterns all rows."""
    if only is None:
        return list(names)
    patterns = words_of(only)
    if not patterns:
        raise BadUsage(f"bench suite: --only: expected patterns; there are {', '.join(names)}")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise BadUsage(f"bench suite: --only {pattern}: there are {', '.join(names)}")
    return [name for name in names if any(fnmatchcase(name, p) for p in patterns)]


def choose_peers(wanted: str | None) -> list[str]:
    names = peers.names()
    if wanted is None:
        return names
    chosen = words_of(wanted)
    if not chosen:
        raise BadUsage(f"bench: --peers: expected names; there are {', '.join(names)}")
    for name in chosen:
        if name not in names:
            raise BadUsage(f"bench: --peers {name}: there are {', '.join(names)}")
    return [name for name in names if name in chosen]


def list_rows(only: str | None) -> None:
    """The rows that --only chooses, without running anything."""
    chosen = choose_rows(only, suite_rows.names())
    table = Table("row", "stands for", "Debian packages", box=SIMPLE)
    for name, stands_for, packages in suite_rows.listed():
        if name in chosen:
            table.add_row(name, stands_for, packages)
    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table)


def bench_suite(
    wanted_peers: str | None,
    only: str | None,
    rounds: int,
    scale: float,
    seed: int,
    bound: float,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    if not SCALES[0] <= scale <= SCALES[1]:
        raise BadUsage(f"bench suite: --scale {scale:g}; expected {SCALES[0]:g} to {SCALES[1]:g}")
    chosen_peers = choose_peers(wanted_peers)
    chosen_rows = choose_rows(only, suite_rows.names())
    console, progress = Console(), Console(stderr=True)
    console.width = max(console.width, TABLE_WIDTH)
    build()
    assert LIBKMEM.library is not None
    check_library(LIBKMEM.library)
    found, missing = peers.find(chosen_peers, progress)
    folder = Path(tempfile.mkdtemp(prefix="kmem-suite-"))
    folder.chmod(0o755)  # a server's user has to read files in it
    try:
        rows = suite_rows.prepare(chosen_rows, folder, scale, seed, progress)
        allocators: list[Allocator] = [LIBKMEM, *(peer.allocator for peer in found)]
        with progress.status("measuring") as status:
            results = measure_rows(rows.ready, allocators, rounds, seed, status.update)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    now = commit()
    versions = {OURS: f"commit {now}"} | {peer.allocator.name: peer.version for peer in found}
    options = own_options()
    absent = missing | rows.missing
    hardened = [allocator.name for allocator in allocators if allocator.hardened]
    report = Report(now, scale, seed, rounds, options, versions, absent, results, hardened)
    try:
        write_json(json_file, as_document(report))
        if html_file is not None:
            write_result(html_file, "--html", as_html(report, bound))
    finally:  # a full disk must not take the figures
        show(console, report, bound)
        if few := check_rounds(rounds):
            console.print(few, highlight=False)
