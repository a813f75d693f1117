# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem demo`: real programs on glibc's malloc and on libkmem, side by side.

Each program runs on each allocator in turn, one warm-up and three rounds; the
tables give medians. Every run does the same work from the same input, and its
output must be the same on every allocator.
"""

import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kmem.allocators import GLIBC, LIBKMEM, Allocator, library_folder
from kmem.setup import BUILD, ROOT, KmemError, build, need_packages, with_option

PACKAGES = ("sqlite3", "python3", "gcc", "libc6-dev", "redis-server", "redis-tools")
ROUNDS = 3
INPUTS = ROOT / "bench" / "demo"
TIMED = BUILD / "bench" / "timed"

# Debian's redis-server is linked with jemalloc, so "glibc" has to be preloaded.
PRELOADED_GLIBC = Allocator("glibc", library_folder() / "libc.so.6")
AS_SHIPPED = Allocator("as shipped", None)

SOURCE_FUNCTIONS = 190


@dataclass(frozen=True)
class Sample:
    """One run."""

    seconds: float
    peak_kib: int
    output: str = ""


@dataclass
class Program:
    """A row of the tables. `measure` runs it once, with more environment variables."""

    name: str
    measure: Callable[[Allocator, dict[str, str]], Sample]
    allocators: tuple[Allocator, ...] = (GLIBC, LIBKMEM)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def median(self, allocator: str, value: Callable[[Sample], float]) -> float | None:
        samples = self.samples.get(allocator)
        return statistics.median(map(value, samples)) if samples else None


def environment() -> dict[str, str]:
    """Ours, with nothing preloaded, and Python's objects on malloc."""
    ours = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return ours | {"LC_ALL": "C", "PYTHONMALLOC": "malloc"}


