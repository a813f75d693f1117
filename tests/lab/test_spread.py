# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs that are spread: figures do not depend on the place, and a failure there is a line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from distributed import LocalCluster

from kmem.common import spread, worker
from kmem.common.errors import KmemError
from kmem.traces import file as tr

ROOT = Path(__file__).resolve().parents[2]
BOOT = Path(tr.__file__).parent / "boot-6.1tiny-slob-64M.slt.zst"
TIMED = {"bulk"}  # experiments that time this machine
SLOW_SECONDS = 300


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two processes that know nothing but Dask."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def lab(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "kmem", "lab", *arguments], capture_output=True, text=True, timeout=500, check=False
    )


def test_all_experiments_have_the_same_figures_there(tmp_path: Path, address: str) -> None:
    figures = []
    for name, place in (("here", ()), ("there", ("--scheduler", address))):
        file = tmp_path / f"{name}.json"
        done = lab("all", "--quick", "--json", file, *place)
        assert (done.returncode, done.stderr) == (0, "")
        document = json.loads(file.read_text())
        figures.append({key: json.dumps(document[key]) for key in document.keys() - TIMED})
    assert len(figures[0]) >= 6
    assert figures[0] == figures[1]


def test_programs_run_on_the_workers(address: str, tmp_path: Path) -> None:
    """In a folder of a worker, with the files that a command names."""
    script, data = tmp_path / "where", tmp_path / "data"
    script.write_text('#!/bin/sh\necho "$0 $2"\ncat "$1"\n')
    script.chmod(0o755)
    data.write_text("content\n")
    with spread.spread_to(address, "test"):
        done = spread.run_program([script, data, "word"])
        again = spread.run_all("runs", range(7), lambda n: spread.run_program([script, data, "x"]))
    first, second = done.output.splitlines()
    program, word = first.split()
    assert (done.status, word, second) == (0, "word", "content")
    assert "dask" in program and Path(program).name.startswith("kmem-")
    assert {one.output.splitlines()[1] for one in again} == {"content"}
    here = spread.run_program([script, data, "word"])
    assert here.output == f"{script} word\ncontent\n"


def test_results_are_in_order_and_heavy_runs_begin_first() -> None:
    begun: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> int:
        with lock:
            begun.append(number)
        return number * number

    assert spread.run_all("squares", range(20), work, lambda number: number) == [
        number * number for number in range(20)
    ]
    assert begun[0] == 19


def test_a_failed_run_ends_the_others(address: str, tmp_path: Path) -> None:
    """Without waiting for them."""
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\n[ "$1" = 0 ] && exit 3\nexec sleep {SLOW_SECONDS}\n')
    slow.chmod(0o755)

    def fail() -> None:
        failed = threading.Event()

        def work(number: int) -> None:
            if number > 1:
                failed.wait()  # two slow runs on both workers would keep the failing one waiting
            if spread.run_program([slow, str(number)]).status == 3:
                failed.set()
                raise KmemError("three")

        with pytest.raises(KmemError, match="three"):
            spread.run_all("runs", range(4), work)

    begun = time.monotonic()
    with spread.spread_to(address, "test"):
        fail()
        # The workers are free again.
        ended = [spread.run_program([slow, "0"]).status for _ in range(3)]
        assert ended == [3, 3, 3]
        # Threads that begin their next program just then are stopped too.
        for _ in range(20):
            fail()
            assert spread.run_program([slow, "0"]).status == 3
    assert time.monotonic() - begun < SLOW_SECONDS


def test_a_program_that_cannot_start_there_is_a_line(address: str, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x7fELF")
    with (
        spread.spread_to(address, "lab all"),
        pytest.raises(KmemError, match=r"^lab all: a worker failed: .*Exec format error"),
    ):
        spread.run_program([damaged])


@pytest.mark.parametrize("command", ["all", "order", "slob", "sheaves", "cpu-partial", "freeze"])
def test_no_scheduler_is_named(command: str) -> None:
    done = lab(command, "--scheduler", "nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kmem: lab {command}: --scheduler nonsense: ")


def test_workers_need_nothing_of_ours() -> None:
    """The task loads, and fails for want of a worker only, where there is no package kmem."""
    cloudpickle.register_pickle_by_value(worker)
    task = cloudpickle.dumps(worker.run)
    script = (
        "import pickle, sys\n"
        "sys.modules['kmem'] = None\n"
        "task = pickle.load(sys.stdin.buffer)\n"
        "try:\n    task([None], [b''], {})\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=task, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, b"No worker found"), done.stderr
