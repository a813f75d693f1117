# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The interval of a profile for which none is given, by a short look at the program before it."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiled import on_library, profile, wait_for_registry

from kmem.live.pace import FIRST, MOST_A_SECOND, TIMES_MOST, interval_after, look_interval
from kmem.live.pprof import read
from kmem.live.profile import take
from kmem.live.registry.find import open_process
from kmem.live.registry.requests import ask

FIRSTS = st.integers(10, 24).map(lambda bits: 1 << bits)


@given(FIRSTS, st.integers(0, 1 << 20), st.floats(0.01, 10))
def test_interval(first: int, samples: int, seconds: float) -> None:
    """It is the least that keeps to the bound, by powers of two, and never that of the look."""
    interval = interval_after(first, samples, seconds)
    times = interval // first
    assert interval == first * times
    assert times & (times - 1) == 0
    expected = samples / seconds * look_interval(first) / interval
    assert expected <= MOST_A_SECOND * 1.001 or times == TIMES_MOST
    assert times == 1 or expected * 2 > MOST_A_SECOND * 0.999
    assert interval != look_interval(first)


BUSY = """
while True:
    [bytes(1000 + number % 1000) for number in range(20000)]
"""
CALM = """
import time
while True:
    [bytes(1000 + number % 1000) for number in range(100)]
    time.sleep(0.01)
"""


def profiled_at(
    file: Path, program: str, *words: str, options: str = "registry=on"
) -> tuple[int, str]:
    """The interval that a profile's file has, and what the command said."""
    command = (sys.executable, "-c", program)
    with on_library(options, *command, PYTHONMALLOC="malloc") as process:
        wait_for_registry(process.pid)
        done = profile(str(process.pid), *words, "-o", file)
    assert done.returncode == 0, done.stderr
    return read(file).period, done.stdout


@pytest.mark.alone
def test_busy(tmp_path: Path) -> None:
    """Samples of a program that allocates much are further apart, and the command says so."""
    file = tmp_path / "heap.pb.gz"
    period, said = profiled_at(file, BUSY, "--seconds", "1")
    apart = re.search(r"allocates much, so samples are (\d+) KiB apart", said)
    assert apart, said
    assert period == int(apart[1]) << 10 > FIRST
    period, said = profiled_at(file, BUSY, "--seconds", "0.2", "--interval", "512K")
    assert period == 512 << 10
    assert "apart" not in said


@pytest.mark.alone
def test_ended_during_the_look() -> None:
    """By a signal: what was seen until then is a profile, without a word of the interval."""
    with on_library("registry=on", sys.executable, "-c", BUSY, PYTHONMALLOC="malloc") as process:
        wait_for_registry(process.pid)
        made, said = take(
            process.pid,
            seconds=600,
            interval=None,
            slices=0,
            growth=False,
            signals=[signal.SIGTERM],
        )
    assert made.interval == look_interval(FIRST)
    assert "apart" not in " ".join(said)


@pytest.mark.alone
def test_calm(tmp_path: Path) -> None:
    period, said = profiled_at(tmp_path / "heap.pb.gz", CALM, "--seconds", "1")
    assert period == FIRST
    assert "apart" not in said


@pytest.mark.alone
def test_own_interval(tmp_path: Path) -> None:
    """A program that is sampled already keeps its interval, however many samples come."""
    file = tmp_path / "heap.pb.gz"
    period, said = profiled_at(file, BUSY, "--seconds", "0.5", options="profile_interval=256K")
    assert period == 256 << 10
    assert "apart" not in said


OWN = 48 << 20  # no power of two times the first, so that no look chooses it
STEPS = """
import sys
for line in sys.stdin:
    for _ in range(int(line)):
        [bytes(1000 + number % 1000) for number in range(20000)]
    print("done", flush=True)
"""


@pytest.mark.alone
def test_behind_a_profile_whose_end_was_not_seen(tmp_path: Path) -> None:
    """An interval that a waiting request ends is not the program's own."""
    packed = tmp_path / "heap.pb.gz"
    words = (sys.executable, "-c", STEPS)
    options = "registry=on,reclaim_thread=off"
    with on_library(options, *words, PYTHONMALLOC="malloc") as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def work(rounds: int) -> None:
            assert process.stdin is not None
            process.stdin.write(f"{rounds}\n")
            process.stdin.flush()

        work(1)
        process.stdout.readline()
        wait_for_registry(process.pid)
        with open_process(process.pid, writable=True) as registry:
            ask(registry, 0, "profile_interval", str(OWN))
            while registry.number("head", "profile_interval") != OWN:
                work(1)
                process.stdout.readline()
            ask(registry, 0, "profile_interval", "")
        time.sleep(0.1)
        assert registry_interval(process.pid) == OWN
        work(1000000)
        done = profile(str(process.pid), "--seconds", "0.5", "-o", packed)
    assert done.returncode == 0, done.stderr
    assert read(packed).period != OWN
    assert "apart" in done.stdout


def registry_interval(process: int) -> int:
    with open_process(process) as registry:
        return registry.number("head", "profile_interval")
