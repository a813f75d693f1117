# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands beside `run`: help, version, bench micro, and the helper of the demo."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KMEM = ROOT / "kmem"
TIMED = ROOT / "build" / "bench" / "timed"
MICRO = ROOT / "build" / "bench" / "micro"


def kmem(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [KMEM, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def test_help_names_the_commands() -> None:
    result = kmem("--help")
    assert result.returncode == 0
    for command in ("run", "bench", "demo"):
        assert command in result.stdout


def test_version() -> None:
    assert kmem("--version").stdout == "kmem 0.1.0\n"


def test_unknown_command() -> None:
    result = kmem("no-such-command")
    assert result.returncode == 2
    assert "no-such-command" in result.stderr
    assert "Traceback" not in result.stderr


def test_too_few_rounds_are_refused() -> None:
    result = kmem("bench", "micro", "--rounds", "3")
    assert result.returncode == 2
    assert "30" in result.stderr


def test_result_file_that_cannot_be_written_is_said_first() -> None:
    result = kmem("bench", "micro", "--json", "/no/such/folder/file")
    assert result.returncode != 0
    assert "/no/such/folder" in result.stderr
    assert "Traceback" not in result.stderr


def test_worker_answers_round_by_round() -> None:
    done = subprocess.run([MICRO], input="\n\n", capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("hz ")
    assert lines.count("done") == 2
    first = lines[1 : lines.index("done")]
    names = [line.split()[0] for line in first]
    for size in (16, 64, 256, 1024):
        for test in ("malloc_pair", "malloc_pair_empty", "malloc_burst"):
            assert f"{test}/{size}" in names
    assert all(float(line.split()[1]) > 0 for line in first)


@pytest.mark.full
def test_bench_micro_writes_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "micro.json"
    result = kmem("bench", "micro", "--rounds", "30", "--json", file)
    assert result.returncode == 0, result.stderr
    document = json.loads(file.read_text())
    assert document["rounds"] == 30
    figures = {(row["name"], row["allocator"]): row for row in document["results"]}
    for size in (16, 64, 256, 1024):
        for allocator in {"libkmem", "glibc", "mimalloc", "jemalloc", "tcmalloc"} - set(
            document["missing"]
        ):
            for test in ("malloc_pair", "malloc_pair_empty", "malloc_burst"):
                row = figures[f"{test}/{size}", allocator]
                assert 0 < row["cycles_min"] <= row["cycles"]
                assert 0 < row["ns_min"] <= row["ns"]
        for test in ("kmem_cache_pair", "kmalloc_pair"):
            assert figures[f"{test}/{size}", "libkmem"]["cycles"] > 0
            assert (f"{test}/{size}", "glibc") not in figures


def test_timed_reports_time_and_peak(tmp_path: Path) -> None:
    file = tmp_path / "result"
    script = "import time; block = bytearray(50_000_000); time.sleep(0.2); raise SystemExit(7)"
    done = subprocess.run([TIMED, file, "/usr/bin/python3", "-c", script], check=False)
    wall_ns, peak_kib = map(int, file.read_text().split())
    assert done.returncode == 7
    assert wall_ns >= 200_000_000
    assert peak_kib >= 50_000_000 // 1024


def test_timed_preloads_into_the_program_only(tmp_path: Path) -> None:
    library = "/lib/x86_64-linux-gnu/libc.so.6"
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    done = subprocess.run(
        [TIMED, "-p", library, tmp_path / "result", "/bin/sh", "-c", "echo $LD_PRELOAD"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == library


def test_timed_counts_a_signal_as_a_shell_does(tmp_path: Path) -> None:
    done = subprocess.run([TIMED, tmp_path / "r", "/bin/sh", "-c", "kill -KILL $$"], check=False)
    assert done.returncode == 128 + 9
