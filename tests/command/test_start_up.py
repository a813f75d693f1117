# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem bench start`: runs that take turns, medians over glibc's, bad arguments."""

import json
import os
import platform
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from kmem_command import kmem

from kmem.bench.start_up import as_rows
from kmem.bench.timed import Sample

start = partial(kmem, "bench", "start")

# Has threads, and lives until it is shown to other processes.
BUSY = """
import threading
import time

threads = [threading.Thread(target=lambda: [str(n) for n in range(50000)]) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
time.sleep(0.5)
kept = [str(n) for n in range(50000)]
print(open("/proc/self/smaps").read())
"""


def run(seconds: float, peak_kib: int) -> Sample:
    return Sample(seconds, seconds, peak_kib * 1024, 70, 0)


def test_medians_over_glibc() -> None:
    rows = as_rows(
        {
            "glibc": [run(0.001, 1000), run(0.002, 1000), run(0.009, 900)],
            "libkmem": [run(0.0021, 1400), run(0.0001, 1404), run(0.003, 1500)],
        }
    )
    ours = rows[1]
    assert ours["microseconds"] == pytest.approx(2100)
    assert ours["microseconds_over_glibc"] == pytest.approx(100)
    assert ours["bytes_over_glibc"] == 404 * 1024
    assert (rows[0]["microseconds_over_glibc"], rows[0]["bytes_over_glibc"]) == (0, 0)


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    done = start("--runs", "3", "--peers", "glibc", "--json", file)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert [row["allocator"] for row in document["rows"]] == ["glibc", "libkmem"]
    assert document["runs"] == 3 and document["missing"] == {}
    ours = document["rows"][1]
    # The library is there, and no heap worth the name.
    assert ours["page_faults"] > document["rows"][0]["page_faults"]
    assert ours["bytes_over_glibc"] < 2 << 20
    assert "libkmem" in done.stdout and "over glibc's" in done.stdout


def test_narrow_terminal_cuts_no_figure() -> None:
    done = start("--runs", "1", "--peers", "glibc", environment={"COLUMNS": "40"})
    assert done.returncode == 0, done.stderr
    assert "libkmem" in done.stdout and "page faults" in done.stdout
    assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--peers", "hoard"), 2, "--peers hoard: there are glibc, mimalloc,"),
        (("--runs", "0"), 2, "--runs"),
        (("--json", "/no/such/folder/file"), 1, "--json /no/such/folder/file: No such file"),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], status: int, named: str) -> None:
    done = start(*arguments)
    assert done.returncode == status
    assert named in done.stderr


def test_functions_put_in_front_are_there() -> None:
    """One that was renamed or removed would lie apart from the others without a word."""
    sources = Path(__file__).resolve().parents[2] / "src"
    listed = (sources / "used_functions.ld").read_text()
    names = re.findall(r"^\*\(\.text(?:\.exit|\.startup|\.unlikely)?\.(\w+) ", listed, re.MULTILINE)
    text = "\n".join(path.read_text() for path in sorted(sources.glob("**/*.[ch]")))
    there = set(re.findall(r"\b(\w+)\(", text))
    assert len(names) > 100 and len(names) == len(set(names)) == listed.count("\n*(")
    assert [name for name in names if name not in there and not name.startswith("_Z")] == []


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the functions in front were measured on x86-64"
)
@pytest.mark.parametrize(
    "program", [("cat", "/proc/self/smaps"), ("/usr/bin/python3", "-S", "-c", BUSY)]
)
def test_functions_behind_are_not_in_memory(program: tuple[str, ...]) -> None:
    """They are a mapping of their own, which a program that allocates and frees does not read."""
    built = Path(__file__).resolve().parents[2] / "build" / "src"
    library = (built / "libkmem-malloc.so").resolve()
    shown = subprocess.run(
        program,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"LD_PRELOAD": str(library)},
    ).stdout
    code = re.findall(
        rf"^\S+ r-xp \S+ \S+ \d+ +{re.escape(str(library))}\n(?:.*\n)*?Rss: +(\d+) kB",
        shown,
        re.MULTILINE,
    )
    assert len(code) == 2 and int(code[0]) > 0 and int(code[1]) == 0, shown
