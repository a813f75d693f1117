# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Methods of Java in profiles: the map that a virtual machine writes when jcmd asks for it.

test_java_methods.py has what is read of the machine's memory instead, where that is allowed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from profiled import LIBRARY, on_library

from kmem.live import java_maps
from kmem.live.lines import Line
from kmem.live.perf_maps import made_line
from kmem.live.pprof import Frame, Mapping, Row
from kmem.live.registry.find import open_process
from kmem.live.sites import site_of
from kmem.live.stacks import read_stacks
from kmem.live.symbols import Symbols

pytestmark = pytest.mark.alone

LEAK = """
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

public class Leak {
    static final List<ByteBuffer> kept = new ArrayList<>();

    static void remember(int bytes) {
        kept.add(ByteBuffer.allocateDirect(bytes));
    }

    static void serve() {
        for (int i = 0; i < 100; i++)
            remember(3000 + i);
    }

    public static void main(String[] words) throws Exception {
        for (int round = 0; round < 300; round++)
            serve();
        System.out.println("ready");
        System.in.read();
    }
}
"""
# Maps a file with the name of Java's library, as a virtual machine does, and runs until it is told.
STAND_IN = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.readline()
"""


def mapping(path: str) -> Mapping:
    return Mapping(0x1000, 0x2000, 0, path)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("void Leak.remember(int)", Line("Leak.remember", "Leak.class")),
        (
            "java.lang.String[] shop.Cart$Item.names(int, java.util.List)",
            Line("shop.Cart$Item.names", "shop/Cart$Item.class"),
        ),
        (
            "void java.nio.DirectByteBuffer.<init>(int)",
            Line("java.nio.DirectByteBuffer.<init>", "java/nio/DirectByteBuffer.class"),
        ),
        (
            "void Leak$$Lambda$14/0x0000000800c03000.run()",
            Line("Leak$$Lambda$14.run", "Leak$$Lambda$14.class"),
        ),
        ("Interpreter", Line("Interpreter")),
        ("I2C/C2I adapters", Line("I2C/C2I adapters")),
        # Of others.
        ("Builtin:ArrayPrototypePush", Line("Builtin:ArrayPrototypePush")),
        ("JS:*order /srv/shop.js:4:14", Line("order", "/srv/shop.js", 4)),
        ("void [shop] Shop.Cart::Put(int32)", Line("void [shop] Shop.Cart::Put(int32)")),
    ],
)
def test_names_of_maps(name: str, line: Line) -> None:
    assert made_line(name) == line


def made(name: str) -> Frame:
    return Frame(0x7F00, (made_line(name),), None)


def test_the_site_is_outside_of_javas_own() -> None:
    malloc = Frame(0x1100, (Line("os::malloc"),), mapping("/usr/lib/libjvm.so"))
    buffer = made("void java.nio.DirectByteBuffer.<init>(int)")
    own = made("void Leak.remember(int)")
    row = Row((malloc, buffer, own, made("void java.lang.Thread.run()")), (1, 1, 1, 1))
    assert site_of(row) == ("Leak.remember (Leak.class)", "java.lang.Thread.run (Thread.class)")
    # Nothing but Java's own is shown as it is.
    assert site_of(Row((malloc, buffer), (1, 1, 1, 1))) == (
        "java.nio.DirectByteBuffer.<init> (DirectByteBuffer.class)",
    )


@contextlib.contextmanager
def standing_in(name: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    library = folder / name
    library.write_bytes(bytes(4096))
    with subprocess.Popen(
        [sys.executable, "-c", STAND_IN, str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def jcmd(folder: Path, script: str) -> Path:
    """A stand-in for jcmd, first in PATH, which notes its words."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "jcmd"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder / "asked"}\n{script}\n')
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize(
    ("library", "script", "name", "note"),
    [
        ("libjvm.so", "echo '1000 100 void Leak.put(int)' > /tmp/perf-$1.map", "Leak.put", None),
        ("libjvm.so", "exit 1", "0x1010", "jcmd was refused"),
        ("libjvm.so", "exec sleep 60", "0x1010", "jcmd had no answer in 1 s"),
        ("libother.so", "exit 1", "0x1010", None),
    ],
)
def test_jcmd_is_asked_once(
    library: str,
    script: str,
    name: str,
    note: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the first name is wanted, of programs that have Java's library."""
    folder = jcmd(tmp_path, script)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(java_maps, "ANSWER_SECONDS", 1)
    with (
        standing_in(library, tmp_path) as process,
        contextlib.closing(Symbols(process.pid)) as symbols,
    ):
        try:
            assert symbols.look(lambda: True)
            names = [symbols.frame(address + 1).lines[0].function for address in (0x1010, 0x1010)]
        finally:
            Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    assert names == [name, name]
    asked = tmp_path / "asked"
    words = asked.read_text().splitlines() if asked.exists() else []
    assert words == ([f"{process.pid} Compiler.perfmap"] if library == "libjvm.so" else [])
    notes = symbols.notes or []
    assert [note] * len(notes) == [
        one.removeprefix("functions of Java may have no names: ").split(";")[0] for one in notes
    ]
    assert bool(notes) == bool(note)


def test_without_jcmd_and_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in("libjvm.so", tmp_path) as process:
        running, ended = Symbols(process.pid), Symbols(process.pid)
        with contextlib.closing(running), contextlib.closing(ended):
            assert running.look(lambda: True) and ended.look(lambda: True)
            monkeypatch.setenv("PATH", str(tmp_path))
            running.frame(0x1011)
            assert running.notes == [
                "functions of Java may have no names: there is no jcmd; expected that of OpenJDK 17"
                " or newer in PATH"
            ]
            process.kill()
            process.wait()
            # Its number may be another program's.
            ended.frame(0x1011)
            assert ended.notes == []


@pytest.mark.full
def test_methods_of_a_running_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack of a leak of direct buffers has its methods, where the memory cannot be read."""
    monkeypatch.setattr("kmem.live.symbols.open_machine", lambda *_: None)
    if not shutil.which("javac") or not shutil.which("jcmd"):
        pytest.skip("there is no development kit of Java here")
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    if os.uname().machine != "x86_64":
        pytest.skip("tried on x86-64 alone")
    (tmp_path / "Leak.java").write_text(LEAK)
    subprocess.run(["javac", "Leak.java"], cwd=tmp_path, check=True)
    # Each method as a frame of its own, and compiled.
    words = ["-XX:+PreserveFramePointer", "-XX:-Inline", "-Xcomp", "-XX:-UseOnStackReplacement"]
    words += [
        "-XX:CompileCommand=quiet",
        "-Xmx64m",
        "-XX:MaxDirectMemorySize=512m",
        "-cp",
        str(tmp_path),
        "Leak",
    ]
    with on_library("profile_interval=16384", "java", *words) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            with (
                open_process(process.pid) as registry,
                contextlib.closing(Symbols(process.pid)) as symbols,
            ):
                assert symbols.look(lambda: True)
                rows = [Row(symbols.frames(stack), (1, 1, 1, 1)) for stack in read_stacks(registry)]
                assert symbols.notes == []
            process.kill()
        finally:
            Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    sites = [site_of(row) for row in rows]
    leaking = [site for site in sites if site[0] == "Leak.remember (Leak.class)"]
    assert leaking
    for site in leaking:
        assert site[1:3] == ("Leak.serve (Leak.class)", "Leak.main (Leak.class)"), site
