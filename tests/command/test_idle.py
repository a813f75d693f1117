# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench idle`: columns, medians, failed runs, and the command itself."""

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from kmem_command import KMEM, kmem

from kmem.bench.allocators import GLIBC, LIBKMEM, Allocator
from kmem.bench.idle import PROGRAM, Column, Load, Results, as_rows, columns, loads, measure

idle = partial(kmem, "bench", "idle")


def sleeping(*words: str) -> dict[str, int]:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True)
    return {key: int(value) for key, _, value in (w.partition("=") for w in done.stdout.split())}


def test_blocks_that_stay() -> None:
    """Of 1,600 blocks of 1000 bytes: the number is exact, and which ones stay is drawn."""
    words = ("blocks=1600", "least=1000", "most=1000", "threads=2", "wait=1", "later=1")
    assert sleeping(*words, "keep=0")["live"] == 0
    assert sleeping(*words, "keep=1")["live"] == 1_600_000
    some = sleeping(*words, "keep=4")["live"]
    assert 250_000 < some < 600_000 and some % 1000 == 0


def test_columns_have_the_threads_that_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMEM_OPTIONS", "registry=off")
    found = columns([LIBKMEM, GLIBC, Allocator("jemalloc-new", None)])
    assert [column.name for column in found] == [
        "libkmem",
        "libkmem reclaim_thread=on",
        "glibc",
        "jemalloc-new",
        "jemalloc-new with thread",
    ]
    assert found[1].extra == {"KMEM_OPTIONS": "registry=off,reclaim_thread=on"}
    assert found[4].extra == {"MALLOC_CONF": "background_thread:true"}


def test_failed_run_is_told_and_left_out(tmp_path: Path) -> None:
    wrong = Load("wrong", "", ("least=0",))
    right = Load("right", "", ("bytes=1M", "threads=0"))
    results = measure([wrong, right], [Column("glibc", GLIBC)], 2, 1, 0.02, tmp_path)
    assert set(results.failures) == {("wrong", "glibc")}
    assert "least" in results.failures["wrong", "glibc"]
    (row,) = as_rows(results)
    assert row["load"] == "right" and row["live_bytes"] > 0
    assert row["peak_bytes"] >= row["live_bytes"]


def test_medians_of_rounds() -> None:
    results = Results({("a", "glibc"): [{"full": 3}, {"full": 1}, {"full": 2}]})
    assert results.median("a", "glibc", "full") == 2
    assert results.median("a", "other", "full") is None


def naps(nap: str) -> list[Path]:
    """The processes whose last look is so many milliseconds after the first."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"later={nap}".encode() in file.read_bytes().split(b"\0"):
                found.append(file)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_command_leaves_no_sleeper(number: signal.Signals, tmp_path: Path) -> None:
    """It does not wait for the end of their sleep, either."""
    nap = f"{100_000 + os.getpid() % 100_000}"
    process = subprocess.Popen(
        [KMEM, "bench", "idle", "--peers", "glibc", "--seconds", str(int(nap) / 1000 + 1)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 90
    while len(naps(nap)) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (130, "") and "Traceback" not in stderr
    assert naps(nap) == [] and list(tmp_path.iterdir()) == []


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "idle.json"
    done = idle("--rounds", "1", "--seconds", "0.1", "--peers", "glibc", "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert document["missing"] == {} and document["failures"] == []
    assert {(row["load"], row["allocator"]) for row in document["rows"]} == {
        (load.name, name)
        for load in loads()
        for name in ("libkmem", "libkmem reclaim_thread=on", "glibc")
    }
    for row in document["rows"]:
        assert row["peak_bytes"] > 100 << 20 and row["pages_bytes"] >= row["live_bytes"]
        assert ("none" in row["load"]) == (row["live_bytes"] == 0)
        assert row["after_1_s_bytes"] is None and row["at_the_end_bytes"] > 0
    assert all(line.split()[-3] == "-" for line in done.stdout.splitlines() if "reclaim" in line)
    assert "small, 1 in 20, 8 threads" in done.stdout and "after 0.1 s" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--seconds", "0"), "--seconds"), (("--peers", "hoard"), "--peers hoard: there are glibc,")],
)
def test_bad_arguments(arguments: tuple[str, ...], named: str) -> None:
    done = idle(*arguments)
    assert done.returncode == 2
    assert named in done.stderr
