#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""CPU time that sampled guards take in a busy server, counted where it is spent.

redis runs under the load of `kmem bench guards`. perf looks at its stack so many times for a
second of its CPU time; a sample counts if a function of guards is in its stack, so also the
kernel's work for them. The share of these samples is the time; its interval is that of the mean
over the seconds. A part without guards shows what these functions take then. Gates of guards open
by the clock, so a server that gets little of its CPU makes more guards for a second of CPU time.
What guards cost beside their own time, as lines that leave the caches, is not seen here;
`kmem bench guards` sees it, less exactly.

    make build && PYTHONPATH=python .venv/bin/python scripts/guard_time.py --seconds 60
"""

import argparse
import collections
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ending

from kmem.bench.guards_cost import Server, loaded
from kmem.common.errors import KmemError
from kmem.common.tree import build

HERTZ = 5000
STACK_BYTES = 512  # of a sample's stack; enough for the functions between a guard's and the kernel
OF_GUARDS = ("guard_", "guards_", "marks_", "free_sample")
PARTS = {
    "walks of the stack": ("stack_capture", "stack_capture_from", "depot_keep", "row_walk"),
    "pages opened and closed": ("system_guard", "system_unguard", "do_madvise"),
    "page faults": ("asm_exc_page_fault",),
}


def recorded(server: Server, seconds: float, file: Path) -> list[tuple[int, list[str]]]:
    """The second and the functions, inner ones first, of each sample."""
    words = ["perf", "record", "-q", "-p", str(server.process), "-F", str(HERTZ), "-e", "cpu-clock"]
    words += ["--call-graph", f"dwarf,{STACK_BYTES}", "-o", str(file)]
    subprocess.run([*words, "--", "sleep", str(seconds)], check=True)
    text = subprocess.run(
        ["perf", "script", "-i", str(file), "-F", "time,ip,sym"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout
    samples = []
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        if len(lines) < 2:
            continue
        second = int(float(lines[0].split(":")[0]))
        samples.append((second, [line.split()[1] for line in lines[1:] if len(line.split()) > 1]))
    return samples


def is_of_guards(functions: list[str]) -> bool:
    return any(function.startswith(OF_GUARDS) for function in functions)


def share(samples: list[tuple[int, list[str]]]) -> tuple[float, float]:
    """The share of guards, and half of its 95% interval; the first and last second are cut."""
    all_of: collections.Counter[int] = collections.Counter()
    of_guards: collections.Counter[int] = collections.Counter()
    for second, functions in samples:
        all_of[second] += 1
        of_guards[second] += is_of_guards(functions)
    seconds = sorted(all_of)[1:-1]
    if len(seconds) < 3:
        raise KmemError("guard_time: expected samples in five seconds or more")
    total = sum(all_of[second] for second in seconds)
    mean = sum(of_guards[second] for second in seconds) / total
    # Of a ratio of sums, as the seconds have different numbers of samples.
    errors = [of_guards[second] - mean * all_of[second] for second in seconds]
    return mean, 1.96 * statistics.stdev(errors) * len(seconds) ** 0.5 / total


def parts(samples: list[tuple[int, list[str]]]) -> dict[str, float]:
    """Of the samples of guards, the share of each part."""
    own = [functions for _, functions in samples if is_of_guards(functions)]
    return {
        part: sum(any(function in names for function in functions) for functions in own)
        / max(len(own), 1)
        for part, names in PARTS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="one guard in so many allocations")
    parser.add_argument("--seconds", type=float, default=60, help="of the part with guards")
    wanted = parser.parse_args()
    build()
    with (
        tempfile.TemporaryDirectory() as directory,
        loaded(sorted(os.sched_getaffinity(0))) as server,
    ):
        file = Path(directory) / "perf.data"
        without = recorded(server, max(wanted.seconds / 4, 6), file)
        server.set_rate(wanted.rate)
        before, begun, clock = server.guards(), server.cpu_seconds(), time.monotonic()
        samples = recorded(server, wanted.seconds, file)
        after, spent = server.guards(), server.cpu_seconds() - begun
        clock = time.monotonic() - clock
    mean, half = share(samples)
    idle, idle_half = share(without)
    made = after.made - before.made
    print(
        f"1 in {wanted.rate}: guards take {100 * mean:.2f}% of redis's CPU time"
        f" [{100 * (mean - half):.2f}, {100 * (mean + half):.2f}], {len(samples)} samples"
    )
    print(f"without guards: {100 * idle:.2f}% [{100 * (idle - idle_half):.2f},"
          f" {100 * (idle + idle_half):.2f}]")  # fmt: skip
    print(f"redis had {100 * spent / clock:.0f}% of a CPU; with less of it guards take more")
    print(
        f"{made / spent:.0f} guards and {(after.missed - before.missed) / spent:.0f} misses for a"
        f" second of CPU time; a guard takes {1e6 * mean * spent / max(made, 1):.1f} us"
    )
    for part, value in parts(samples).items():
        print(f"{100 * value:.0f}% of it: {part}")


if __name__ == "__main__":
    ending.exceptions_for_signals()
    try:
        main()
    except (KmemError, subprocess.CalledProcessError) as error:
        sys.exit(f"guard_time: {error}")
