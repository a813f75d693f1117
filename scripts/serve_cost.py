#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `kmem serve` costs beside many processes: prints its share of a core.

A hundred programs on libkmem run, every tenth of which allocates all the time and the others wait,
and thirty more start and end in a second. The share is CPU time by /proc over the time that passes,
at an interval of a second, without clients:

    PYTHONPATH=python .venv/bin/python scripts/serve_cost.py --seconds 60
"""

import argparse
import cProfile
import os
import pstats
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ending

TREE = Path(__file__).resolve().parent.parent
LIBRARY = TREE / "build" / "src" / "libkmem-malloc.so"
# The second allocates as many different sizes as the first, and then waits.
BUSY = """
import time
kept = [bytes(1000 + 61 * n) for n in range(2000)]
while True:
    kept = [bytes(len(one)) for one in kept[:200]]
    time.sleep(0.2)
"""
WAITING = "kept = [bytes(1000 + 61 * n) for n in range(2000)]; import time; time.sleep(3600)"
SHORT = ["/bin/sh", "-c", "for n in 1 2 3; do x=$(echo $n); done"]


def start(words: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(words, env=os.environ | {"LD_PRELOAD": str(LIBRARY)})


class Starting(threading.Thread):
    """Starts short programs at a rate until it is ended."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.ended, self.count = rate, threading.Event(), 0

    def run(self) -> None:
        children: list[subprocess.Popen[bytes]] = []
        begun = time.monotonic()
        while self.rate and not self.ended.is_set():
            children = [child for child in children if child.poll() is None]
            while self.count < (time.monotonic() - begun) * self.rate and len(children) < 64:
                children.append(start(SHORT))
                self.count += 1
            self.ended.wait(0.5 / self.rate)
        for child in children:
            child.wait()


def cpu_seconds(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def profiled(seconds: float) -> None:
    """Looks of the sampler in this process, and where they spend their time."""
    from kmem.live.sampler import Sampler

    sampler = Sampler(1)
    sampler.sample()
    profile = cProfile.Profile(time.thread_time)
    end = time.monotonic() + seconds
    looks, spent = 0, time.thread_time()
    while time.monotonic() < end:
        time.sleep(1)
        profile.enable()
        sampler.sample()
        profile.disable()
        looks += 1
    print(f"{1000 * (time.thread_time() - spent) / looks:.1f} ms a look, with the profiler's own")
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=30, help="starts in a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    wanted = parser.parse_args()
    programs = [
        start([sys.executable, "-c", WAITING if number % 10 else BUSY])
        for number in range(wanted.processes)
    ]
    starting = Starting(wanted.rate)
    serve = None
    try:
        time.sleep(3)
        starting.start()
        if wanted.profile:
            profiled(wanted.seconds)
            return
        serve = subprocess.Popen(
            [sys.executable, "-m", "kmem", "serve", "--port", "0"], stdout=subprocess.PIPE
        )
        assert serve.stdout is not None
        serve.stdout.readline()  # it has looked at all of them once
        begun, count, before = time.monotonic(), starting.count, cpu_seconds(serve.pid)
        time.sleep(wanted.seconds)
        passed = time.monotonic() - begun
        share = (cpu_seconds(serve.pid) - before) / passed
        rate = (starting.count - count) / passed
        print(f"{share:.1%} of a core, {wanted.processes} processes, {rate:.0f} starts a second")
    finally:
        starting.ended.set()
        if starting.ident:
            starting.join()
        for program in [*programs, *([serve] if serve else [])]:
            program.send_signal(signal.SIGKILL)
            program.wait()


if __name__ == "__main__":
    ending.exceptions_for_signals()
    main()
