# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The libraries built for musl by Debian's musl-gcc, in build-musl/, and a program on each."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build-musl"
LIBRARIES = ("libkmem.a", "libkmem-malloc.so")
PROGRAM = Path(__file__).with_name("heap.c")
COMPILE = ("musl-gcc", "-std=gnu17", "-O1", "-Wall", "-fno-builtin", PROGRAM)

pytestmark = [
    pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="needs musl-gcc (musl-tools)"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="musl was tried on x86-64 only"),
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


@pytest.fixture(scope="module")
def built() -> Path:
    tools = str(ROOT / ".venv" / "bin")
    path = f"{tools}:{os.environ['PATH']}"
    if not (FOLDER / "build.ninja").exists():
        run(f"{tools}/meson", "setup", FOLDER, CC="musl-gcc", PATH=path)
    run(f"{tools}/ninja", "-C", FOLDER, "src/libkmem.a", "src/libkmem-malloc.so.0", PATH=path)
    return FOLDER / "src"


@pytest.mark.parametrize("slots", ["rseq", "locked"])
def test_drop_in(built: Path, tmp_path: Path, slots: str) -> None:
    run(*COMPILE, "-o", tmp_path / "heap")
    library = built / "libkmem-malloc.so"
    options = f"slots={slots}"
    assert run(tmp_path / "heap", LD_PRELOAD=str(library), KMEM_OPTIONS=options) == ""


def test_static_program(built: Path, tmp_path: Path) -> None:
    run(*COMPILE, built / "libkmem.a", "-static", "-o", tmp_path / "heap")
    assert run(tmp_path / "heap", KMEM_OPTIONS="slots=rseq") == ""


def test_stacks_of_debug_caches(built: Path, tmp_path: Path) -> None:
    """The compiler's unwinder is glibc's, and finds its tables without glibc (older_libc.c)."""
    run(*COMPILE, "-o", tmp_path / "heap")
    library = built / "libkmem-malloc.so"
    assert run(tmp_path / "heap", LD_PRELOAD=str(library), KMEM_OPTIONS="debug=U") == ""
