# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Functions in Python in the stacks of samples: names, lines, places, in each interpreter here."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from profiled import LIBRARY, ROOT, on_library, profile, wait_for_registry

from kmem.live.lines import Line
from kmem.live.pprof import Frame, Mapping, Row
from kmem.live.registry.find import open_process
from kmem.live.sites import site_of
from kmem.live.stacks import ENTRY, PYTHON, python_line, read_names, read_stacks
from kmem.live.symbols import CUT, Symbols, merged

pytestmark = pytest.mark.alone

INTERPRETER = ROOT / "build" / "tests" / "profile" / "profile-interpreter"
KNOWN = ("3.11", "3.12", "3.13")
WANTED = "import sys, sysconfig; sys.exit(bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"


def python(version: str) -> str:
    """The interpreter of a version: the tests' own, or that of the system."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    path = sys.executable if own == version else shutil.which(f"python{version}")
    if path is None or subprocess.run([path, "-c", WANTED], capture_output=True).returncode:
        pytest.skip(f"there is no python{version} here")
    return path


# A block of more than 256 KiB is a sample of its own at this interval.
PROGRAM = """
import gc, os, sys, threading
kept = []
def take(size):
    kept.append(bytes(size))  # take
class Shop:
    def größe(self, size):
        list(map(take, [size]))  # shop
    @staticmethod
    def later(sizes):
        for size in sizes:
            yield Shop().größe(size)  # later
def recurse(depth, size):
    if depth:
        return recurse(depth - 1, size)  # deeper
    take(size)  # deepest
def made(size):
    names = {"take": take}
    exec(compile("def gone(size):\\n\\n    take(size)", "/nowhere/gone.py", "exec"), names)
    names["gone"](size)
    del names
    gc.collect()
def main():
    sorted([3], key=lambda number: take(1000000 + number))  # key
    for _ in Shop.later([2000000]): pass  # for
    recurse(100, 3000000)
    made(4000000)
    thread = threading.Thread(target=take, args=[5000000])
    thread.start()
    thread.join()
main()
child = os.fork() if sys.argv[1:] == ["fork"] else 1
if not child:
    # Until it has a registry of its own.
    for _ in range(3): [bytes(1000 + number) for number in range(3000)]
    take(6000000)  # child
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
if "fork" not in sys.argv: print("ready", flush=True)
sys.stdin.read()
"""
# Each function is gone before the next is made, which has its code, texts and table of lines in
# their place and of their sizes: they differ in a text or a line.
REMADE = """
import gc
def take(size):
    bytes(size)