def timed_run(
    folder: Path, command: list[str], allocator: Allocator, extra: dict[str, str]
) -> Sample:
    """One run of a command: time from exec and the peak of its largest process."""
    result = folder / "timed"
    preload = [] if allocator.library is None else ["-p", str(allocator.library)]
    done = subprocess.run(
        [str(TIMED), *preload, str(result), *command],
        env=environment() | extra,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise KmemError(f"{command[0]} on {allocator.name} failed with status {done.returncode}")
    wall_ns, peak_kib = map(int, result.read_text().split())
    return Sample(wall_ns / 1e9, peak_kib, done.stdout)


def sqlite(folder: Path) -> Program:
    command = ["/usr/bin/sqlite3", "-batch", ":memory:", f".read {INPUTS / 'rows.sql'}"]
    return Program("sqlite3", partial(timed_run, folder, command))


def python(folder: Path) -> Program:
    command = ["/usr/bin/python3", "-S", str(INPUTS / "json_regex.py")]
    return Program("python3", partial(timed_run, folder, command))


def c_source() -> str:
    """A large C file: many functions with loops, branches and calls."""
    lines = ["#include <stdint.h>", "struct node { struct node *next; uint64_t key, count[4]; };"]
    for i in range(SOURCE_FUNCTIONS):
        called = f"work_{i - 1}(node->next, steps / 2)" if i % 3 else "steps"
        lines.append(
            f"uint64_t work_{i}(struct node *node, uint64_t steps) {{\n"
            f"  uint64_t sum = {i * 2654435761 % 4294967296}u;\n"
            "  for (uint64_t k = 0; k < steps && node; k++) {\n"
            "    switch ((node->key ^ k) % 7) {\n"
            + "".join(
                f"    case {c}: node->count[{c % 4}] += sum >> {c + i % 11};"
                f" sum = sum * {2 * c + 3} + node->key; break;\n"
                for c in range(6)
            )
            + f"    default: sum ^= {called}; node->key += k;\n"
            "    }\n"
            "    if (sum & 1) node = node->next; else node->count[k & 3] -= sum;\n"
            "  }\n"
            "  return sum;\n"
            "}"
        )
    return "\n".join(lines) + "\n"


def gcc(folder: Path) -> Program:
    source = folder / "large.c"
    source.write_text(c_source())
    command = ["/usr/bin/gcc", "-O1", "-S", "-o", "-", str(source)]
    return Program("gcc -O1", partial(timed_run, folder, command))


def wait_for_redis(path: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(b"PING\r\n")
                if connection.recv(16).startswith(b"+PONG"):
                    return
        except OSError:
            time.sleep(0.005)
    raise KmemError("redis-server did not start")


def peak_kib_of(pid: int) -> int:
    """The largest resident set a running process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise KmemError(f"/proc/{pid}/status has no VmHWM")


@contextmanager
def redis_server(
    folder: Path, allocator: Allocator, extra: dict[str, str]
) -> Iterator[tuple[int, Path]]:
    """A server on a socket file, without persistence; process id and socket."""
    path = folder / "redis.sock"
    path.unlink(missing_ok=True)
    settings = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    settings += ["--dir", str(folder), "--logfile", str(folder / "redis.log")]
    preload = {} if allocator.library is None else {"LD_PRELOAD": str(allocator.library)}
    server = subprocess.Popen(
        ["/usr/bin/redis-server", *settings],
        env=environment() | preload | extra,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for_redis(path, server)
        yield server.pid, path
        # An orderly end, so that the slab table is written.
        server.terminate()
        if server.wait(timeout=20) != 0:
            raise KmemError(
                f"redis-server on {allocator.name} ended with status {server.returncode}"
            )
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def redis(folder: Path) -> Program:
    def measure(allocator: Allocator, extra: dict[str, str]) -> Sample:
        with redis_server(folder, allocator, extra) as (pid, path):
            command = ["/usr/bin/redis-benchmark", "-s", str(path), "-q"]
            command += ["-n", "200000", "-r", "200000", "-d", "100", "-P", "16", "-c", "20"]
            command += ["-t", "set,get,lpush,hset,zadd"]
            start = time.monotonic()
            done = subprocess.run(
                command,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            seconds = time.monotonic() - start
            if done.returncode != 0 or "ERR" in done.stdout:
                raise KmemError(f"redis-benchmark on {allocator.name} failed: {done.stdout}")
            return Sample(seconds, peak_kib_of(pid))

    return Program("redis-server", measure, (AS_SHIPPED, PRELOADED_GLIBC, LIBKMEM))


def run_rounds(console: Console, programs: list[Program], slabinfo: Path) -> None:
    """All rounds of all programs; the very last run writes its slab table."""
    for program in programs:
        outputs = set()
        for number in range(ROUNDS + 1):
            for allocator in program.allocators:
                extra = {}
                if (program, number, allocator) == (programs[-1], ROUNDS, LIBKMEM):
                    extra["KMEM_OPTIONS"] = with_option(f"slabinfo={slabinfo}")
                what = "warm-up" if number == 0 else f"round {number} of {ROUNDS}"
                with console.status(f"{program.name}: {what} on {allocator.name}"):
                    sample = program.measure(allocator, extra)
                outputs.add(sample.output)
                if len(outputs) > 1:
                    raise KmemError(f"{program.name} on {allocator.name} gave another output")
                if number > 0:
                    program.samples.setdefault(allocator.name, []).append(sample)


def table(title: str, programs: list[Program], value: Callable[[Sample], float]) -> Table:
    output = Table(title=title)
    output.add_column("program")
    for heading in ("glibc", "libkmem", "libkmem / glibc", "as shipped"):
        output.add_column(heading, justify="right")
    for program in programs:
        glibc, libkmem = program.median("glibc", value), program.median("libkmem", value)
        shipped = program.median("as shipped", value)
        ratio = f"{libkmem / glibc:.3f}" if glibc and libkmem else "-"
        cells = ["-" if cell is None else f"{cell:.2f}" for cell in (glibc, libkmem)]
        output.add_row(program.name, *cells, ratio, "" if shipped is None else f"{shipped:.2f}")
    return output


def show_slab_table(console: Console, file: Path) -> None:
    """The rows of /proc/slabinfo's format that hold objects."""
    if not file.exists():
        console.print("the library wrote no slab table")
        return
    for line in file.read_text().splitlines():
        words = line.split()
        if not words[2:3] or words[2] != "0":
            console.print(line, soft_wrap=True, highlight=False, markup=False)


def run_demo() -> None:
    console = Console()
    need_packages(*PACKAGES)
    build()
    folder = Path(tempfile.mkdtemp(prefix="kmem-demo-"))
    try:
        programs = [make(folder) for make in (sqlite, python, gcc, redis)]
        run_rounds(console, programs, folder / "slabinfo")
        heading = f"median of {ROUNDS} rounds"
        console.print(table(f"time in seconds, {heading}", programs, lambda s: s.seconds))
        console.print(
            table(f"peak memory in MiB, {heading}", programs, lambda s: s.peak_kib / 1024)
        )
        console.print(
            "redis-server: time of redis-benchmark, memory of the server. Debian links it\n"
            "with jemalloc (as shipped); for glibc, libc itself is preloaded.\n"
            "gcc: memory of its largest process. python3: with PYTHONMALLOC=malloc.\n"
        )
        console.print(f"Slab table of the last run, {programs[-1].name}, rows with objects:")
        show_slab_table(console, folder / "slabinfo")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
