# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The libraries built for musl, and for RISC-V under emulation, and a program on each."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("heap.c")
FLAGS = ("-std=gnu17", "-O1", "-Wall", "-fno-builtin", "-pthread", PROGRAM)
TOOLS = ROOT / ".venv" / "bin"
# As in cross/: qemu keeps track of each page of address space that a program reserves.
EMULATOR = ("prlimit", "--as=17179869184", "qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")


@dataclass(frozen=True)
class Port:
    name: str
    compiler: str
    setup: tuple[str, ...]
    emulator: tuple[str, ...]
    static: tuple[str, ...]  # what a static program needs besides libkmem.a

    def run(self, program: Path, options: str, library: Path | None = None) -> str:
        variables = {"KMEM_OPTIONS": options}
        if library:
            variables["LD_PRELOAD"] = str(library)
        if not self.emulator:
            return run(program, **variables)
        # The emulator itself keeps its own libc's malloc.
        given = [word for each in variables.items() for word in ("-E", "=".join(each))]
        return run(*self.emulator, *given, program)


PORTS = [
    Port("musl", "musl-gcc", (), (), ()),
    Port(
        "riscv64",
        "riscv64-linux-gnu-gcc",
        ("--cross-file", "cross/riscv64-linux-gnu.ini"),
        EMULATOR,
        ("-latomic",),
    ),
]


def run(*command: str | Path, **variables: str) -> str:
    """Runs a command, which must succeed; returns what it prints."""
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@cache
def build(port: Port) -> Path:
    """Builds in build-NAME/, which is kept for the next time."""
    folder = ROOT / f"build-{port.name}"
    path = f"{TOOLS}:{os.environ['PATH']}"
    if not (folder / "build.ninja").exists():
        run(TOOLS / "meson", "setup", folder, *port.setup, CC=port.compiler, PATH=path)
    run(TOOLS / "ninja", "-C", folder, "libraries", "src/libkmem.a", PATH=path)
    return folder / "src"


@pytest.fixture(params=PORTS, ids=lambda port: port.name)
def port(request: pytest.FixtureRequest) -> Port:
    chosen: Port = request.param
    needed = [chosen.compiler, *chosen.emulator[2:3]]
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{chosen.name}: {' and '.join(missing)} missing")
    if chosen.name == "musl" and platform.machine() != "x86_64":
        pytest.skip("musl was tried on x86-64 only")
    return chosen


@pytest.fixture
def program(port: Port, tmp_path: Path) -> Callable[..., Path]:
    def compiled(*words: str | Path) -> Path:
        emulated = ("-DEMULATED",) if port.emulator else ()
        run(port.compiler, *FLAGS, *emulated, *words, "-o", tmp_path / "heap")
        return tmp_path / "heap"

    return compiled


@pytest.mark.parametrize("options", ["", "slots=locked"])
def test_drop_in(port: Port, program: Callable[..., Path], options: str) -> None:
    assert port.run(program(), options, build(port) / "libkmem-malloc.so") == ""


def test_stacks(port: Port, program: Callable[..., Path]) -> None:
    """The compiler's unwinder runs, which for musl is glibc's (older_libc.c)."""
    heap = program("-DSTEPS=200", "-DDETACHED=20")
    assert port.run(heap, "debug=U", build(port) / "libkmem-malloc.so") == ""


def test_static_program(port: Port, program: Callable[..., Path]) -> None:
    heap = program(build(port) / "libkmem.a", *port.static, "-static")
    assert port.run(heap, "") == ""


def test_sequences_on_musl(port: Port, program: Callable[..., Path]) -> None:
    """Detached threads end with an area of ours; no message says that sequences are refused."""
    if port.name != "musl":
        pytest.skip(f"{port.name} has no restartable sequences")
    assert port.run(program(), "slots=rseq", build(port) / "libkmem-malloc.so") == ""
