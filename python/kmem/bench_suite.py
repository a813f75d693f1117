# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench suite`: every workload on every allocator, in interleaved rounds.

The rows are in suite.py and programs.py, what a round is in rounds.py, and how peers are found
and built in peers.py.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from rich.console import Console

from kmem import peers
from kmem.allocators import LIBKMEM, Allocator
from kmem.rounds import Row, check_rounds, measure_rows
from kmem.setup import ROOT, KmemError, build, write_json
from kmem.suite import WORKLOADS, Workload
from kmem.suite_report import OURS, Report, as_document, as_html, show
from kmem.timed import timed_run
from kmem.worker import touch_result_file

TABLE_WIDTH = 130  # columns; a narrower terminal wraps lines, a cut figure is worse
SCALES = (0.0001, 1000.0)  # as the workload programs


def commit() -> str | None:
    """The commit of the tree, with a mark if files differ from it."""
    done = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def words_of(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def choose_rows(only: str | None, names: Sequence[str]) -> list[str]:
    """The rows that match one of the patterns; all without any."""
    if only is None:
        return list(names)
    patterns = words_of(only)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise KmemError(f"bench suite: --only {pattern}: there are {', '.join(names)}")
    return [name for name in names if any(fnmatchcase(name, p) for p in patterns)]


def choose_peers(wanted: str | None) -> list[str]:
    names = peers.names()
    if wanted is None:
        return names
    chosen = words_of(wanted)
    for name in chosen:
        if name not in names:
            raise KmemError(f"bench suite: --peers {name}: there are {', '.join(names)}")
    return [name for name in names if name in chosen]


def workload_row(workload: Workload, folder: Path, cpus: int, scale: float, seed: int) -> Row:
    command = workload.command(cpus, scale, seed)
    return Row(workload.name, workload.stands_for, partial(timed_run, folder, command))


def make_rows(
    chosen: Sequence[str], folder: Path, cpus: int, scale: float, seed: int
) -> tuple[list[Row], dict[str, str]]:
    """The rows, and those that cannot run with the reason."""
    rows: list[Row] = []
    missing: dict[str, str] = {}
    for workload in WORKLOADS:
        if workload.name not in chosen:
            continue
        if not Path(workload.command(cpus)[0]).exists():
            missing[workload.name] = f"{workload.program} was not built; it needs a C++ compiler"
            continue
        rows.append(workload_row(workload, folder, cpus, scale, seed))
    return rows, missing


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
        raise KmemError(f"bench suite: --scale {scale:g}; expected {SCALES[0]:g} to {SCALES[1]:g}")
    chosen_peers = choose_peers(wanted_peers)
    chosen_rows = choose_rows(only, [workload.name for workload in WORKLOADS])
    touch_result_file(json_file)
    touch_result_file(html_file, "--html")
    console, progress = Console(), Console(stderr=True)
    console.width = max(console.width, TABLE_WIDTH)
    build()
    found, missing = peers.find(chosen_peers, progress)
    cpus = len(os.sched_getaffinity(0))
    folder = Path(tempfile.mkdtemp(prefix="kmem-suite-"))
    try:
        rows, missing_rows = make_rows(chosen_rows, folder, cpus, scale, seed)
        allocators: list[Allocator] = [LIBKMEM, *(peer.allocator for peer in found)]
        with progress.status("measuring") as status:
            results = measure_rows(rows, allocators, rounds, seed, lambda what: status.update(what))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    now = commit()
    versions = {OURS: f"commit {now}"} | {peer.allocator.name: peer.version for peer in found}
    options = os.environ.get("KMEM_OPTIONS", "")
    report = Report(
        now, cpus, scale, seed, rounds, options, versions, missing | missing_rows, results
    )
    write_json(json_file, as_document(report))
    if html_file is not None:
        html_file.write_text(as_html(report, bound))
    show(console, report, bound)
    if few := check_rounds(rounds):
        console.print(few, highlight=False)
