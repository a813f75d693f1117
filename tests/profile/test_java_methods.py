# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Methods of Java, inlined ones among them, read from a machine's memory."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from profiled import LIBRARY, on_library

from kmem.live.java_methods import Machine, Unreadable, read_lines, read_packed
from kmem.live.lines import Line
from kmem.live.pprof import Row
from kmem.live.registry.find import open_process
from kmem.live.sites import top_sites
from kmem.live.stacks import read_stacks
from kmem.live.symbols import Symbols

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
from java_machine import Picture, make, packed, steps

pytestmark = pytest.mark.alone

SERVE = Line("shop.Page$$Lambda.serve", "shop/Page$$Lambda.class", 600)
REMEMBER = Line("shop.Cart.remember", "shop/Cart.java", 13)
ADD = Line("java.util.ArrayList.add", "java/util/ArrayList.java", 900)
EXPECTED: dict[str, tuple[Line, ...]] = {
    "outer": (SERVE,),
    "inlined": (ADD, REMEMBER, SERVE),
    "one": (REMEMBER, SERVE),
    # The record of the next call, as debuggers take it.
    "between": (REMEMBER, SERVE),
    "behind": (Line(SERVE.function, SERVE.file),),
    "native": (Line("java.io.File.open0", "java/io/File.java"),),
    "interpreter": (Line("Interpreter"),),
    "free": (),
    "elsewhere": (),
}


@pytest.mark.parametrize("is_newer", [False, True])
def test_methods_at_addresses(is_newer: bool) -> None:
    made = make(is_newer=is_newer)
    machine = Machine(Picture(bytes(made.content)), made.structs, made.types)
    assert {name: machine.lines_at(at) for name, at in made.calls.items()} == EXPECTED


def test_names_stay_when_the_code_goes() -> None:
    made = make(is_newer=True)
    picture = Picture(bytes(made.content))
    machine = Machine(picture, made.structs, made.types)
    seen = ("inlined", "native")
    assert [machine.lines_at(made.calls[name]) for name in seen] == [EXPECTED[n] for n in seen]
    picture.content = bytes(len(picture.content))
    machine.look_again()
    found = {name: machine.lines_at(at) for name, at in made.calls.items()}
    assert found == {name: EXPECTED[name] if name in seen else () for name in made.calls}


@pytest.mark.parametrize("is_newer", [False, True])
def test_damaged_memory(is_newer: bool) -> None:
    """Whatever the memory holds, there are names or none, and the reader comes to an end."""
    made = make(is_newer=is_newer)
    draw = random.Random(1)
    named = whole = 0
    for _ in range(1000):
        content = bytearray(made.content)
        for _ in range(draw.choice((1, 3, 30))):
            content[draw.randrange(len(content))] = draw.choice((0, 1, 0xFF, draw.randrange(256)))
        try:
            machine = Machine(Picture(bytes(content)), made.structs, made.types)
        except Unreadable:
            continue
        found = {name: machine.lines_at(at) for name, at in made.calls.items()}
        assert all(line.function.isprintable() for lines in found.values() for line in lines)
        named += any(found.values())
        whole += found == EXPECTED
    assert 0 < whole < named < 1000


@pytest.mark.parametrize("base", [0, 1])
def test_packed_numbers(base: int) -> None:
    for number in (0, 1, 190, 191, 192, 255, 256, 12479, 12480, 1 << 20, (1 << 32) - 1):
        content = packed(number, base)
        assert read_packed(b"xx" + content + b"x", 2, base) == (number, 2 + len(content))
        with pytest.raises(Unreadable):
            read_packed(content[:-1] if number > 191 else b"", 0, base)
    lines = [(0, 3), (2, 4), (40, 4), (41, 2), (300, 5000)]
    assert read_lines(steps(lines, base), base) == lines


LEAK = """
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

public class Leak {
    static final List<ByteBuffer> kept = new ArrayList<>();

    static void remember(int bytes) {
        kept.add(ByteBuffer.allocateDirect(bytes)); // remember
    }

    static void serve() {
        for (int i = 0; i < 100; i++)
            remember(3000 + i); // serve
    }

    public static void main(String[] words) throws Exception {
        for (int round = 0; round < 300; round++)
            serve(); // main
        System.out.println("ready");
        System.in.read();
    }
}
"""
MACHINES = sorted({path.resolve() for path in Path("/usr/lib/jvm").glob("*/bin/java")})


def place(mark: str) -> str:
    number = next(n for n, line in enumerate(LEAK.splitlines(), 1) if line.endswith(f"// {mark}"))
    return f"Leak.{mark} (Leak.java:{number})"


@pytest.mark.full
@pytest.mark.parametrize("java", MACHINES, ids=lambda path: path.parents[1].name)
def test_inlined_methods_of_a_running_machine(java: Path, tmp_path: Path) -> None:
    """The compiler puts one method into the other; both have their lines, and no map is written."""
    if not shutil.which("javac"):
        pytest.skip("there is no development kit of Java here")
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    if os.uname().machine != "x86_64":
        pytest.skip("tried on x86-64 alone")
    (tmp_path / "Leak.java").write_text(LEAK)
    subprocess.run(["javac", "--release", "17", "Leak.java"], cwd=tmp_path, check=True)
    words = ["-XX:+PreserveFramePointer", "-Xcomp", "-XX:-UseOnStackReplacement", "-Xmx64m"]
    words += ["-XX:CompileCommand=quiet", "-XX:CompileCommand=inline,Leak.remember"]
    words += ["-XX:CompileCommand=dontinline,Leak.serve", "-XX:MaxDirectMemorySize=512m"]
    with on_library("profile_interval=16384", java, *words, "-cp", tmp_path, "Leak") as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        with (
            open_process(process.pid) as registry,
            contextlib.closing(Symbols(process.pid)) as symbols,
        ):
            assert symbols.look(lambda: True)
            rows = [Row(symbols.frames(stack), (1, 1, 1, 1)) for stack in read_stacks(registry)]
            assert symbols.notes == []
        assert not Path(f"/tmp/perf-{process.pid}.map").exists()
    # Some calls come from the interpreter, whose callers are not known.
    sites = {calls[0]: calls for _, _, calls in top_sites(rows, 3)}
    wanted = (place("remember"), place("serve"), place("main"))
    assert sites[place("remember")][:3] == wanted, sites
    # In one frame of the machine's code.
    assert any(
        [line.function for line in frame.lines][-2:] == ["Leak.remember", "Leak.serve"]
        for row in rows
        for frame in row.frames
    )
