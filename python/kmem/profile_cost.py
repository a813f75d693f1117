# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench profile`: what sampling costs a program, in CPU time, by interval.

The program is CPython with all of its objects on malloc. Rounds run one of each setting after the
other, so that what disturbs the machine disturbs all.
"""

import os
import subprocess
import sys
from pathlib import Path

import typer

from kmem.figures import median_ratio
from kmem.setup import LIBRARY, KmemError, build, write_json

INTERVALS = (2 << 20, 512 << 10, 128 << 10)
PROGRAM = """
import json
rows = [{"name": str(i), "values": list(range(i % 50)), "text": "x" * i} for i in range(1000)]
for _ in range(40):
    rows = json.loads(json.dumps(rows))
    table = {row["name"]: [str(value) for value in row["values"]] for row in rows}
"""


def run(interval: int) -> float:
    """CPU seconds of one run; 0: no sampling."""
    options = f"registry=on,profile_interval={interval}"
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "LD_PRELOAD": str(LIBRARY),
        "KMEM_OPTIONS": options,
        "PYTHONMALLOC": "malloc",
        "PYTHONHASHSEED": "1",
    }
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", PROGRAM], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise KmemError(f"bench profile: the program ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def bench_profile(rounds: int, json_file: Path | None) -> None:
    build()
    seconds: dict[int, list[float]] = {interval: [] for interval in (0, *INTERVALS)}
    for number in range(rounds):
        order = list(seconds)
        # Who comes first takes turns.
        for interval in order[number % len(order) :] + order[: number % len(order)]:
            seconds[interval].append(run(interval))
    typer.echo(f"CPU time of python3 on malloc by that without sampling, {rounds} rounds")
    result: dict[str, object] = {"rounds": rounds, "program": PROGRAM}
    for interval in INTERVALS:
        ratio = median_ratio(seconds[interval], seconds[0])
        typer.echo(
            f"interval {interval >> 10:>5} KiB: {ratio.median:.3f}"
            f" (95% of resamples: {ratio.low:.3f} to {ratio.high:.3f})"
        )
        result[str(interval)] = {"median": ratio.median, "low": ratio.low, "high": ratio.high}
    write_json(json_file, result)
