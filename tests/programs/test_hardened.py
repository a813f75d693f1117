# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Real programs with protect=hardened work as without it, and wrong calls of C++ are reported."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import GIB, INPUTS, KMEM, ROOT, DropIn, Plain, Setting, check_silent, check_status, stop
from needs import PYTHON, command, require
from settings import under

Build = Callable[..., Path]

HARDENED = Setting("hardened", options="protect=hardened")
LIMITED = Setting("hardened-limited", options="protect=hardened", address_space=4 * GIB)
NARROW = Setting("hardened-narrow", options="protect=hardened", address_space=GIB // 2)
hardened = under(HARDENED, LIMITED, quick=(HARDENED, LIMITED))
alone = under(HARDENED, quick=(HARDENED,))

THREADS = """
import json, subprocess, sys, threading
data = [{"number": i, "text": str(i) * (i % 7), "list": [i] * (i % 5)} for i in range(500)]
results = []
def work():
    for _ in range(5):
        results.append(len(json.dumps(json.loads(json.dumps(data)))))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
subprocess.run([sys.executable, "-c", "print('child')"], check=True)
print(results)
"""
LIMITS = """
import resource
for limit in (4 << 30, 2 << 30, 1 << 30):
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    blocks = [bytes(size) for size in range(1, 200_000, 997)]
try:
    bytearray(2 << 30)
except MemoryError:
    print(len(blocks))
"""
LOCKS = """
import ctypes
libc = ctypes.CDLL(None)
if libc.mlockall(3):
    print("refused")
blocks = [bytes(size) for size in range(1, 200_000, 997)]
print(len(blocks))
"""
GIT = """
git init -q . && git config user.email a@b && git config user.name c
for i in $(seq 40); do echo $i >>file; git add file; git commit -qm "commit $i"; done
git gc -q && git log --oneline | wc -l && git fsck
"""


def same(dropin: DropIn, plain: Plain, argv: list[str | Path], stdin: str | None = None) -> None:
    """The program ends well, prints what it prints without the library, and is told of nothing."""
    environment = {"PYTHONMALLOC": "malloc"}
    expected = plain.run(argv, stdin=stdin, environment=environment)
    finished = dropin.attempt(argv, stdin=stdin, environment=environment)
    check_status(finished)
    check_silent(finished)
    assert finished.stdout == expected.stdout


@hardened
def test_python(dropin: DropIn, plain: Plain) -> None:
    same(dropin, plain, [sys.executable, "-c", THREADS])


@alone
def test_python_test_suite(dropin: DropIn) -> None:
    require("python")
    parts = ["test_json", "test_dict", "test_list", "test_re", "test_array", "test_threading"]
    finished = dropin.attempt(
        [PYTHON, "-m", "test", *parts], environment={"PYTHONMALLOC": "malloc"}, timeout=600
    )
    check_status(finished)
    check_silent(finished)


@hardened
def test_sqlite3(dropin: DropIn, plain: Plain) -> None:
    require("sqlite3")
    script = (INPUTS / "workload.sql").read_text()
    same(dropin, plain, [command("sqlite3"), "-bail", ":memory:"], stdin=script)


@hardened
def test_perl(dropin: DropIn, plain: Plain) -> None:
    same(dropin, plain, ["/usr/bin/perl", ROOT / "bench" / "programs" / "words.pl", "1"])


@hardened
def test_compiler(dropin: DropIn, plain: Plain, tmp_path: Path) -> None:
    require("gcc")
    source = ROOT / "src" / "lang" / "text.c"
    flags: list[str | Path] = ["-O2", "-I", ROOT / "src", "-I", ROOT / "include", "-S", "-o", "-"]
    same(dropin, plain, ["/usr/bin/gcc", *flags, source])


@alone
def test_git(dropin: DropIn, tmp_path: Path) -> None:
    require("git")
    finished = dropin.attempt(["/bin/sh", "-ec", f"mkdir {tmp_path}/t; cd {tmp_path}/t\n{GIT}"])
    check_status(finished)
    check_silent(finished)
    assert finished.stdout.split()[0] == "40"


@alone
def test_redis(dropin: DropIn) -> None:
    require("redis")
    script = """
    redis-server --port 0 --unixsocket $PWD/socket --save '' --daemonize no >/dev/null &
    until redis-cli -s socket ping >/dev/null 2>&1; do sleep 0.1; done
    redis-benchmark -s socket -n 5000 -r 1000 -P 8 -t set,get,lpush,lpop,sadd,hset -q >/dev/null
    redis-cli -s socket debug reload >/dev/null
    redis-cli -s socket shutdown nosave
    wait
    """
    finished = dropin.attempt(["/bin/sh", "-ec", script])
    check_status(finished)
    check_silent(finished)


@under(HARDENED, NARROW, quick=(HARDENED, NARROW))
def test_limits(dropin: DropIn, plain: Plain) -> None:
    """A limit of the address space that is there at the start, or that the program sets."""
    script = LIMITS if dropin.setting is HARDENED else "print(len([bytes(i) for i in range(9999)]))"
    same(dropin, plain, [sys.executable, "-c", script])


@alone
def test_locked_memory(dropin: DropIn, plain: Plain) -> None:
    same(dropin, plain, [sys.executable, "-c", LOCKS])


@alone
def test_info_has_a_line(dropin: DropIn) -> None:
    script = "blocks = [bytes(1000)] * 1000; print('ready', flush=True); input()"
    shown = dropin.under(dropin.setting.with_options("registry=on"))
    process = shown.start([sys.executable, "-c", script])
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        info = subprocess.run(
            [KMEM, "info", str(process.pid)], capture_output=True, text=True, check=True
        )
        line = [line for line in info.stdout.splitlines() if line.startswith("# protect=")]
        assert re.fullmatch(
            r"# protect=hardened: [1-9]\d* bytes in slabs and \d+ in large blocks; \d+ bytes of"
            r" freed blocks wait, and \d+ without memory",
            line[0],
        )
    finally:
        stop(process)


FORMS = {
    "free": "from operator new",
    "delete": "not from operator new",
    "size": "freed with the size of another class",
    "realloc": "from operator new, and cannot be resized",
    "twice": "free already (double free)",
}


@alone
def test_right_forms(dropin: DropIn, plain: Plain, build: Build) -> None:
    same(dropin, plain, [build("forms", "forms.cpp", flags=["-Wno-mismatched-new-delete"]), "none"])


@alone
def test_library_with_the_runtime_inside(dropin: DropIn, plain: Plain, build: Build) -> None:
    """rustc's library is one: it frees what libLLVM made by an operator new that is not its own."""
    inside = ["-shared", "-fPIC", "-static-libstdc++", "-fvisibility=hidden"]
    inside.append("-Wl,--exclude-libs,ALL")
    library = build("libinner_runtime.so", "inner_runtime.cpp", flags=inside)
    place = f"-Wl,-rpath,{library.parent}"
    program = build("outer_runtime", "outer_runtime.cpp", libraries=[str(library), place])
    same(dropin, plain, [program])


@pytest.mark.parametrize("wrong", FORMS)
@alone
def test_wrong_forms(dropin: DropIn, build: Build, wrong: str) -> None:
    program = build("forms", "forms.cpp", flags=["-Wno-mismatched-new-delete"])
    finished = dropin.attempt([program, wrong])
    check_status(finished, 128 + signal.SIGABRT if finished.status > 0 else -signal.SIGABRT)
    assert FORMS[wrong] in finished.stderr
