# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem import`: a trace of the text that another tool has printed (tools/import)."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from kmem.common.errors import KmemError, say
from kmem.common.files import whole, why_not_written
from kmem.common.signals import killed_by_errors
from kmem.common.tree import BUILD, build
from kmem.importing.sources import opened
from kmem.importing.without_events import why_no_events

TOOL = BUILD / "tools" / "import-trace"
LOOK = 0.2  # s between looks at how far the tool is
EXPECTED = (
    "expected kmem events as perf script, perf trace, trace-cmd report, ftrace or babeltrace print"
    " them, a log of mtrace or ltrace, a data file of heaptrack, or a heap profile of jemalloc or"
    " tcmalloc"
)


def place_in(process: int) -> int:
    """The byte of its standard input at which a process reads."""
    try:
        lines = Path(f"/proc/{process}/fdinfo/0").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return int(lines[0].removeprefix("pos:"))


def watch(tool: subprocess.Popen[str], text: IO[bytes]) -> None:
    """Show a bar on a terminal until the tool ends, where the end of the text is known."""
    status = os.fstat(text.fileno())
    console = Console(stderr=True)
    if not console.is_terminal:
        return
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    columns = TextColumn("importing"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=total)
        while tool.poll() is None:
            progress.update(bar, completed=place_in(tool.pid) if total else 0)
            time.sleep(LOOK)


def run_tool(out: Path, place: Path, words: list[str], text: IO[bytes]) -> dict[str, Any]:
    """The tool's figures. Its output is a line, so it never waits for a reader."""
    with killed_by_errors(
        lambda: subprocess.Popen(
            [TOOL, place, *words],
            stdin=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",  # names of files are bytes
        )
    ) as tool:
        watch(tool, text)
        output, errors = tool.communicate()
    if tool.returncode != 0:
        lines = errors.splitlines() or [f"the reader ended with status {tool.returncode}"]
        raise KmemError(lines[-1].removeprefix("kmem: ").replace(str(place), str(out)))
    return dict(json.loads(output))


def first_unreadable(counts: dict[str, Any]) -> str:
    return f"line {counts['first_unreadable']:,}: {counts['reason']}"


def notes(counts: dict[str, Any]) -> list[str]:
    """A line for each thing that the trace lacks, or has by inference."""
    said = {
        "lost": "events lost, by the recording tool's own count",
        "implied": "frees that nobody recorded (bulk calls have no tracepoint): the address was"
        " handed out again",
        "orphans": "frees of objects older than the recording, or got in bulk",
        "bulk": "bulk calls, whose objects the text does not name",
        "hidden": "events left out: the text does not tell their address",
        "failed": "allocations that got nothing and frees of NULL left out",
    }
    lines = [f"{counts[name]:,} {text}" for name, text in said.items() if counts[name]]
    if counts["made_times"]:
        lines.append("the text has no times: each event is a microsecond after the one before")
    if counts["unreadable"]:
        lines.append(
            f"{counts['unreadable']:,} lines cannot be read, the first: {first_unreadable(counts)}"
        )
    return lines


@contextmanager
def place_for(out: Path) -> Iterator[Path]:
    """Where the reader writes the trace, which is then OUT's.

    What is written directly, as a pipe or the target of a link, gets the trace when it is whole:
    the reader has another standard output than this command, and may find no event.
    """
    try:
        with whole(out) as place:
            if place != out:
                yield place
                return
            with TemporaryDirectory(prefix="kmem-") as folder:
                beside = Path(folder) / "trace"
                yield beside
                with beside.open("rb") as trace, out.open("wb") as file:
                    shutil.copyfileobj(trace, file)
    except OSError as error:
        raise KmemError(f"import: {out}: cannot write: {error.strerror}") from None


def import_text(file: Path, out: Path, cpus: int, page_bytes: int) -> None:
    """Write the trace and say what it has; nothing is written if no event can be read."""
    if reason := why_not_written(out):
        raise KmemError(f"import: --out {out}: {reason}; expected a file to write")
    build(TOOL)
    with place_for(out) as place:
        with opened(file) as text:
            source = f"kmem import {file.name}"
            counts = run_tool(out, place, [str(cpus), str(page_bytes), source], text)
        if not counts["events"]:
            if what := why_no_events(file):
                raise KmemError(f"import: {file}: {what}")
            where = first_unreadable(counts) if counts["unreadable"] else "no event"
            raise KmemError(f"import: {file}: {where}; {EXPECTED}")
    say(
        f"{out}: {counts['events']:,} events of {counts['lines']:,} lines:"
        f" {counts['allocations']:,} allocations, {counts['frees']:,} frees,"
        f" {counts['living']:,} objects of {counts['living_bytes']:,} bytes live at the end"
    )
    for line in notes(counts):
        say(line)
