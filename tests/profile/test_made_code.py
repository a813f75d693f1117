# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Stacks through code that a program makes while it runs, by its frame pointers."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from profiled import LIBRARY, on_library
from test_profile import MADE

from kmem.live.perf_maps import made_line
from kmem.live.pprof import Frame, Row
from kmem.live.registry.find import open_process
from kmem.live.sites import site_of
from kmem.live.stacks import read_stacks
from kmem.live.symbols import Symbols

pytestmark = pytest.mark.alone

SHOP = """
const kept = [];
function leak(size) { kept.push(Buffer.allocUnsafeSlow(size)); }
function handle(size) { leak(size); return size; }
class Shop { order(size) { return [size].map(handle)[0]; } }
function tick(shop) { for (let turn = 0; turn < 300; turn++) shop.order(50000 + turn); }
tick(new Shop());
console.log("ready");
process.stdin.resume();
"""


def stacks_of(process: int) -> list[tuple[int, list[str]]]:
    """The innermost address of each stack, and its names."""
    with (
        open_process(process) as registry,
        contextlib.closing(Symbols(process)) as symbols,
    ):
        assert symbols.look(lambda: True)
        return [
            (stack[0], [line.function for frame in symbols.frames(stack) for line in frame.lines])
            for stack in read_stacks(registry)
            if stack
        ]


def test_functions_in_javascript(tmp_path: Path) -> None:
    """From the start of the program to the function that allocates."""
    node = shutil.which("node")
    if node is None or not LIBRARY.exists():
        pytest.skip(f"there is no node here, or {LIBRARY} is not built")
    if os.uname().machine != "x86_64":
        pytest.skip("tried on x86-64 alone")
    program = tmp_path / "shop.js"
    program.write_text(SHOP)
    # Each function as a frame of its own: not optimized into another, nor in the interpreter's.
    words = ["--perf-basic-prof", "--interpreted-frames-native-stack", "--no-opt"]
    words += ["--no-logfile-per-isolate", f"--logfile={tmp_path / 'v8.log'}"]
    with on_library("profile_interval=16384", node, *words, program) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            stacks = stacks_of(process.pid)
            process.kill()
        finally:
            Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    leaking = [stack for _, stack in stacks if any("leak" in name for name in stack)]
    assert leaking
    wanted = ["leak", "handle", "order", "tick", "node::Start", "_start"]
    for stack in leaking:
        places = [next(at for at, name in enumerate(stack) if each in name) for each in wanted]
        assert places == sorted(places), stack


def test_the_site_is_outside_of_nodes_own() -> None:
    names = ["JS:*createUnsafeBuffer node:internal/buffer:1056:28", "JS:*from node:buffer:298:28"]
    names.append("JS:*remember /srv/shop.js:5:18")
    frames = [Frame(0x7F00, (made_line(name),), None) for name in names]
    assert site_of(Row(tuple(frames), (1,))) == ("remember (shop.js:5)",)
    assert site_of(Row(tuple(frames[:1]), (1,))) == ("createUnsafeBuffer (buffer:1056)",)


def test_behind_made_code() -> None:
    """The callers of a function with a frame pointer that no table knows."""
    if os.uname().machine != "x86_64":
        pytest.skip("the code is for x86-64")
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    with on_library("profile_interval=65536", sys.executable, "-c", MADE) as process:
        assert process.stdout is not None
        start = int(process.stdout.readline(), 16)
        stacks = stacks_of(process.pid)
        process.kill()
    made = [stack for address, stack in stacks if start < address < start + 64]
    assert made
    assert all("Py_BytesMain" in stack and stack[-1] == "_start" for stack in made), made
