# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Build the C tests of suite `compilers` for RISC-V and for musl.

    port_builds.py riscv64|musl

riscv64 is built by Debian's cross compiler and runs under qemu's emulation of programs, with the
libc and the cmocka of Debian 13, which is the first with packages for RISC-V. musl is built by
Debian's musl-gcc, with cmocka built for it from Debian's source package. All comes by apt, into
build-ports/, and nothing but the compilers is installed. Tests that cannot run are left out by
name, and the reason is printed. run_tests.py runs the others; this program only builds them.

Exit status: 0, 1 if the build failed, 77 (with the reason) if packages cannot be had here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import compilers
import ending
from emulated.debian import Release, Unavailable

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build-ports"
SKIPPED = 77


@dataclass(frozen=True)
class Kind:
    """A port: its compiler, what else Meson is told, and which tests cannot run."""

    name: str
    packages: tuple[str, ...]
    compiler: str
    prepare: Callable[[], tuple[list[str], dict[str, str]]]  # arguments, environment
    left_out: dict[str, str] = field(default_factory=dict)  # reasons by name

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.name}-tests"


def run(*command: str | Path, folder: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]}: {done.stderr.strip()[-500:]}")


def prepare_riscv64() -> tuple[list[str], dict[str, str]]:
    """Programs are linked with the compiler's libc, and run on Debian 13's, which cmocka needs."""
    root = Release(FOLDER, "trixie", "riscv64").unpack("root", ["libcmocka-dev", "libatomic1"])
    libraries = root / "usr" / "lib" / "riscv64-linux-gnu"
    cross = FOLDER / "riscv64.ini"
    emulator = ["prlimit", "--as=17179869184", "qemu-riscv64", "-L", str(root)]
    cross.write_text(f"[binaries]\nexe_wrapper = {emulator}\n")
    arguments = ["--cross-file", "cross/riscv64-linux-gnu.ini", "--cross-file", str(cross)]
    # libkmem.a needs libatomic for exchanges of bytes.
    words = "-Wl,--allow-shlib-undefined,--no-as-needed,-latomic,--as-needed"
    arguments += [f"-Dc_link_args={words}"]
    environment = {
        "PKG_CONFIG_LIBDIR": str(libraries / "pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(root),
    }
    return arguments, environment


# What cmocka's own build finds out about musl.
CMOCKA_FLAGS = [
    *("-DHAVE_MALLOC_H", "-DHAVE_INTTYPES_H", "-DHAVE_SIGNAL_H", "-DHAVE_STRINGS_H"),
    *("-DHAVE_GCC_THREAD_LOCAL_STORAGE", "-DHAVE_CLOCK_REALTIME", "-DHAVE_STRUCT_TIMESPEC"),
    *("-DHAVE_SIGLONGJMP", "-DHAVE_STRSIGNAL"),
]


def build_cmocka(made: Path) -> None:
    source = Release(FOLDER, "bookworm", "amd64").source("cmocka")
    shutil.rmtree(made, ignore_errors=True)
    (made / "lib").mkdir(parents=True)
    shutil.copytree(source / "include", made / "include")
    flags = ["-O2", "-g", "-w", "-fno-builtin", *CMOCKA_FLAGS, f"-I{source / 'include'}"]
    run("musl-gcc", *flags, "-c", source / "src" / "cmocka.c", "-o", made / "cmocka.o")
    run("ar", "rcs", made / "lib" / "libcmocka.a", made / "cmocka.o")
    (made / "cmocka.pc").write_text(
        "Name: cmocka\nDescription: for musl\nVersion: 1.1.5\n"
        f"Cflags: -I{made / 'include'}\nLibs: -L{made / 'lib'} -lcmocka\n"
    )
    (made / "complete").touch()


def prepare_musl() -> tuple[list[str], dict[str, str]]:
    made = FOLDER / "cmocka-musl"
    if not (made / "complete").exists():
        build_cmocka(made)
    return [], {"PKG_CONFIG_LIBDIR": str(made)}


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "riscv64",
            ("gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross", "qemu-user", "pkg-config"),
            "riscv64-linux-gnu-gcc",
            prepare_riscv64,
            {
                "attributes": "a stack of a debug cache is empty there; not looked into yet",
                "mempool": "forks beside threads, and the emulator's child hangs",
                "options": "starts hundreds of programs, each of which takes the emulator seconds",
                "page": "the emulator's /proc/self/smaps does not tell what was advised",
                "rcu": "attacks without grace periods have to succeed in their time",
                "reclaim": "a child with debug=FZPU ends by SIGSEGV there; not looked into yet",
            },
        ),
        Kind(
            "musl",
            ("musl-tools", "pkg-config"),
            "musl-gcc",
            prepare_musl,
            {
                "attributes": "replaces dladdr1, which musl has not",
                "cxx": "Debian has no C++ compiler for musl",
                "malloc": "calls mallinfo2 and others of glibc's",
                "slub_lists": "changes glibc's __libc_single_threaded",
                "slub_lists_checked": "changes glibc's __libc_single_threaded",
                "typed": "Debian has no C++ compiler for musl",
            },
        ),
    )
}


def programs(kind: Kind) -> dict[str, str]:
    """The program of each test that runs, by the test's name."""
    return {
        name: program
        for name, program in compilers.tests(kind.folder).items()
        if name not in kind.left_out
    }


def configure(kind: Kind) -> None:
    arguments, environment = kind.prepare()
    if (kind.folder / "build.ninja").exists():
        return
    done = subprocess.run(
        ["meson", "setup", "-Dtests=true", *arguments, str(kind.folder)],
        cwd=ROOT,
        env=compilers.ENVIRONMENT | {"CC": kind.compiler} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"meson setup: {done.stdout[-2000:]}")


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in KINDS:
        print(f"usage: port_builds.py {'|'.join(KINDS)}", file=sys.stderr)
        return 2
    kind = KINDS[sys.argv[1]]
    FOLDER.mkdir(exist_ok=True)
    try:
        run(ROOT / "scripts" / "debian-packages", *kind.packages)
        configure(kind)
    except Unavailable as reason:
        print(f"{kind.name}: {reason}")
        return SKIPPED
    log, status = compilers.make(kind.folder, lambda: sorted(set(programs(kind).values())))
    if status:
        print(f"the build failed, see {log}", file=sys.stderr)
        return 1
    for name, why in kind.left_out.items():
        print(f"left out: {name}: {why}")
    names = " ".join(f"'{name}'" for name in programs(kind))
    print(
        f"built; they run with: meson test -C {os.path.relpath(kind.folder)} --no-rebuild {names}"
    )
    return 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
