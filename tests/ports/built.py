# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Builds of the libraries for other machines and another libc, and programs that run on them."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".venv" / "bin"


@dataclass(frozen=True)
class Port:
    name: str
    compiler: str
    setup: tuple[str, ...] = ()
    emulator: str = ""  # the folder of its libc is named as its compiler
    static: tuple[str, ...] = ()  # what a static program needs besides libkmem.a
    inlines: bool = True  # whether kmem-inline.h does

    @property
    def triplet(self) -> str:
        return self.compiler.removesuffix("-gcc")

    def command(
        self, program: Path, variables: dict[str, str], page_bytes: int
    ) -> list[str | Path]:
        """Runs a program with variables of its own: the emulator keeps its libc's malloc."""
        if not self.emulator:
            return ["env", *map("=".join, variables.items()), program]
        # As in cross/: qemu keeps track of each page of address space that a program reserves.
        given = [word for each in variables.items() for word in ("-E", "=".join(each))]
        limit = ("prlimit", "--as=17179869184")
        place = ("-p", str(page_bytes), "-L", f"/usr/{self.triplet}")
        return [*limit, self.emulator, *place, *given, program]

    def run(
        self, program: Path, options: str, library: Path | None = None, page_bytes: int = 4096
    ) -> str:
        variables = {"KMEM_OPTIONS": options}
        if library:
            variables["LD_PRELOAD"] = str(library)
        return run(*self.command(program, variables, page_bytes))


PORTS = [
    Port("musl", "musl-gcc"),
    Port(
        "aarch64",
        "aarch64-linux-gnu-gcc",
        ("--cross-file", "cross/aarch64-linux-gnu.ini"),
        "qemu-aarch64",
    ),
    Port(
        "riscv64",
        "riscv64-linux-gnu-gcc",
        ("--cross-file", "cross/riscv64-linux-gnu.ini"),
        "qemu-riscv64",
        ("-latomic",),
        inlines=False,
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
    """Builds in build-ports/NAME/, which is kept for the next time; the folder of the libraries.

    Tests of two files may run at a time, and the second must not read what the first still writes.
    """
    folder = ROOT / "build-ports" / port.name
    path = f"{TOOLS}:{os.environ['PATH']}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{port.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "build.ninja").exists():
            run(TOOLS / "meson", "setup", folder, *port.setup, CC=port.compiler, PATH=path)
        run(TOOLS / "ninja", "-C", folder, "libraries", "src/libkmem.a", PATH=path)
    return folder / "src"


def need(port: Port) -> Port:
    """Skips what cannot be built or run here."""
    needed = [port.compiler, *([port.emulator] if port.emulator else [])]
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{port.name}: {' and '.join(missing)} missing")
    if port.name == "musl" and platform.machine() != "x86_64":
        pytest.skip("musl was tried on x86-64 only")
    return port


def compile_program(port: Port, made: Path, *words: str | Path, cc: Sequence[str] = ()) -> Path:
    run(*(cc or (port.compiler,)), "-std=gnu17", "-Wall", "-pthread", *words, "-o", made)
    return made
