# SPDX-License-Identifier: Apache-2.0 OR MIT
"""bench/workloads: each prints the same line on every allocator, and notices a broken one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kmem.bench.workloads import PROGRAMS, WORKLOADS, Workload
from kmem.common.tree import LIBRARY

CPUS = 2  # threads are started for as many, whatever the machine has
SCALE = 0.002

LINE = re.compile(
    r"(?P<name>\w+) threads=\d+ scale=\S+ seed=\d+( \w+=\w+)* "
    r"blocks=(?P<blocks>\d+) checksum=[0-9a-f]{16}\n"
)

# Gives every second block of 64 bytes or more out twice: the two owners overwrite each other.
TWICE = """
#include <stddef.h>
extern void *__libc_malloc(size_t bytes);
static _Thread_local void *last;
void *malloc(size_t bytes)
{
        static _Thread_local size_t last_bytes;
        void *block = last;
        if (block && bytes >= 64 && bytes <= last_bytes) {
                last = NULL;
                return block;
        }
        block = __libc_malloc(bytes);
        if (bytes >= 64) {
                last = block;
                last_bytes = bytes;
        }
        return block;
}
void free(void *block)
{
}
"""


def run(command: list[str], preload: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("KMEM_OPTIONS", "LD_PRELOAD")}
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def line(command: list[str], preload: Path | None = None) -> str:
    done = run(command, preload)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert LINE.fullmatch(done.stdout), done.stdout
    return done.stdout


def need(program: str) -> None:
    if not (PROGRAMS / program).exists():
        assert program == "server" and not shutil.which("g++"), f"{program} was not built"
        pytest.skip("server needs a C++ compiler, and there is none")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_same_line_on_every_allocator(workload: Workload) -> None:
    need(workload.program)
    command = workload.command(CPUS, SCALE)
    first = line(command)
    match = LINE.fullmatch(first)
    assert match and match["name"] == workload.program
    assert int(match["blocks"]) > 0
    assert line(command, LIBRARY) == first


def test_every_program_is_listed() -> None:
    sources = Path(__file__).resolve().parents[2] / "bench" / "workloads"
    programs = {path.stem for pattern in ("*.c", "*.cpp") for path in sources.glob(pattern)}
    # `drawn` is the program of another command, with its own tests.
    assert programs - {"drawn"} == {workload.program for workload in WORKLOADS}
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)


def test_seed_and_scale_change_the_work() -> None:
    program = str(PROGRAMS / "mixed")
    lines = [
        line([program, "threads=2", f"scale={scale}", f"seed={seed}"]).split(" blocks=")[1]
        for scale, seed in ((0.002, 1), (0.002, 2), (0.004, 1))
    ]
    assert len(set(lines)) == 3


@pytest.mark.parametrize("threads", [1, 3, 8])
@pytest.mark.parametrize("program", ["pipeline", "thread_per_request"])
def test_any_number_of_threads(program: str, threads: int) -> None:
    line([str(PROGRAMS / program), f"threads={threads}", f"scale={SCALE}"])


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_rings_of_any_length(threads: int) -> None:
    line([str(PROGRAMS / "batches"), f"threads={threads}", f"scale={SCALE}", "handed=yes"])


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("twice")
    source = folder / "twice.c"
    source.write_text(TWICE)
    library = folder / "libtwice.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library, source], check=True
    )
    return library


@pytest.mark.parametrize(
    "program", ["short_lived", "pareto", "mixed", "batches", "phases", "sparse_buffers"]
)
def test_a_block_with_two_owners_is_noticed(program: str, twice: Path) -> None:
    done = run([str(PROGRAMS / program), "threads=1", f"scale={SCALE}"], twice)
    assert done.returncode == 1
    assert "contents changed" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("threads=0", "a whole number from 1 to 1024"),
        ("threads=1025", "a whole number from 1 to 1024"),
        ("threads=-1", "a whole number from 1 to 1024"),
        ("threads=2x", "a whole number from 1 to 1024"),
        ("scale=0", "a number from 0.0001 to 1000"),
        ("scale=nan", "a number from 0.0001 to 1000"),
        ("scale=", "a number from 0.0001 to 1000"),
        ("seed=-1", "a whole number below 2^64"),
        ("seed=18446744073709551616", "a whole number below 2^64"),
        ("order=sideways", "order=forward|reverse|random"),
        ("handed", "threads=, scale=, seed=, progress= or the program's own key"),
        ("mode=active", "threads=, scale=, seed=, progress= or the program's own key"),
    ],
)
def test_wrong_arguments(argument: str, expected: str) -> None:
    done = run([str(PROGRAMS / "batches"), argument])
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"batches: {argument}: expected {expected}\n"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("server", "server: progress=: expected another program, whose threads stay\n"),
        ("mixed", "mixed: progress=/no/such/file: No such file or directory\n"),
    ],
)
def test_counts_that_cannot_be_kept(program: str, error: str) -> None:
    done = run([str(PROGRAMS / program), "progress=/no/such/file"])
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)