def made(turn):
    names = {"take": take}
    text = f"def gone{turn % 3}(size):\\n" + "\\n" * (8 + turn // 6) + "    take(size)"
    exec(compile(text, f"/nowhere/{turn % 2}.py", "exec"), names)
    names[f"gone{turn % 3}"](1000000 * (1 + turn))
    del names
    gc.collect()
for turn in range(60): made(turn)
print("ready", flush=True)
input()
"""
INTERVAL = "profile_interval=65536"


def stacks_by_size(process: int) -> dict[int, tuple[Frame, ...]]:
    """The stack of each block of a million bytes and more, by its size in millions."""
    with (
        open_process(process) as registry,
        contextlib.closing(Symbols(process)) as symbols,
    ):
        assert symbols.look(lambda: True)
        symbols.python_names = read_names(registry)
        return {
            round(counts.size / 1e6): symbols.frames(stack)
            for stack, counts in read_stacks(registry).items()
            if counts.samples == 1 and counts.size > 900000
        }


def line_at(mark: str) -> int:
    lines = PROGRAM.splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def functions(frames: tuple[Frame, ...]) -> list[tuple[str, int]]:
    """Name and line of each function in Python."""
    return [
        (line.function, line.number)
        for frame in frames
        if frame.mapping is None
        for line in frame.lines
        if line.file
    ]


@pytest.mark.parametrize("version", KNOWN)
def test_functions_and_lines(version: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with on_library(INTERVAL, python(version), program) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        found = stacks_by_size(process.pid)
        process.kill()
    assert set(found) >= {1, 2, 3, 4, 5}, found.keys()
    take, end = ("take", line_at("take")), [("main", 0), ("<module>", 0)]

    def check(size: int, *expected: tuple[str, int], root: list[tuple[str, int]] = end) -> None:
        shown = functions(found[size])
        outer = [(name, 0) for name, _ in shown[len(expected) :]]
        assert (shown[: len(expected)], outer) == ([*expected], root)

    key = "main.<locals>.<lambda>", line_at("key")
    check(1, take, key, ("main", line_at("key")), root=end[1:])
    shop, later = ("Shop.größe", line_at("shop")), ("Shop.later", line_at("later"))
    check(2, take, shop, later, ("main", line_at("for")), root=end[1:])
    deep = [("recurse", line_at("deeper"))] * 62
    check(3, take, ("recurse", line_at("deepest")), *deep, root=[])
    check(4, take, ("gone", 3), root=[("made", 0), *end])
    check(
        5, take, root=[("Thread.run", 0), ("Thread._bootstrap_inner", 0), ("Thread._bootstrap", 0)]
    )
    files = {line.file for frame in found[4] for line in frame.lines if frame.mapping is None}
    assert {str(program), "/nowhere/gone.py"} <= files


@pytest.mark.parametrize("version", KNOWN)
def test_functions_in_each_others_place(version: str) -> None:
    with on_library(INTERVAL, python(version), "-c", REMADE, PYTHONMALLOC="malloc") as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        found = stacks_by_size(process.pid)
        process.kill()
    shown = {
        size - 1: (frame.lines[0].function, frame.lines[0].file, frame.lines[0].number)
        for size, frames in found.items()
        for frame in frames
        if frame.mapping is None and frame.lines[0].file.startswith("/nowhere")
    }
    assert shown == {
        turn: (f"gone{turn % 3}", f"/nowhere/{turn % 2}.py", 10 + turn // 6) for turn in range(60)
    }


@pytest.mark.parametrize("version", KNOWN)
def test_they_stand_between_the_calls_of_c(version: str, tmp_path: Path) -> None:
    """In place of the interpreter's own frames, of which none is left."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with on_library(INTERVAL, python(version), program) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        found = stacks_by_size(process.pid)
        process.kill()
    kinds = "".join("p" if frame.mapping is None else "c" for frame in found[2])
    # bytes(), take, list(map()), größe and later, next() in 3.11, main, the program's start
    assert re.fullmatch("c+pc+ppc*ppc+", kinds), kinds
    names = [frame.lines[-1].function for frame in found[2]]
    assert not any(name.startswith("_PyEval_EvalFrameDefault") for name in names), names


def test_in_a_child(tmp_path: Path) -> None:
    """Which shows the names in a registry of its own."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with on_library(INTERVAL, python("3.11"), program, "fork") as process:
        assert process.stdout is not None
        child = process.stdout.readline()
        wait_for_registry(int(child))
        found = stacks_by_size(int(child))
        process.kill()
    assert functions(found[6]) == [("take", line_at("take")), ("<module>", line_at("child"))]


@pytest.mark.parametrize("version", [0x030B07F0, 0x030C01F0, 0x030D00F0, 0x030E00F0])
def test_structures_of_any_kind(version: int) -> None:
    """Nothing is read that cannot be read, and chains and texts without an end are left."""
    if not INTERPRETER.exists():
        pytest.skip(f"{INTERPRETER} is not built")
    with on_library("profile_interval=1024", INTERPRETER, f"{version:x}", "30000") as process:
        assert process.stdout is not None and process.stdout.readline() == "end\n"
        with open_process(process.pid) as registry:
            names = read_names(registry)
            marked = [frame for stack in read_stacks(registry) for frame in stack if frame & PYTHON]
        process.kill()
    # Some of it looks like functions, or nothing would have been tried.
    if version >> 16 == 0x030E:
        assert not marked and not names
    else:
        assert len(names) > 100 and len(marked) > 100
    assert all(python_line(frame, names) is not None for frame in marked if frame & 0xFFFFFF)


LEAKING = """
import threading, time, urllib.request
from wsgiref.simple_server import WSGIRequestHandler, make_server
sessions, pages = {}, {}
class Quiet(WSGIRequestHandler):
    def log_message(self, *_): pass
def remember(path):
    sessions[len(sessions)] = bytearray(3000)  # the leak
def render(path):
    pages[len(path) % 50] = bytes(40000)
    return b"page"
def application(environ, start_response):
    path = environ["PATH_INFO"]
    remember(path)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [render(path)]
server = make_server("127.0.0.1", 0, application, handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
"""


# Samples behind functions of the module json, whose parts lie on many pages.
SAMPLED = """
import json
rows = [{"name": str(i), "values": list(range(i % 50)), "text": "x" * i} for i in range(500)]
for _ in range(100):
    rows = json.loads(json.dumps(rows))
"""


def test_pages_of_the_heap_need_no_call(tmp_path: Path) -> None:
    """Of a program with all objects on malloc the kernel is asked for few pages a sample."""
    strace = shutil.which("strace")
    if strace is None or not LIBRARY.exists():
        pytest.skip(f"there is no strace here, or {LIBRARY} is not built")
    options = {"LD_PRELOAD": LIBRARY, "KMEM_OPTIONS": "profile_interval=256K"}
    options["PYTHONMALLOC"] = "malloc"
    words = [word for name, value in options.items() for word in ("-E", f"{name}={value}")]
    told = tmp_path / "calls"
    subprocess.run(
        [strace, "-c", "-U", "name,calls", "-o", told, *words, "/usr/bin/python3", "-c", SAMPLED],
        check=True,
    )
    rows = [line.split() for line in told.read_text().splitlines()]
    calls = {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    samples = calls["gettid"]  # each is shown with its thread
    assert samples > 100
    assert calls["rt_sigprocmask"] < 10 * samples


def test_leak_of_a_web_application(tmp_path: Path) -> None:
    """The function and the line that leaks come first in what grew."""
    program = tmp_path / "shop.py"
    program.write_text(LEAKING)
    with on_library("registry=on", sys.executable, program) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        client = subprocess.Popen([sys.executable, "-c", CLIENT, str(port)])
        try:
            wait_for_registry(process.pid)
            words = ("--interval", "16384", "--seconds", "3", "--growth")
            done = profile(str(process.pid), *words)
        finally:
            client.kill()
            client.wait()
        process.kill()
    assert done.returncode == 0, done.stderr
    line = next(at for at, text in enumerate(LEAKING.splitlines(), 1) if "# the leak" in text)
    sites = re.findall(r"^ +\S+ +\S+ +(\S+ \(\S+\))", done.stdout, re.M)
    assert sites[0] == f"remember (shop.py:{line})", done.stdout
    assert "application (shop.py:" in done.stdout


CLIENT = """
import sys, urllib.request
number = 0
while True:
    number += 1
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/{'x' * (number % 50)}").read()
"""


PLACE = Mapping(0x1000, 0x2000, 0, "/usr/bin/python3")


def native(name: str, address: int = 7) -> Frame:
    return Frame(address, (Line(name),), PLACE)


def test_merged() -> None:
    evaluate = native("_PyEval_EvalFrameDefault")
    frames = [native("alloc"), evaluate, native("map"), evaluate, native("main")]
    marked = [(frame, frame is evaluate) for frame in frames]
    f, g, h = (Line(name, f"{name}.py", 1) for name in "fgh")

    def shown(functions: list[tuple[Line | None, bool]]) -> str:
        return " ".join(frame.lines[0].function for frame in merged(marked, functions))

    assert shown([(f, False), (g, True), (h, True)]) == "alloc f g map h main"
    assert shown([(f, True), (g, False), (h, True)]) == "alloc f map g h main"
    # The interpreter has been called, and its first function has not begun.
    assert shown([(None, True), (f, True)]) == "alloc _PyEval_EvalFrameDefault map f main"
    # More than its frames tell, fewer, and none.
    assert shown([(f, True), (g, True), (h, True)]) == "alloc f map g main h"
    assert shown([(f, True)]) == "alloc f map _PyEval_EvalFrameDefault main"
    cut = [*marked[:3], (Frame(0, (Line(CUT),), None), False)]
    names = [frame.lines[0].function for frame in merged(cut, [(f, True), (g, True)])]
    assert names == ["alloc", "f", "map", "g", CUT]


def test_what_a_frame_stands_for() -> None:
    names = {7: Line("f", "/a/f.py")}
    assert python_line(PYTHON | ENTRY | 12 << 32 | 7, names) == Line("f", "/a/f.py", 12)
    assert python_line(PYTHON | ENTRY, names) is None
    # A name that found no room.
    assert python_line(PYTHON | 12 << 32, names) == Line("[Python]", "", 12)


def test_site_in_python() -> None:
    frames = (native("bytes_new"), Frame(0, (Line("f", "/a/f.py", 3),), None), native("main"))
    assert site_of(Row(frames, (1,))) == ("f (f.py:3)",)


def test_names_of_trampolines(tmp_path: Path) -> None:
    """3.12 and newer write a map of their functions with -X perf; it is read as any other map."""
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    path.write_text("7f0000001000 80 py::Shop.order:/srv/shop.py\n")
    try:
        with contextlib.closing(Symbols(os.getpid())) as symbols:
            assert symbols.frame(0x7F0000001011).lines == (Line("Shop.order", "/srv/shop.py"),)
    finally:
        path.unlink()
