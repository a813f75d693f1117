# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Inlined sequences for the ports, and the instructions of AArch64's.

Under emulation no kernel registers an area, so inlined code takes the library's calls there, on
locked slots. The sequences themselves run on booted machines (tests/booted).
"""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from built import PORTS, ROOT, Port, build, compile_program, need, run

INLINE = ROOT / "tests" / "inline"
WARNINGS = ("-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-Wno-unused-parameter")
AARCH64 = next(port for port in PORTS if port.name == "aarch64")
BINUTILS = "aarch64-linux-gnu-"
SIGNATURE = 0xD428BC00

# Compilers, and whether they inline.
COMPILERS = {
    "gcc": (("aarch64-linux-gnu-gcc",), True),
    "clang": (("clang", "--target=aarch64-linux-gnu"), True),
}
WAYS = {
    "O0": ("-O0",),
    "O2": ("-O2",),
    "O3-lto": ("-O3", "-flto"),
    "no-pie": ("-O2", "-fno-pie", "-no-pie"),
    "bti": ("-O2", "-mbranch-protection=standard", "-D_FORTIFY_SOURCE=2"),
    "calls": ("-O2", "-DKMEM_INLINE_CALLS"),
}


def link_flags(libraries: Path) -> list[str | Path]:
    return ["-L", libraries, "-lkmem", f"-Wl,-rpath,{libraries}"]


def compiler(family: str) -> tuple[str, ...]:
    command = COMPILERS[family][0]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is missing")
    return command


def check(port: Port, program: Path, options: str, *, inlined: bool) -> None:
    expected = "ok, inlined\n" if inlined else "ok, called\n"
    assert port.run(program, options) == expected, options


@pytest.mark.parametrize("source", ["inlined.c", "first_use.c"])
def test_inlined(port: Port, source: str, tmp_path: Path) -> None:
    words = ("-O2", *WARNINGS, "-I", ROOT / "include", INLINE / source)
    program = compile_program(port, tmp_path / "program", *words, *link_flags(build(port)))
    check(port, program, "reserve=1G", inlined=port.inlines)


@pytest.mark.parametrize("family", COMPILERS)
@pytest.mark.parametrize("way", WAYS)
def test_ways(family: str, way: str, tmp_path: Path) -> None:
    command = compiler(family)
    if family == "clang" and "lto" in way:
        pytest.skip("clang's own linker for foreign machines is not asked for")
    libraries = build(need(AARCH64))
    words = (*WAYS[way], *WARNINGS, "-I", ROOT / "include", INLINE / "first_use.c")
    program = tmp_path / "program"
    compile_program(AARCH64, program, *words, *link_flags(libraries), cc=command)
    check(AARCH64, program, "reserve=1G", inlined=way != "calls")


def test_static_program(tmp_path: Path) -> None:
    words = ("-O2", "-static", "-I", ROOT / "include", INLINE / "first_use.c")
    archive = build(need(AARCH64)) / "libkmem.a"
    program = compile_program(AARCH64, tmp_path / "program", *words, archive)
    check(AARCH64, program, "reserve=1G", inlined=True)


# ---- The instructions ----------------------------------------------------------------------------


class Code:
    """The disassembly of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        listing = run(f"{BINUTILS}objdump", "-d", "--no-show-raw-insn", "-w", path)
        self.text: dict[int, str] = {}  # by address
        self.functions: dict[str, int] = {}
        for line in listing.splitlines():
            if found := re.match(r"([0-9a-f]+) <([^>]+)>:$", line):
                self.functions[found[2]] = int(found[1], 16)
            elif found := re.match(r"\s*([0-9a-f]+):\t(.+?)(?:\s+//.*)?$", line):
                self.text[int(found[1], 16)] = found[2]

    def descriptors(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Address, version with flags, start, length, abort address of each."""
        sections = run(f"{BINUTILS}readelf", "-SW", self.path)
        found = re.search(r" __rseq_cs\s+\S+\s+(\w+)\s+(\w+)\s+(\w+)", sections)
        assert found, "no descriptors"
        address, offset, size = (int(number, 16) for number in found.groups())
        content = self.path.read_bytes()[offset : offset + size]
        relocations = run(f"{BINUTILS}readelf", "-rW", self.path)
        target = {
            int(place, 16): int(value, 16)
            for place, value in re.findall(
                r"^(\w+)\s+\w+\s+R_AARCH64_RELATIV\w*\s+(\w+)$", relocations, re.MULTILINE
            )
        }
        assert len(content) % 64 == 0
        for at in range(0, len(content), 32):
            version, _, length, _ = struct.unpack_from("<QQQQ", content, at)
            yield address + at, version, target[address + at + 8], length, target[address + at + 24]

    def sequence(self, start: int, length: int) -> list[str]:
        """From the reading of the thread pointer to the commit."""
        return [self.text[at] for at in range(start - 20, start + length, 4)]


def unified(instructions: list[str]) -> list[str]:
    """Registers by the order in which they occur; without addresses of branches and descriptors."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return found[1] + names.setdefault(found[2], str(len(names)))

    without = [re.sub(r"[0-9a-f]+ <.*>", "-", text) for text in instructions]
    without[3] = re.sub(r"#.*", "-", without[3])  # behind the adrp
    return [re.sub(r"\b([wx])(\d+)\b", name, text) for text in without]


@pytest.fixture(scope="module")
def library() -> Code:
    return Code(build(need(AARCH64)) / "libkmem-malloc.so.0")


@pytest.fixture(scope="module", params=COMPILERS)
def hits(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Code:
    made = tmp_path_factory.mktemp("hits") / "hits.so"
    words = ("-O2", "-fPIC", "-shared", "-I", ROOT / "include", INLINE / "hits.c")
    libraries = build(need(AARCH64))
    command = compiler(request.param)
    return Code(compile_program(AARCH64, made, *words, *link_flags(libraries), cc=command))


def function_of(code: Code, address: int) -> str:
    return max((start, name) for name, start in code.functions.items() if start <= address)[1]


def test_programs_have_the_sequences_of_the_library(library: Code, hits: Code) -> None:
    """Instruction for instruction, but for the numbers of registers."""
    known = {
        "\n".join(unified(library.sequence(start, length)))
        for _, _, start, length, _ in library.descriptors()
    }
    inlined = [
        (function_of(hits, start), "\n".join(unified(hits.sequence(start, length))))
        for _, _, start, length, _ in hits.descriptors()
    ]
    assert {name for name, _ in inlined} == {"hit_alloc", "hit_free", "hit_pair"}
    for name, text in inlined:
        assert text in known, f"{name}:\n{text}"


def test_descriptors(library: Code, hits: Code) -> None:
    """Each sequence has two, and begins behind the store of its address; its last instruction is
    its commit; an abort goes to the store once, with the other descriptor, and out then.
    """
    commits = set()
    for code in (library, hits):
        pairs = groupby(enumerate(code.descriptors()), lambda each: each[0] // 2)
        for _, ((_, first), (_, second)) in pairs:
            _, version, start, length, abort = first
            assert version == second[1] == 0
            assert second[2:4] == (start, length)
            assert re.match(r"str\tx\d+, \[x\d+, #8\]", code.text[start - 4])
            for address in (abort, second[4]):
                assert not start <= address < start + length
                assert (
                    f"{SIGNATURE:#x}" in code.text[address - 4] or "brk" in code.text[address - 4]
                )
            assert code.text[abort + 8].startswith(f"b\t{start - 4:x} ")
            assert code.text[second[4]].startswith("b\t")
            assert f"{start - 4:x}" not in code.text[second[4]]
            commits.add(code.text[start + length - 4].split()[0])
            inside = [code.text[at] for at in range(start, start + length, 4)]
            assert not any(text.startswith(("bl\t", "blr\t", "ret", "svc")) for text in inside)
    assert commits == {"str", "stlr", "stlxp"}


def test_replace_is_whole_on_every_processor(library: Code) -> None:
    """A pair is stored by a store-exclusive, with no access to memory since the load-exclusive."""
    found = 0
    for _, _, start, length, _ in library.descriptors():
        texts = [library.text[at] for at in range(start, start + length, 4)]
        assert not any(text.startswith("stp") for text in texts)
        if texts[-1].startswith("stlxp"):
            between = texts[texts.index(next(t for t in texts if t.startswith("ldxp"))) + 1 : -1]
            assert {text.split()[0] for text in between} == {"cmp", "b.ne"}
            found += 1
    assert found


# Instructions from a function's start to its return when there is an object and room, but for
# those that save registers.
HITS = {"hit_alloc": 26, "hit_free": 34, "hit_pair": 54}
SAVES = re.compile(r"(stp|ldp)\s.*\[sp|str\s+\w+, \[sp|ldr\s+\w+, \[sp|mov\s+x29|nop|(pac|aut|bti)")


def path_of_hit(code: Code, function: str) -> list[str]:
    """The instructions up to the first return, jumps followed, branches not."""
    at = code.functions[function]
    path: list[str] = []
    while len(path) < 200:
        text = code.text[at]
        if not SAVES.match(text):
            path.append(text)
        if text.startswith("ret"):
            return path
        jump = re.match(r"b\t([0-9a-f]+)", text)
        at = int(jump[1], 16) if jump else at + 4
    raise AssertionError(f"no return within 200 instructions of {function}")


def test_instructions_of_a_hit(hits: Code) -> None:
    for function, limit in HITS.items():
        path = path_of_hit(hits, function)
        shown = f"{function}, {len(path)} instructions:\n" + "\n".join(path)
        assert len(path) <= limit, shown
        assert not any(re.match(r"(bl|blr|svc|dmb)\b", text) for text in path), shown
