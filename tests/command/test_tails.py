# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench tails`: what a long call is put down to, medians, and the command itself."""

import json
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest
from kmem_command import kmem

from kmem.bench.tails import (
    CALLS,
    PROGRAM,
    SETTINGS,
    TIMES,
    Results,
    Run,
    as_rows,
    behind,
    parse_run,
)

tails = partial(kmem, "bench", "tails")

# malloc that sleeps once, and touches new pages at another time.
SLOW = """
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
extern void *__libc_malloc(size_t bytes);
static int calls;
void *malloc(size_t bytes)
{
        struct timespec millisecond = {0, 1000000};
        calls++;
        if (calls % 500 == 100)
                nanosleep(&millisecond, NULL);
        if (calls % 500 == 400) {
                char *pages = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                madvise(pages, 4 << 20, MADV_NOHUGEPAGE);
                for (int i = 0; i < 4 << 20; i += 4096)
                        pages[i] = 1;
                munmap(pages, 4 << 20);
        }
        return __libc_malloc(bytes);
}
"""


def run_program(*words: str, preload: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {} if preload is None else {"LD_PRELOAD": str(preload)}
    return subprocess.run(
        [PROGRAM, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def figures(scale: float) -> dict[str, float]:
    times = {name: scale * (10 + i) for i, name in enumerate(TIMES)}
    return times | {"calls": 100, "long": 0, "preempted": 0, "waited": 0, "faulted": 0}


def made_up(scale: float) -> Run:
    return Run(15.0, True, {"malloc": figures(scale), "free": figures(1)})


def test_long_calls_have_their_reason(tmp_path: Path) -> None:
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    said = run_program("setting=busy", "calls=5000", "live=100", "show=64", preload=library)
    assert said.returncode == 0, said.stderr
    if "known=0" in said.stdout:
        pytest.skip("the kernel does not tell this user of switches and page faults")
    shown = [
        dict(word.split("=") for word in line.split()[1:])
        for line in said.stdout.splitlines()
        if line.startswith("shown")
    ]
    # The sleep cannot be shorter than a millisecond; the pages are 1024. Calls that were preempted
    # are left out, on a busy machine most of the ten of each kind.
    assert [call for call in shown if call["waits"] != "0" and int(call["ns"]) >= 1_000_000]
    assert [call for call in shown if int(call["faults"]) >= 1024]
    run = parse_run("\n".join(line for line in said.stdout.splitlines() if "shown" not in line))
    malloc = run.calls["malloc"]
    assert malloc["waited"] >= 1 and malloc["faulted"] >= 1
    assert malloc["largest"] >= 1_000_000 and malloc["clean"] <= malloc["largest"]
    assert malloc["calls"] + malloc["preempted"] == 5000


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_call_is_counted(setting: str) -> None:
    words = ("calls=3000", "live=50", "count=3", "burst=500", "pause=1", "threads=3")
    said = run_program(f"setting={setting}", *words)
    assert said.returncode == 0, said.stderr
    run = parse_run(said.stdout)
    threads = 3 if setting in ("shared", "bursts") else 1
    each = 3000 if setting in ("busy", "shared") else 1500
    malloc, free = (run.calls[call] for call in CALLS)
    assert malloc["calls"] + malloc["preempted"] == threads * each
    frees = free["calls"] + free["preempted"]
    # The blocks that are left, and those that are on their way to a thread.
    left = 3 * (50 + 1024) if setting == "shared" else 50 if setting == "busy" else 0
    assert threads * each - left <= frees <= threads * each
    for one in (malloc, free):
        assert 0 <= one["p50"] <= one["p99"] <= one["p99.9"] <= one["p99.99"] <= one["largest"]
        assert 0 < one["clean"] <= one["largest"]


@pytest.mark.parametrize(
    "words", [("setting=x",), (), ("setting=busy", "threads=1"), ("setting=busy", "calls=-1")]
)
def test_bad_words(words: tuple[str, ...]) -> None:
    said = run_program(*words)
    assert said.returncode == 2
    assert said.stderr.startswith(f"tails: {words[-1] if words else 'no setting'}: expected")


def test_medians_and_places_behind() -> None:
    results = Results(
        {
            ("busy", "libkmem"): [made_up(scale) for scale in (3, 1, 2)],
            ("busy", "glibc"): [made_up(1)],
            ("idle", "libkmem"): [made_up(1)],
        },
        {("idle", "libkmem"): "it crashed"},
    )
    rows = as_rows(results)
    assert [(row["allocator"], row["call"]) for row in rows] == [
        ("libkmem", "malloc"),
        ("libkmem", "free"),
        ("glibc", "malloc"),
        ("glibc", "free"),
    ]
    assert rows[0]["p50_ns"] == 20 and rows[0]["largest_ns_of_runs"] == [42, 14, 28]
    places = behind(results, ["busy", "idle"], ["glibc"])
    assert len(places) == len(TIMES)
    assert all(
        place.startswith("busy malloc") and "2.00 times glibc's" in place for place in places
    )


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "tails.json"
    options = ("--rounds", "2", "--scale", "0.01", "--peers", "glibc", "--only", "bursts,busy")
    done = tails(*options, "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert document["rounds"] == 2 and document["missing"] == {} and document["failures"] == []
    assert {(row["setting"], row["allocator"], row["call"]) for row in document["rows"]} == {
        (setting, name, call)
        for setting in ("busy", "bursts")
        for name in ("libkmem", "glibc")
        for call in CALLS
    }
    assert all(len(row["largest_ns_of_runs"]) == 2 for row in document["rows"])
    assert "busy: malloc, ns" in done.stdout and "bursts: free, ns" in done.stdout
    assert "are subtracted from every call" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--only", "lazy"), "--only lazy: there are busy, shared, idle, bursts"),
        (("--only", ","), "--only ,: there are busy, shared, idle, bursts"),
        (("--scale", "0"), "--scale 0; expected 0.001 to 100"),
        (("--peers", "hoard"), "--peers hoard: there are glibc, mimalloc,"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], named: str) -> None:
    done = tails(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
