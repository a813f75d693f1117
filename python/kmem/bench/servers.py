# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Servers under load. Time is measured at the client, CPU time and memory at the server.

Clients run on the C library's malloc.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kmem.bench.allocators import GLIBC, Allocator, library_folder
from kmem.bench.programs import Run, times
from kmem.bench.timed import TIMEOUT, RunError, Sample, Timed, clean_environment, started

START_SECONDS = 30.0

Words = list[str | Path]  # bytes of a command line

# Debian's redis-server is linked with jemalloc, so libc has to be preloaded to serve it.
PRELOADED_GLIBC = replace(GLIBC, library=library_folder() / "libc.so.6")


def client(command: Sequence[str | Path], extra: Mapping[str, str] | None = None) -> str:
    """Run a client; its standard output."""
    try:
        done = subprocess.run(
            command,
            env={**clean_environment(), **(extra or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{Path(command[0]).name} did not end in {TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[-200:]
        raise RunError(f"{Path(command[0]).name} ended with status {done.returncode}: {said}")
    return done.stdout


def wait_until_ready(server: Timed, command: Sequence[str | Path]) -> None:
    """Repeat COMMAND until it succeeds or the server has ended."""
    deadline = time.monotonic() + START_SECONDS
    while server.process.poll() is None:
        done = subprocess.run(
            command,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise RunError(f"{Path(server.name).name} took no connections")
        time.sleep(0.01)
    server.wait()
    raise RunError(f"{Path(server.name).name} ended before it took connections")


# ---- redis --------------------------------------------------------------------------------------


def redis_under(folder: Path, requests: int, load_words: Sequence[str]) -> Run:
    """redis-benchmark on a socket file, without persistence."""
    socket = folder / "redis.sock"
    server = ["/usr/bin/redis-server", "--port", "0", "--unixsocket", str(socket), "--save", ""]
    server += ["--appendonly", "no", "--dir", str(folder), "--logfile", str(folder / "log")]
    ask = ["/usr/bin/redis-cli", "-s", str(socket)]
    load = ["/usr/bin/redis-benchmark", "-s", str(socket), "-q", "-n", str(requests), *load_words]
    load += ["-r", str(requests)]

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        preloaded = PRELOADED_GLIBC if allocator == GLIBC else allocator
        socket.unlink(missing_ok=True)
        with started(folder, server, preloaded, extra) as timed:
            wait_until_ready(timed, [*ask, "-e", "ping"])
            start = time.monotonic()
            said = client(load)
            seconds = time.monotonic() - start
            if "ERR" in said:
                raise RunError(f"redis-benchmark: {said.strip()[-200:]}")
            length = client([*ask, "-e", "llen", "mylist"])
            # An orderly end, so that the process writes its slab table or profile if the caller
            # asked for it.
            client([*ask, "shutdown", "nosave"])
            sample = timed.wait()
        return replace(sample, seconds=seconds, output=length)

    return run


def redis(folder: Path, scale: float) -> Run:
    # A multiple of the pipeline's depth, so that redis-benchmark makes exactly this many requests.
    requests = 16 * times(scale, 6250)
    words = ["-d", "100", "-P", "16", "-c", "20", "-t", "set,get,lpush,hset,zadd"]
    return redis_under(folder, requests, words)


def redis_lists(folder: Path, scale: float) -> Run:
    """Lists and sets that grow and shrink, ranges of lists, and requests of ten keys."""
    requests = 64 * times(scale, 1600)
    words = ["-d", "40", "-P", "64", "-c", "10"]
    words += ["-t", "rpush,lpush,lpop,sadd,spop,lrange_100,mset"]
    return redis_under(folder, requests, words)


# ---- postgres -----------------------------------------------------------------------------------

POSTGRES = Path("/usr/lib/postgresql/15/bin")
POSTGRES_SETTINGS = (
    "listen_addresses=",
    "shared_buffers=16MB",
    "max_connections=20",
    "fsync=off",
    "autovacuum=off",
)
CLIENTS = 4

# Every transaction changes a balance in each of three tables by an equal amount.
BALANCES = """
SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
       (SELECT sum(bbalance) FROM pgbench_branches), (SELECT count(*) FROM pgbench_history)
"""


def as_owner() -> list[str]:
    """postgres refuses to run as root; root runs it as the user postgres."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"]


class Cluster:
    """A database cluster in a folder of its user; each run works on a fresh copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.template = folder / "template"
        self.data = folder / "data"
        self.where = {"PGHOST": str(folder), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")

    def create(self) -> None:
        options = ["-U", "postgres", "-A", "trust", "--no-sync"]
        client([*as_owner(), str(POSTGRES / "initdb"), "-D", str(self.template), *options])
        fill: Words = [POSTGRES / "pgbench", "-i", "-q", "-s", "1"]
        self.serve(self.template, GLIBC, {}, partial(client, fill, self.where))

    def refresh(self) -> None:
        """Copy as that user, so that the user owns the copy."""
        client([*as_owner(), "rm", "-rf", self.data])
        client([*as_owner(), "cp", "-a", self.template, self.data])

    def readable(self, allocator: Allocator) -> Allocator:
        """Give the user a copy of the library; the build's folder may not be readable to them."""
        if allocator.library is None:
            return allocator
        copy = self.folder / f"{allocator.name}.so"
        if not copy.exists():
            shutil.copy(allocator.library, copy)
            copy.chmod(0o755)
        return replace(allocator, library=copy)

    def serve(
        self, data: Path, allocator: Allocator, extra: Mapping[str, str], load: Callable[[], object]
    ) -> Sample:
        """Run a server from its start to its orderly end, with LOAD in between."""
        settings = [word for setting in POSTGRES_SETTINGS for word in ("-c", setting)]
        command: Words = [POSTGRES / "postgres", "-D", data, "-k", self.folder, *settings]
        with started(self.folder, command, self.readable(allocator), extra, as_owner()) as timed:
            wait_until_ready(timed, [POSTGRES / "pg_isready", "-q", "-h", self.folder])
            load()
            lines = (data / "postmaster.pid").read_text().splitlines()
            os.kill(int(lines[0]), signal.SIGINT)
            return timed.wait()


def postgres(folder: Path, scale: float) -> Run:
    """pgbench's own transactions, an equal number from each of four clients."""
    cluster = Cluster(folder)
    cluster.create()
    transactions = times(scale, 500)
    load: Words = [
        POSTGRES / "pgbench",
        "-n",
        "-c",
        str(CLIENTS),
        "-j",
        "2",
        "-t",
        str(transactions),
    ]
    load += ["--random-seed=1"]
    ask: Words = [POSTGRES / "psql", "-X", "-A", "-t", "-q", "-c", BALANCES]

    def run(allocator: Allocator, extra: Mapping[str, str]) -> Sample:
        seconds: list[float] = []
        balances: list[str] = []

        def use() -> None:
            start = time.monotonic()
            client(load, cluster.where)
            seconds.append(time.monotonic() - start)
            balances.append(client(ask, cluster.where).strip())

        cluster.refresh()
        sample = cluster.serve(cluster.data, allocator, extra, use)
        *sums, rows = balances[0].split("|")
        if len(set(sums)) != 1 or int(rows) != CLIENTS * transactions:
            raise RunError(f"postgres: balances and rows of history {balances[0]}")
        return replace(sample, seconds=seconds[0], output=balances[0])

    return run
