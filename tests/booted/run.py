#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Boots new kernels with several libcs on emulated machines, and runs tests there.

    run.py [--only NAME] [--tests PATTERN] [--short] [--mutants]

NAME is one of x86_64-2.43, x86_64-2.41, x86_64-2.36, aarch64-2.43 and so on, machine and libc, or
a part of that: then all that contain it. All tests run with the newest libc, few with older ones,
with --short few everywhere. Two machines have the newest libc only, and the tests that their
difference may change: aarch64_a72, a processor from before FEAT_LSE2 and FEAT_LSE, and
aarch64_16k, whose kernel has pages of 16 KiB. --mutants boots the first machine with each of the
wrong libraries of mutants.toml, for few of the tests, and each has to fail. PATTERN chooses among
all tests by their names.

All comes from Debian's packages: the kernel and the emulator from its newest release, programs and
libc from three. What was fetched is kept in build-booted/; delete that to have it anew. The tests
are C programs of the builds in build/ and build-aarch64-auto/ and of tests/programs, and shells,
make and Python on the drop-in, on machines of four CPUs whose kernel reports each signal that
ends a process.

A line is written for each test: MACHINE: ok NAME, or MACHINE: not ok NAME: WHAT. Exit status: 0 if
all passed, 1 if some failed, 77 if the packages cannot be had here; the last line says why.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from work import OF_PAGES, OF_SEQUENCES, SHORT, Test, tests_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import ending  # noqa: E402
from emulated.archive import Archive, below  # noqa: E402
from emulated.debian import Release, Unavailable  # noqa: E402
from emulated.emulator import NEWEST, emulator  # noqa: E402

HERE = Path(__file__).resolve().parent
CACHE = ROOT / "build-booted"
LIBCS = {"2.43": NEWEST, "2.41": "trixie", "2.36": "bookworm"}
PACKAGES = ["bash", "coreutils", "dash", "gcc", "libc6-dev", "make", "mount", "python3"]
SKIPPED = 77
BOOT_SECONDS = 3600  # the long list takes half of that on AArch64 with the host's CPUs to itself


@dataclass(frozen=True)
class Machine:
    name: str
    debian: str  # its architecture
    build: Path
    compiler: str
    emulator: list[str]
    console: str
    libraries: Path  # that have cmocka
    kernel: str
    only: re.Pattern[str] | None = None  # of the tests, with the newest libc


def aarch64(name: str, processor: str, kernel: str, only: re.Pattern[str] | None) -> Machine:
    return Machine(
        name,
        "arm64",
        ROOT / "build-aarch64-auto",
        "aarch64-linux-gnu-gcc",
        ["qemu-system-aarch64", "-machine", "virt", "-cpu", processor],
        "ttyAMA0",
        ROOT / "build-aarch64" / "sysroot" / "usr" / "lib" / "aarch64-linux-gnu",
        kernel,
        only,
    )


# The plain checks of pointers' signatures take most of the time.
NEWEST_ARM = "max,pauth-impdef=on"

MACHINES = [
    Machine(
        "x86_64",
        "amd64",
        ROOT / "build",
        "gcc",
        ["qemu-system-x86_64", "-machine", "q35", "-cpu", "max"],
        "ttyS0",
        Path("/usr/lib/x86_64-linux-gnu"),
        "linux-image-cloud-amd64",
    ),
    aarch64("aarch64", NEWEST_ARM, "linux-image-cloud-arm64", None),
    aarch64("aarch64_a72", "cortex-a72", "linux-image-cloud-arm64", OF_SEQUENCES),
    aarch64("aarch64_16k", NEWEST_ARM, "linux-image-arm64-16k", OF_PAGES),
]


@dataclass
class Outcome:
    """What the console said."""

    machine: str
    where: str = ""
    passed: int = 0
    failed: int = 0
    seconds: float = 0


def base_archive(machine: Machine, libc: str) -> Path:
    """The file system without the tests."""
    release = Release(CACHE, LIBCS[libc], machine.debian)
    root = release.unpack("root", PACKAGES)
    made = release.folder / "root.cpio"
    if (
        not made.exists()
        or made.stat().st_mtime < (release.folder / "root.complete").stat().st_mtime
    ):
        partial = made.with_suffix(".partial")
        with partial.open("wb") as file:
            archive = Archive(file)
            archive.add_console()
            for folder in ("proc", "sys", "tests", "tmp"):
                archive.add_folder(folder)
            for path in below(root):
                archive.add_file(path, str(path.relative_to(root)))
            archive.end()
        partial.rename(made)
    return made


def write_archive(base: Path, tests: list[Test], files: dict[str, Path], made: Path) -> None:
    shutil.copyfile(base, made)
    with made.open("ab") as file:
        archive = Archive(file)
        archive.add_file(HERE / "init", "init")
        archive.add_file(HERE / "guest.py", "tests/guest.py")
        archive.add(
            "tests/tests.json", 0o100644, json.dumps([test.described() for test in tests]).encode()
        )
        for folder in ("bin", "lib"):
            archive.add_folder(f"tests/{folder}")
        for name, source in files.items():
            archive.add_file(source.resolve(), f"tests/{name}")
        archive.end()


