# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The fast paths as built: counted from the disassembly of libkmem-malloc.so.

A hit runs from the symbol to the first `ret` with no conditional branch taken:
the compiler lays the slow paths out of line. On that path there is no call, no
lock prefix and no exchange with memory, and no more instructions than LIMITS
says.
"""

from __future__ import annotations

import itertools
import platform
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build" / "src" / "libkmem-malloc.so"
SIGNATURE = 0x53053053

# What a hit may cost. malloc and free are promised; the others are kept from growing.
LIMITS = {
    "malloc": 25,
    "free": 27,
    "_Znwm": 25,
    "_Znam": 25,
    "_ZdlPv": 27,
    "_ZdaPv": 27,
    "_ZdlPvm": 27,
    "kmalloc": 29,
    "kfree": 26,
    "kmem_cache_alloc": 24,
    "kmem_cache_free": 24,
}

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the sequences are counted on x86-64"
)


def tool_output(*command: str | Path) -> str:
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is missing (Debian package binutils)")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def library() -> Path:
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    return LIBRARY


@pytest.fixture(scope="module")
def instructions(library: Path) -> dict[int, str]:
    """Every instruction by address."""
    found = {}
    for line in tool_output("objdump", "-d", "--no-show-raw-insn", "-w", library).splitlines():
        match = re.match(r"\s*([0-9a-f]+):\t(.+)", line)
        if match:
            found[int(match.group(1), 16)] = match.group(2).split("#")[0].strip()
    return found


@pytest.fixture(scope="module")
def symbols(library: Path) -> dict[str, int]:
    found = {}
    for line in tool_output("objdump", "-T", library).splitlines():
        match = re.match(r"([0-9a-f]+) .{7} \.text(?:\.used)?\t[0-9a-f]+\s+(?:\S+\s+)?(\S+)$", line)
        if match:
            found[match.group(2)] = int(match.group(1), 16)
    return found


def path_of_hit(instructions: dict[int, str], start: int) -> list[str]:
    """From a function's start to its first ret: jumps are followed, branches are not."""
    addresses = sorted(instructions)
    following = dict(itertools.pairwise(addresses))
    path: list[str] = []
    at = start
    while len(path) < 200:
        text = instructions[at]
        mnemonic = text.split()[0]
        if not mnemonic.startswith(("nop", "endbr", "data16", "cs")):
            path.append(text)
        if mnemonic.startswith("ret") or text.startswith("repz ret"):
            return path
        jump = re.match(r"jmp\s+([0-9a-f]+)", text)
        at = int(jump.group(1), 16) if jump else following[at]
    raise AssertionError(f"no ret within 200 instructions of {start:x}")


@pytest.mark.parametrize("name", LIMITS)
def test_instructions_of_a_hit(
    name: str, instructions: dict[int, str], symbols: dict[str, int]
) -> None:
    path = path_of_hit(instructions, symbols[name])
    listing = "\n".join(path)
    assert len(path) <= LIMITS[name], f"{len(path)} instructions:\n{listing}"


@pytest.mark.parametrize("name", LIMITS)
def test_no_call_and_no_atomic(
    name: str, instructions: dict[int, str], symbols: dict[str, int]
) -> None:
    for text in path_of_hit(instructions, symbols[name]):
        words = text.split()
        assert not words[0].startswith(("call", "lock", "mfence", "syscall", "cpuid")), text
        assert "lock" not in words, text
        # xchg with memory locks the bus without the prefix.
        assert not (words[0].startswith("xchg") and "(" in text), text


@pytest.mark.parametrize("name", LIMITS)
def test_one_commit(name: str, instructions: dict[int, str], symbols: dict[str, int]) -> None:
    """A hit stores the descriptor's address, at most one object, and the size.

    A free by address also marks the object, and malloc's clears the mark (percpu/freed.h).
    """
    marks = not name.startswith("kmem_cache")
    path = path_of_hit(instructions, symbols[name])
    stores = [text for text in path if re.search(r",\s*[^,]*\([^)]*\)$", text)]
    stores = [text for text in stores if not text.startswith(("cmp", "test", "lea", "jmp"))]
    increments = [text for text in path if text.startswith(("inc", "addl")) and "(" in text]
    assert len(set(stores) | set(increments)) <= 3 + marks, stores + increments


