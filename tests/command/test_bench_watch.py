# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench watch`: what is set against what, a run of it, bad arguments."""

import json
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from kmem_command import kmem

from kmem.bench.watch import POLLED, Measured, percent, running
from kmem.live.registry.caches import read_caches

pytestmark = pytest.mark.alone

watch = partial(kmem, "bench", "watch")


def test_watched_is_set_against_a_reader_of_another() -> None:
    measured = Measured(
        "a program",
        alone=[400.0, 100.0, 200.0],
        beside=[200.0, 100.0, 100.0],
        watched=[190.0, 96.0, 94.0],
    )
    assert measured.cost.median == pytest.approx(0.95)
    assert measured.neighbour.median == pytest.approx(0.5)
    assert percent(measured.cost) == "5.00% [4.00, 6.00]"


def test_counts_grow_until_the_program_is_stopped() -> None:
    cpu = min(os.sched_getaffinity(0))
    with running(POLLED[0], cpu, 1) as program:
        first, deadline = program.made(), time.monotonic() + 30
        while program.made() == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        program.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, program.process.pid, os.WSTOPPED | os.WNOWAIT)
        made, copy = program.made(), program.registry.copy()
        time.sleep(0.1)
        assert program.made() == made
        assert program.registry.copy() == copy
        assert read_caches(program.registry)


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "watch.json"
    done = watch("--rounds", "11", "--window", "0.02", "--rate", "200", "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert [workload["name"] for workload in document["workloads"]] == list(POLLED)
    for workload in document["workloads"]:
        assert 0 < workload["polls_per_second"] <= 1000
        for side in ("alone", "beside", "watched"):
            assert len(workload["blocks_per_second"][side]) == 11
            assert min(workload["blocks_per_second"][side]) > 0
        median, low, high = workload["watched_by_beside"]
        assert 0 < low <= median <= high


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--rounds", "10"), 2, "--rounds '10': expected at least 11"),
        (("--window", "11"), 2, "--window 11: expected 0.01 to 10 seconds"),
        (("--rate", "0"), 2, "--rate 0: expected 1 to 100000 polls a second"),
        (("--json", "/no/such/folder/file"), 1, "--json /no/such/folder/file"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], status: int, named: str) -> None:
    done = watch(*arguments)
    assert done.returncode == status
    assert named in done.stderr