def read_console(lines: Iterable[str], console: TextIO, outcome: Outcome, one: bool) -> bool:
    """Shows and counts what the tests say; whether they came to their end, or to one failure."""
    finished = False
    for line in lines:
        console.write(line)
        console.flush()
        line = line.rstrip()
        if line.startswith("here "):
            outcome.where = line.removeprefix("here ")
        elif line.startswith("ok "):
            outcome.passed += 1
        elif line.startswith("not ok "):
            outcome.failed += 1
            finished = one
        elif line.startswith("done "):
            finished = line == f"done {outcome.passed} {outcome.failed}"
        elif not line.startswith("  | "):
            continue
        print(f"{outcome.machine}: {line}", flush=True)
        if finished:
            break
    return finished


def boot(machine: Machine, kernel: Path, files: Path, name: str, one: bool) -> Outcome:
    """Shows what the tests say while they run; the whole console is kept beside the cache."""
    program, *arguments = machine.emulator
    command = [*emulator(CACHE, program), *arguments]
    command += ["-accel", "tcg,thread=multi", "-smp", "4", "-m", "3072"]
    command += ["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-monitor", "none"]
    command += ["-kernel", str(kernel), "-initrd", str(files), "-append"]
    # A busy host's clock ticks late for the kernel's check of it.
    command += [f"console={machine.console} quiet panic=-1 no_timer_check print-fatal-signals=1"]
    outcome = Outcome(name)
    began = time.monotonic()
    with (
        (CACHE / f"{name}.console").open("w") as console,
        ending.started(
            ["timeout", str(BOOT_SECONDS), *ending.tied(command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout
        finished = read_console(process.stdout, console, outcome, one)
        process.terminate()
    outcome.seconds = time.monotonic() - began
    if not finished:
        outcome.failed += 1
        print(f"{name}: not ok the machine's end: see {CACHE / name}.console", flush=True)
    return outcome


def run_machine(
    machine: Machine, libc: str, only: re.Pattern[str] | None, wrong: Path | None = None
) -> Outcome:
    """Tests a wrong library, if one is given, until the first of them fails."""
    name = f"{machine.name}-{libc}"
    kernel = Release(CACHE, NEWEST, machine.debian).kernel(machine.kernel)
    base = base_archive(machine, libc)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        files = {
            "lib/libcmocka.so.0": machine.libraries / "libcmocka.so.0",
            "lib/libkmem.so.0": machine.build / "src" / "libkmem.so",
            "lib/libkmem-malloc.so": wrong or machine.build / "src" / "libkmem-malloc.so",
        }
        tests = tests_of(machine.build, machine.compiler, Path(folder), files, only)
        write_archive(base, tests, files, Path(folder) / "files.cpio")
        return boot(machine, kernel, Path(folder) / "files.cpio", name, wrong is not None)


def print_results(outcomes: list[Outcome]) -> None:
    lines = [
        "| machine | passed | failed | seconds |",
        "|---|---:|---:|---:|",
    ]
    for outcome in outcomes:
        figures = f"{outcome.passed} | {outcome.failed} | {outcome.seconds:.0f}"
        lines.append(f"| {outcome.where or outcome.machine} | {figures} |")
    print("\n".join(lines))


def read_mutants() -> list[dict[str, Any]]:
    with (HERE / "mutants.toml").open("rb") as file:
        return list(tomllib.load(file)["mutant"])


def build_mutant(mutant: dict[str, Any], folder: Path) -> Path:
    """The drop-in library of a copy of the tree, for the machine that this runs on."""
    unwanted = shutil.ignore_patterns("build*", ".*", "results")
    shutil.copytree(ROOT, folder / "tree", ignore=unwanted)
    for edit in mutant["edit"]:
        path = folder / "tree" / "src" / edit["file"]
        text = path.read_text()
        if text.count(edit["find"]) != 1:
            sys.exit(f'"{mutant["name"]}": its text has to occur once in {edit["file"]}')
        path.write_text(text.replace(edit["find"], edit["replace"]))
    tools = Path(sys.executable).parent
    made = folder / "made"
    setup = [tools / "meson", "setup", made, folder / "tree"]
    subprocess.run(setup, stdout=subprocess.DEVNULL, check=True)
    subprocess.run([tools / "ninja", "-C", made, "--quiet", "libraries"], check=True)
    return made / "src" / "libkmem-malloc.so"


def is_caught(mutant: dict[str, Any], machine: Machine, libc: str) -> bool:
    print(f"mutant: {mutant['name']}", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        library = build_mutant(mutant, Path(folder))
        outcome = run_machine(machine, libc, SHORT, library)
    # A machine that did not boot has caught nothing.
    caught = outcome.where != "" and outcome.failed > 0
    print(f"{'caught' if caught else 'NOT CAUGHT'}: {mutant['name']}", flush=True)
    return caught


def main() -> int:
    parser = argparse.ArgumentParser(description="Boots new kernels and runs tests there.")
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--tests", type=re.compile, metavar="PATTERN")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--mutants", action="store_true")
    arguments = parser.parse_args()
    chosen = [
        (machine, libc)
        for machine in MACHINES
        for libc in LIBCS
        if arguments.only in f"{machine.name}-{libc}"
        if machine.only is None or LIBCS[libc] == NEWEST
    ]
    if not chosen:
        parser.error(f'no machine is named "{arguments.only}"')
    CACHE.mkdir(exist_ok=True)
    outcomes = []
    try:
        if arguments.mutants:
            return int(not all([is_caught(mutant, *chosen[0]) for mutant in read_mutants()]))
        for machine, libc in chosen:
            short = arguments.short or LIBCS[libc] != NEWEST
            only = arguments.tests or (SHORT if short else machine.only)
            outcomes.append(run_machine(machine, libc, only))
    except Unavailable as reason:
        print(f"no machines can be booted here: {reason}")
        return SKIPPED
    print_results(outcomes)
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
