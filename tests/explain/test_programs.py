# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Predictions of `kmem explain PID` for redis-server and python3, and what then came true.

`pytest -s` prints them: the rows of the table in docs/explain.md.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).parents[1] / name) for name in ("command", "profile")]
from profiled import LIBRARY, on_library
from test_running import explained, trimmed

pytestmark = [pytest.mark.full, pytest.mark.alone]

# Free pages stay until the trim, however long the prediction takes.
BASE = "reclaim_thread=off,registry=on,purge_delay=600000"
OPTIONS = ("slub_max_order=0", "classes=kernel")
DEADLINE = 60  # s

PYTHON = """
import random, sys, time
random.seed(1)
kept = {}
for number in range(300_000):
    kept[number] = {"name": f"user {number}", "tags": [number, str(number) * 8]}
for number in random.sample(range(300_000), 260_000):
    del kept[number]
print("ready", flush=True)
while True:
    lines = [str(number) * 3 for number in range(2000)]
    time.sleep(0.01)
"""
# 300,000 values of 200 bytes, lists and values of 700 bytes; then seven of eight keys go.
REDIS = (
    ["redis-benchmark", "-q", "-n", "300000", "-r", "200000", "-d", "200", "-t", "set"],
    ["redis-benchmark", "-q", "-n", "100000", "-r", "200000", "-d", "700", "-t", "set,lpush"],
    ["redis-cli", "eval", "for i=0,199999 do if i % 8 ~= 0 then"
     " redis.call('del', string.format('key:%012d', i)) end end", "0"],
    ["redis-benchmark", "-q", "-n", "10000", "-r", "200000", "-t", "get"],
)  # fmt: skip
GETS = ["redis-benchmark", "-q", "-l", "-n", "100000", "-r", "200000", "-t", "get"]


@contextmanager
def python3(options: str) -> Iterator[int]:
    with on_library(options, "/usr/bin/python3", "-c", PYTHON, PYTHONMALLOC="malloc") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@contextmanager
def redis(options: str) -> Iterator[int]:
    if shutil.which("redis-server") is None or shutil.which("redis-benchmark") is None:
        pytest.skip("redis-server and redis-benchmark are not installed")
    port = free_port()
    words = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"]
    with on_library(options, *words) as process:
        wait_for_port(port)
        for name, *rest in REDIS:
            subprocess.run([name, "-p", str(port), *rest], check=True, capture_output=True)
        name, *rest = GETS
        with subprocess.Popen([name, "-p", str(port), *rest], stdout=subprocess.DEVNULL) as load:
            try:
                yield process.pid
            finally:
                load.kill()


PROGRAMS = {"redis-server": redis, "python3": python3}


def held_by_slabs(document: dict[str, Any]) -> int:
    """Slabs and large blocks, between which another class table moves objects."""
    return int(sum(document["heap"][f"{name}_bytes"]["value"] for name in ("slabs", "large")))


def saving_of(document: dict[str, Any], option: str) -> dict[str, Any] | None:
    savings = [*document["orders"], document["classes"]["saving"]]
    return next((one for one in savings if one and one["option"] == option), None)


def shown(size: float | None) -> str:
    return "none" if size is None else f"{size / 2**20:.1f}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_predictions_for_a_program(name: str, tmp_path: Path) -> None:
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    program = PROGRAMS[name]
    with program(BASE) as process:
        document = explained(process, tmp_path)
        given_back = trimmed(process)
    predicted = document["trim"]["total_bytes"]["value"]
    before = held_by_slabs(document)
    print(f"\n{name}: slabs and large blocks {shown(before)} MiB")
    print(f"  kmem trim: predicted {shown(predicted)}, true {shown(given_back)}")
    for option in OPTIONS:
        with program(f"{BASE},{option}") as process:
            after = held_by_slabs(explained(process, tmp_path))
        found = saving_of(document, option)
        saving = found["bytes"]["value"] if found else None
        print(f"  {option}: predicted {shown(saving)}, true {shown(before - after)}")
        # Every prediction is right to a tenth of the memory that it is of, and the table's says so.
        if found is not None:
            off = found["off_bytes"]["value"] if found["off_bytes"] else before / 10
            assert abs(before - after - saving) < off
            assert off == pytest.approx(before / 10, rel=0.6) and off >= before / 10 - 1
    print(f"  {document['advice']['text']}")
    # The program goes on between the two commands.
    assert predicted == pytest.approx(given_back, rel=0.15)
