# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The libraries for musl, and for AArch64 and RISC-V under emulation, and a program on each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from built import Port, build, compile_program

PROGRAM = Path(__file__).with_name("heap.c")


@pytest.fixture
def program(port: Port, tmp_path: Path) -> Callable[..., Path]:
    def compiled(*words: str | Path) -> Path:
        emulated = ("-DEMULATED",) if port.emulator else ()
        flags = ("-O1", "-fno-builtin", PROGRAM)
        return compile_program(port, tmp_path / "heap", *flags, *emulated, *words)

    return compiled


@pytest.mark.parametrize("options", ["", "slots=locked"])
def test_drop_in(port: Port, program: Callable[..., Path], options: str) -> None:
    assert port.run(program(), options, build(port) / "libkmem-malloc.so") == ""


@pytest.mark.parametrize("page_bytes", [16384, 65536])
@pytest.mark.parametrize("options", ["", "debug=FZ", "engine=slab"])
def test_larger_pages(
    port: Port, program: Callable[..., Path], page_bytes: int, options: str
) -> None:
    """The emulator gives the program pages of that size."""
    if port.name != "aarch64":
        pytest.skip(f"{port.name}: the processor has pages of 4 KiB only")
    heap = program("-DSTEPS=2000", "-DDETACHED=20")
    options = ",".join(filter(None, (options, "reserve=1G")))
    assert port.run(heap, options, build(port) / "libkmem-malloc.so", page_bytes) == ""


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
        pytest.skip(f"{port.name}: the emulator has no restartable sequences")
    assert port.run(program(), "slots=rseq", build(port) / "libkmem-malloc.so") == ""
