# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Real programs with debugging on: they work, and what corrupts the heap is reported by name."""

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import DropIn, Finished, Plain, Setting, check_status
from needs import command, require
from settings import under

Build = Callable[..., Path]

DEBUG = Setting("debug", options="debug=FZPU")
DEBUG_LOCKED = Setting("debug-locked", options="debug=FZPU,slots=locked")
debugged = under(DEBUG, DEBUG_LOCKED, quick=(DEBUG, DEBUG_LOCKED))

PYTHON = """
import json, subprocess, sys, threading
data = [{"number": i, "text": str(i) * (i % 7), "list": [i] * (i % 5)} for i in range(500)]
results = []
def work():
    results.append(len(json.dumps(json.loads(json.dumps(data)))))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
subprocess.run([sys.executable, "-c", "print('child')"], check=True)
print(results)
"""


@debugged
def test_python(dropin: DropIn, plain: Plain) -> None:
    python = [command("python3"), "-c", PYTHON]
    expected = plain.run(python).stdout
    environment = {"PYTHONMALLOC": "malloc"}
    finished = dropin.run(python, minimum=20_000, environment=environment)
    assert finished.stdout == expected


# Flag U walks the stack at each call: a workload that does with some ten thousand of them.
SQL = """
create table numbers(value integer, text text);
with recursive count(n) as (values(1) union all select n + 1 from count where n < 3000)
insert into numbers select n, hex(n * n) || substr('abcdefgh', n % 8) from count;
create index by_text on numbers(text);
select count(*), sum(length(text)), min(text), max(text) from numbers;
select substr(text, 1, 2) as start, count(*) from numbers group by start order by start;
"""


@debugged
def test_sqlite3(dropin: DropIn, plain: Plain) -> None:
    require("sqlite3")
    expected = plain.run([command("sqlite3"), "-bail"], stdin=SQL).stdout
    finished = dropin.run([command("sqlite3"), "-bail"], minimum=1_700, stdin=SQL)
    assert finished.stdout == expected


def corrupt(dropin: DropIn, build: Build, way: str) -> Finished:
    return dropin.attempt([build("corrupt", "corrupt.c", flags=("-O1",)), way])


def place(function: str, program: Path) -> str:
    """Matches places in a function of the program."""
    table = subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True)
    (found,) = re.findall(rf"^(\w+) (\w+) \w {function}$", table.stdout, re.M)
    start, size = (int(word, 16) for word in found)
    offsets = "|".join(f"{offset:x}" for offset in range(start + 1, start + size + 1))
    return rf"{re.escape(str(program))}\+0x({offsets})\b"


REPORTS = {
    "overflow": ["[kmalloc Redzone overwritten]", "First byte 0x78 instead of 0xcc", "not freed"],
    "underflow": ["[Left Redzone overwritten]", "First byte 0x78 instead of 0xcc", "not freed"],
    "use-after-free": ["[Poison overwritten]", "0x78 instead of 0x6b", "Marking all objects used"],
    "double-free": ["BUG kmalloc-112 (Not tainted): Object already free", "not freed"],
    "interior-free": ["BUG kmalloc-112 (Not tainted): Invalid object pointer 0x", "not freed"],
}


@debugged
@pytest.mark.parametrize("way", REPORTS)
def test_corruption_is_reported(dropin: DropIn, build: Build, way: str) -> None:
    finished = corrupt(dropin, build, way)
    check_status(finished)
    pointer = int(finished.stdout.splitlines()[0], 16)
    assert finished.stdout.splitlines()[-1] == "survived"
    for text in REPORTS[way]:
        assert text in finished.stderr, finished.describe()
    assert finished.stderr.count("BUG ") == 1, finished.describe()
    # Who took it and who gave it back, and the line of the object itself.
    program = build("corrupt", "corrupt.c", flags=("-O1",))
    took, gave = place("take_it", program), place("give_it_back", program)
    if way != "interior-free":
        assert re.search(rf"^Allocated in {took}", finished.stderr, re.M), finished.describe()
        assert f"Object 0x{pointer:016x} @offset=" in finished.stderr, finished.describe()
    if way in ("double-free", "use-after-free"):
        assert re.search(rf"^Freed in {gave}", finished.stderr, re.M)
    if way != "use-after-free":
        assert re.search(rf"^Call Trace:\n {gave}", finished.stderr, re.M)


@pytest.mark.parametrize("way", REPORTS)
def test_ends_if_asked_to(build: Build, library: Path, tmp_path: Path, way: str) -> None:
    dropin = DropIn(Setting("abort", options="debug=FZPU,debug_abort=1"), tmp_path)
    finished = corrupt(dropin, build, way)
    assert finished.status == -signal.SIGABRT, finished.describe()
    assert REPORTS[way][0] in finished.stderr


def test_only_the_named_caches(build: Build, library: Path, tmp_path: Path) -> None:
    dropin = DropIn(Setting("named", options="kmalloc-1*.debug=FZU"), tmp_path)
    assert "[kmalloc Redzone overwritten]" in corrupt(dropin, build, "overflow").stderr
    dropin = DropIn(Setting("others", options="debug=FZU,kmalloc-1*.debug=-"), tmp_path)
    assert corrupt(dropin, build, "overflow").stderr == ""
