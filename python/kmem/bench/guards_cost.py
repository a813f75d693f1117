# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench guards`: how much sampled guards slow a server down, and the memory that they take.

The server is redis under a steady load that fills it first. While it runs, this module switches
guards on and off from outside. Time is cut into windows. A round has a window of each setting, in a
newly drawn order, so that other load on the machine disturbs all settings alike. Throughput is the
number of commands that the server has processed for each second of its own CPU time, so that a load
that is slower than the server does not hide a cost.
"""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import typer

from kmem.bench.watched import Window, watched, windows_in_turn
from kmem.common.errors import BadUsage, KmemError
from kmem.common.figures import median_of_ratios
from kmem.common.files import write_json
from kmem.common.tree import build
from kmem.live.registry.file import Registry
from kmem.live.registry.heap import Guards, read_guards
from kmem.live.registry.requests import WAIT_SECONDS, answer, ask
from kmem.live.watch import resident_bytes

SETTLE_SECONDS = 0.05  # seconds after a change
FILL_SECONDS = 15.0  # until every key is there
KEYS = 50_000
# Sets that are overwritten, hashes and sorted sets of many keys, in short turns.
LOAD = ("-d", "100", "-P", "16", "-c", "20", "-n", "4000", "-l", "-q", "-r", str(KEYS))
COMMANDS = "set,get,hset,zadd,sadd,incr"


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[bytes]
    registry: Registry
    socket: socket.socket

    def commands(self) -> int:
        """Commands processed so far."""
        text = b""
        try:
            self.socket.sendall(b"INFO stats\r\n")
            while b"total_commands_processed:" not in text or not text.endswith(b"\r\n"):
                received = self.socket.recv(65536)
                if not received:
                    raise ConnectionResetError("it was closed")
                text += received
        except OSError as error:
            raise KmemError(f"bench guards: the connection to redis: {error}") from None
        return int(text.split(b"total_commands_processed:")[1].split(b"\r")[0])

    def cpu_seconds(self) -> float:
        """CPU time of the process; the number of its clock is clock_getcpuclockid(3)'s."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def set_rate(self, rate: int) -> None:
        done = answer(self.registry, ask(self.registry, 0, "guard_sampling", str(rate)),
                      WAIT_SECONDS)  # fmt: skip
        if done is None or done[0] != 0:
            raise KmemError(f"bench guards: rate {rate} was not set: {done}")

    def guards(self) -> Guards:
        guards = read_guards(self.registry)
        assert guards is not None
        return guards


@contextlib.contextmanager
def loaded(cpus: list[int]) -> Iterator[Server]:
    """The server on the last CPU, and its load on the others."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "redis.sock"
        words = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
        words += ["--dir", directory, "--logfile", str(Path(directory) / "log")]
        with watched(
            "bench guards: redis", ["/usr/bin/redis-server", *words], cpus[-1], writable=True
        ) as (process, registry):
            load = subprocess.Popen(
                ["/usr/bin/taskset", "--cpu-list", ",".join(map(str, cpus[:-1] or cpus)),
                 "/usr/bin/redis-benchmark", "-s", str(path), *LOAD, "-t", COMMANDS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(str(path))
                    time.sleep(FILL_SECONDS)
                    yield Server(process, registry, connection)
                if load.poll() is not None:
                    raise KmemError(f"bench guards: redis-benchmark ended with {load.returncode}")
            finally:
                load.kill()
                load.wait()


def one_window(server: Server, rate: int, seconds: float) -> Window:
    """Commands for each second of CPU time, with one guard in that many allocations, 0: none.

    The second figure is the guards for each command, from the change of the rate on.
    """
    made, commands = server.guards().made, server.commands()
    server.set_rate(rate)
    time.sleep(SETTLE_SECONDS)
    before, start = server.commands(), server.cpu_seconds()
    time.sleep(seconds)
    after, end = server.commands(), server.cpu_seconds()
    if start == end:
        return 0.0, 0.0
    of_load = after - before - 1  # without the question for the first number
    return of_load / (end - start), (server.guards().made - made) / (after - commands)


def bench_guards(
    rates: list[int], rounds: int, window: float, seed: int, json_file: Path | None
) -> None:
    if not 0.1 <= window <= 10:
        raise BadUsage(f"bench guards: --window {window:g}: expected 0.1 to 10 seconds")
    if not rates or min(rates) < 1:
        raise BadUsage(f"bench guards: --rate {rates}: expected 1 or more")
    build()
    with loaded(sorted(os.sched_getaffinity(0))) as server:
        resident = resident_bytes(server.process.pid)
        taken = windows_in_turn(
            "bench guards: redis",
            server.process,
            (0, *rates),
            rounds,
            seed,
            lambda rate: one_window(server, rate, window),
        )
        most = resident_bytes(server.process.pid)
        guards = server.guards()
    throughput = {rate: [commands for commands, _ in windows] for rate, windows in taken.items()}
    typer.echo(
        f"Throughput that redis loses by guards, {rounds} rounds of windows of {window:g} s, with"
        " its 95% interval"
    )
    result: dict[str, object] = {
        "rounds": rounds,
        "window": window,
        "load": [*LOAD, "-t", COMMANDS],
        "resident_bytes_before": resident,
        "resident_bytes_after": most,
        "guards": asdict(guards),
    }
    for rate in rates:
        ratio = median_of_ratios(throughput[rate], throughput[0])
        guards_each = float(np.median([made for _, made in taken[rate]]))
        typer.echo(
            f"1 in {rate}: {100 * (1 - ratio.median):.2f}%"
            f" [{100 * (1 - ratio.high):.2f}, {100 * (1 - ratio.low):.2f}],"
            f" a guard in {1 / guards_each if guards_each else 0:.0f} commands"
        )
        result[str(rate)] = {
            "throughput": throughput[rate],
            "throughput_without": throughput[0],
            "median": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
            "guards_per_command": guards_each,
        }
    typer.echo(
        f"resident: {resident >> 10} KiB before the first guard, {most >> 10} KiB at the end"
        f" with {guards.live} live guards;"
        f" {guards.missed} found no room"
    )
    write_json(json_file, result)