def test_kmalloc_reads_the_limit_first(library: Path) -> None:
    """The first calls of two threads may meet; the limit is the last word that the start writes.

    include/kmem-sequence.h has the layout: the limit behind five words, the map first.
    """
    text = tool_output("objdump", "-d", "--no-show-raw-insn", "--disassemble=kmalloc", library)
    read = re.findall(r"<kmem_inline_layout_1(?:\+0x([0-9a-f]+))?>", text)
    assert "" in read
    assert read[0] == "28"


def read_section(library: Path, name: str) -> tuple[int, bytes]:
    """Address and content of a section."""
    for line in tool_output("readelf", "-SW", library).splitlines():
        match = re.match(
            r"\s*\[\s*\d+\]\s+(\S+)\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)", line
        )
        if match and match.group(1) == name:
            address, offset, size = (int(match.group(i), 16) for i in (2, 3, 4))
            return address, library.read_bytes()[offset : offset + size]
    raise AssertionError(f"no section {name}")


def relative_relocations(library: Path) -> dict[int, int]:
    found = {}
    for line in tool_output("readelf", "-rW", library).splitlines():
        match = re.match(r"([0-9a-f]+)\s+\S+\s+R_X86_64_RELATIVE\s+([0-9a-f]+)", line)
        if match:
            found[int(match.group(1), 16)] = int(match.group(2), 16)
    return found


def test_descriptors(library: Path, instructions: dict[int, str]) -> None:
    """Version 0, no flags, a sequence inside code, and an abort address behind the signature."""
    base, content = read_section(library, "__rseq_cs")
    failure_base, failure = read_section(library, "__rseq_failure")
    codes = [read_section(library, name) for name in (".text", ".text.used")]
    relocations = relative_relocations(library)
    assert len(content) % 32 == 0
    assert len(content) // 32 >= 4
    for at in range(0, len(content), 32):
        version, flags, _, length, _ = struct.unpack_from("<IIQQQ", content, at)
        start = relocations[base + at + 8]
        abort = relocations[base + at + 24]
        assert (version, flags) == (0, 0)
        assert any(code_base <= start < code_base + len(code) for code_base, code in codes)
        assert 0 < length < 512
        assert start in instructions
        assert start + length in instructions
        assert not start <= abort < start + length
        place = abort - failure_base
        assert 4 <= place < len(failure)
        assert struct.unpack_from("<I", failure, place - 4)[0] == SIGNATURE


def test_descriptor_stores(library: Path, instructions: dict[int, str]) -> None:
    """Every sequence begins right behind the store of its descriptor's address."""
    base, content = read_section(library, "__rseq_cs")
    relocations = relative_relocations(library)
    addresses = sorted(instructions)
    previous = dict(zip(addresses[1:], addresses, strict=False))
    for at in range(0, len(content), 32):
        start = relocations[base + at + 8]
        assert re.match(r"mov\s+%\w+,%fs:0x8\(%\w+\)", instructions[previous[start]])


def test_aborts(library: Path, instructions: dict[int, str]) -> None:
    """An aborted sequence goes to its store again, with a second descriptor, but only once."""
    base, content = read_section(library, "__rseq_cs")
    relocations = relative_relocations(library)
    addresses = sorted(instructions)
    previous = dict(zip(addresses[1:], addresses, strict=False))
    following = dict(itertools.pairwise(addresses))
    for at in range(base, base + len(content), 64):
        start = relocations[at + 8]
        abort = relocations[at + 24]
        assert relocations[at + 40] == start
        assert instructions[abort].startswith("lea ")
        assert jump_target(instructions[following[abort]]) == previous[start]
        assert jump_target(instructions[relocations[at + 56]]) != previous[start]


def jump_target(instruction: str) -> int:
    match = re.match(r"jmp\s+([0-9a-f]+)", instruction)
    assert match, instruction
    return int(match.group(1), 16)
