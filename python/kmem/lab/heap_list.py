# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Real programs whose heaps are the standard set for policies of malloc, and how each is recorded.

A load is small, so that its trace is; scripts/record_heaps.py records them all again.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from kmem.bench.allocators import LIBKMEM, Allocator
from kmem.bench.program_list import PROGRAMS
from kmem.bench.programs import Program, Run, times
from kmem.bench.servers import client
from kmem.bench.timed import RunError, Sample, started
from kmem.bench.web import CONNECTIONS, free_port, under_load, wait_for_port
from kmem.common.errors import KmemError
from kmem.record.program import PROGRAM_TOOL
from kmem.record.tool import run_tool
from kmem.traces import file as tr

HEAPS = Path(tr.__file__).parent / "heaps"
EVENTS_MOST = 75_000  # of a trace that the tree brings; the file then has 200 KB at most

WEB = """\
import http.server, json, signal, sys
from urllib.parse import parse_qs, urlparse

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
ITEMS = {number: {"name": f"item {number}", "tags": [f"t{number % 7}"]} for number in range(200)}

class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = parse_qs(urlparse(self.path).query)
        first = int(query.get("first", ["0"])[0])
        found = [dict(ITEMS[n % 200], number=n) for n in range(first, first + 20)]
        body = json.dumps({"items": found}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Pages).serve_forever()
"""


def python_web(folder: Path, scale: float) -> Run:
    """Python's own server of pages; each answer is JSON of twenty dictionaries."""
    script = folder / "web.py"
    script.write_text(WEB)
    requests = CONNECTIONS * times(scale, 400)

    def fetch(port: int) -> str:
        count = ["-n", str(requests), "-c", str(CONNECTIONS)]
        said = client(["/usr/bin/ab", "-q", *count, f"http://127.0.0.1:{port}/items?first=7"])
        if "Failed requests:        0" not in said or "Non-2xx" in said:
            raise RunError(f"ab: {said.strip()[-200:]}")
        return f"{requests} answers"

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        port = free_port()
        command = ["/usr/bin/python3", "-S", str(script), str(port)]
        with started(folder, command, allocator, extra) as server:
            wait_for_port(server, port)
            return under_load(server, lambda: fetch(port), signal.SIGTERM)

    return run


PYTHON_WEB = Program(
    "python web",
    "a web server in Python that answers with JSON",
    ("python3", "apache2-utils"),
    ("/usr/bin/python3", "/usr/bin/ab"),
    python_web,
    "the server",
)


@dataclass(frozen=True)
class Heap:
    """A program of the set: its load is `recorded` times that of `kmem bench suite`."""

    name: str
    program: Program
    recorded: float
    checked: float  # scale of the load on which a policy is checked

    @property
    def trace(self) -> Path:
        return HEAPS / f"{self.name}.ktrace"


def _program(name: str) -> Program:
    return next(program for program in PROGRAMS if program.name == name)


HEAP_LIST = (
    Heap("redis", _program("redis"), 0.02, 0.3),
    Heap("nginx", _program("nginx"), 0.05, 0.3),
    Heap("postgres", _program("postgres"), 0.05, 0.3),
    Heap("python-web", PYTHON_WEB, 0.1, 1.0),
    Heap("node", _program("node"), 0.05, 0.3),
    Heap("java", _program("java"), 0.05, 0.3),
    Heap("clang", _program("clang++"), 0.01, 0.5),
    Heap("sqlite", _program("sqlite3"), 0.01, 0.3),
)

# Programs that had no part in the errors of a promise (kmem/tune/promise.py), so that they can tell
# whether these hold elsewhere. They have no trace in the tree.
HELD_BACK = (
    Heap("perl", _program("perl"), 0.05, 0.5),
    Heap("gcc", _program("gcc"), 0.05, 0.5),
    Heap("ruby", _program("ruby"), 0.05, 0.5),
    Heap("git", _program("git"), 0.05, 0.5),
    Heap("memcached", _program("memcached"), 0.05, 0.3),
    Heap("haproxy", _program("haproxy"), 0.05, 0.3),
)


def window(trace: tr.Trace, most: int) -> tr.Trace:
    """The middle of a longer trace, with its living objects allocated in front.

    So the window meets a heap of the program's size, though not the holes that it had.
    """
    records = trace.records.with_row_index("row")
    if records.height <= most:
        return trace
    kind = (pl.col("operation") & tr.OPERATION_MASK).is_in([tr.ALLOC, tr.PAGE_ALLOC])
    born = records.filter(kind).select("object", born="row")
    died = records.filter(~kind).select("object", died="row")
    lives = born.join(died, on="object", how="left")
    # The latest begin up to the middle at which living objects leave the window a third.
    alive = records.select(pl.when(kind).then(1).otherwise(-1).cum_sum())[:, 0].to_numpy()
    middle = (records.height - most) // 2
    begin = int(np.flatnonzero(alive[: middle + 1] <= 2 * most // 3)[-1]) + 1
    old = lives.filter((pl.col("born") < begin) & (pl.col("died").fill_null(1 << 62) >= begin))
    left = most - old.height
    first = records.join(old.select("object", "born"), on="object", how="semi").filter(
        kind & (pl.col("row") < begin)
    )
    later = records.filter((pl.col("row") >= begin) & (pl.col("row") < begin + left))
    start = later["time"][0]
    chosen = pl.concat([first, later]).drop("row")
    chosen = chosen.with_columns(
        time=pl.when(pl.col("time") < start)
        .then(0)
        .otherwise(pl.col("time") - start)
        .cast(pl.UInt64)
    )
    numbers = chosen["object"].unique(maintain_order=True)
    new = pl.Series(np.arange(len(numbers), dtype=np.uint32))
    return tr.Trace(
        chosen.with_columns(object=pl.col("object").replace_strict(numbers, new)),
        trace.caches,
        trace.sites,
        len(numbers),
        trace.cpus,
        trace.page_bytes,
        f"{trace.source}; {left} of {records.height} events, from event {begin} on",
    )


def without_sites(trace: tr.Trace) -> tr.Trace:
    """Places in the code are half of such a file, and no policy looks at them."""
    return tr.Trace(
        trace.records.with_columns(site=pl.lit(tr.SITE_UNKNOWN, pl.UInt32)),
        trace.caches,
        trace.sites[:1],
        trace.objects,
        trace.cpus,
        trace.page_bytes,
        trace.source,
    )


def record(heap: Heap, folder: Path, out: Path, most: int | None = EVENTS_MOST) -> None:
    """Run the program under its load, and keep the trace of the process with the most events."""
    if missing := heap.program.missing():
        raise KmemError(f"{heap.name}: {missing[0]} is missing; expected Debian's package of it")
    raw = folder / "raw"
    run = heap.program.prepare(folder, heap.recorded)
    run(LIBKMEM, {"KMEM_OPTIONS": f"record={raw}"})
    found = run_tool(PROGRAM_TOOL, raw)
    process = max(found["processes"], key=lambda one: one["events"])
    whole = folder / "whole.ktrace"
    source = f"scripts/record_heaps.py {heap.name}: {heap.program.stands_for}"
    run_tool(PROGRAM_TOOL, raw, str(process["number"]), whole, source)
    trace = tr.read_trace(whole)
    tr.write_trace(out, without_sites(window(trace, most) if most else trace))
