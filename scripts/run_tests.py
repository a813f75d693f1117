# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Run the tests and count them.

    run_tests.py quick|all [STEP...]

All steps run in their order, or those whose names contain a STEP; one (BESIDE)
runs beside the step that follows it. Each step runs one tool and reads that
tool's own machine-readable result; a tool that ends badly without naming a
failed test counts as one failure. The tests that took longest are named after
a step. The last line printed is "N passed, N failed, N skipped".

With KMEM_CI set, skipped tests of real programs (tests/programs, Meson suite
`programs`) count as failed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import compilers
import ending
import huge_pages
import port_builds
import sanitizers

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
BUILD_CLANG = ROOT / "build-clang"
BUILD_FUZZ = ROOT / "build-fuzz"
FUZZ_SECONDS = {"quick": 30, "all": 300}  # of each target
BUILD_AARCH64 = ROOT / "build-aarch64"
BIN = Path(sys.executable).parent

LONGEST = 10  # tests of a step whose time is printed
SKIPPED = 77  # exit status of a program that says why
MESON_FAILED = {"FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS"}


@dataclass
class Counts:
    """What one step ran."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)  # one line a failure or skip
    seconds: dict[str, float] = field(default_factory=dict)  # of each test

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.notes += other.notes

    def fail(self, note: str) -> None:
        self.failed += 1
        self.notes.append(f"FAILED {note}")

    def skip(self, note: str, *, real_program: bool) -> None:
        if real_program and os.environ.get("KMEM_CI"):
            self.fail(f"{note} (a real program must not be skipped here)")
        else:
            self.skipped += 1
            self.notes.append(f"skipped {note}")


def run(command: list[str | Path], output: IO[str] | None = None) -> int:
    print("+", " ".join(map(str, command)), flush=True)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    return ending.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output)


def show(process: subprocess.Popen[str]) -> list[str]:
    """The lines that a program prints, which are shown as they come."""
    lines = []
    for line in process.stdout or []:
        print(line, end="", flush=True)
        lines.append(line.strip())
    return lines


def one_line(text: str | None) -> str:
    return " ".join((text or "").split())[:200]


def read_junit(path: Path, counts: Counts) -> None:
    """Add the cases of a pytest result file."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        counts.seconds[name] = float(case.get("time", "0"))
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        skipped = case.find("skipped")
        if problem is not None:
            counts.fail(f"{name}: {one_line(problem.get('message'))}")
        elif skipped is not None:
            program = name.startswith("tests.programs")
            counts.skip(f"{name}: {one_line(skipped.get('message'))}", real_program=program)
        else:
            counts.passed += 1


def tap_cases(stdout: str) -> tuple[int, int, int]:
    """Passed, failed and skipped cases of a program that wrote TAP, else zeros."""
    passed = failed = skipped = 0
    lines = stdout.splitlines()
    if not any(re.fullmatch(r"1\.\.\d+", line) for line in lines):
        return 0, 0, 0
    for line in lines:
        if not re.match(r"(not )?ok \d", line):
            continue
        # cmocka writes skipped cases as "not ok N # SKIP name".
        if "# SKIP" in line.upper():
            skipped += 1
        elif line.startswith("ok"):
            passed += 1
        else:
            failed += 1
    return passed, failed, skipped


def read_meson(log: Path, counts: Counts) -> None:
    """Add the tests of a Meson run; the cases inside a TAP program count singly."""
    for line in log.read_text(errors="replace").splitlines():
        test = json.loads(line)
        # Meson calls a test "suite+suite - project:name".
        suites, _, name = test["name"].rpartition(" - ")
        name = name.removeprefix("libkmem:")
        counts.seconds[name] = test["duration"]
        bad = test["result"] in MESON_FAILED
        if test["result"] == "SKIP":
            reason = one_line(test.get("stdout", "") + test.get("stderr", ""))
            counts.skip(f"{name}: {reason}", real_program="programs" in suites.split("+"))
            continue
        passed, failed, skipped = tap_cases(test.get("stdout", ""))
        if passed + failed + skipped == 0:
            passed = int(not bad)
        counts.passed += passed
        counts.skipped += skipped
        # A program can fail outside its cases, by a crash for example.
        for _ in range(max(failed, int(bad))):
            counts.fail(f"{name}: {test['result'].lower()}")


def meson_step(
    build: Path,
    suites: list[str],
    setup: str = "",
    *,
    without: str = "",
    rebuild: bool = True,
    names: Iterable[str] = (),
    wrapper: Iterable[str] = (),
    output: IO[str] | None = None,
) -> Counts:
    """The tests of these suites but for those of one, or of these names among them."""
    log = build / "meson-logs" / (f"testlog-{setup}.json" if setup else "testlog.json")
    log.unlink(missing_ok=True)
    command: list[str | Path] = [*wrapper, BIN / "meson", "test", "-C", build]
    command += ["--print-errorlogs", "--num-processes", "2"]
    if setup:
        command += ["--setup", setup]
    if not rebuild:
        command.append("--no-rebuild")
    for suite in suites:
        command += ["--suite", suite]
    if without:
        command += ["--no-suite", without]
    command += names
    status = run(command, output)
    counts = Counts()
    if log.exists():
        read_meson(log, counts)
    if status != 0 and counts.failed == 0:
        counts.fail(f"meson test in {build.name}: exit status {status}")
    return counts


def explorer_step() -> Counts:
    """Searches of schedules, which keep all processors busy at the lowest priority; see BESIDE."""
    wrapper = ["nice", "-n", "19"]
    with tempfile.TemporaryFile("w+") as output:
        counts = meson_step(BUILD, ["explorer"], rebuild=False, wrapper=wrapper, output=output)
        output.seek(0)
        print(output.read(), end="", flush=True)
    return counts


def huge_pages_step() -> Counts:
    """The C tests while the system puts all memory into huge pages (scripts/huge_pages.py)."""
    if not os.access(huge_pages.FILE, os.W_OK):
        counts = Counts()
        counts.skip(
            f"C tests in huge pages: {huge_pages.FILE} cannot be written", real_program=False
        )
        return counts
    wrapper = [str(BIN / "python"), str(ROOT / "scripts" / "huge_pages.py"), "always"]
    return meson_step(BUILD, ["quick"], rebuild=False, wrapper=wrapper)


def pytest_step(marks: str, *arguments: str) -> Counts:
    """The tests with these marks."""
    result = BUILD / "pytest.xml"
    result.unlink(missing_ok=True)
    command: list[str | Path] = [BIN / "python", "-m", "pytest", "-q", f"--junitxml={result}"]
    status = run([*command, "-m", marks, *arguments])
    counts = Counts()
    if result.exists():
        read_junit(result, counts)
    # 5: no test was collected, which the total judges.
    if status not in (0, 5) and counts.failed == 0:
        counts.fail(f"pytest: exit status {status}")
    return counts


def alone_step(marks: str) -> Counts:
    """The tests that may see no other test's programs: two at once if each worker can have a
    /dev/shm of its own (tests/conftest.py), which takes the rights of root.
    """
    may_unshare = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    if subprocess.run(may_unshare, capture_output=True, check=False).returncode != 0:
        print("one by one: no /dev/shm of their own here", flush=True)
        return pytest_step(marks)
    os.environ["KMEM_TESTS_OWN_SHM"] = "1"
    try:
        return pytest_step(marks, *TWO_AT_ONCE)
    finally:
        del os.environ["KMEM_TESTS_OWN_SHM"]


def aarch64_step() -> Counts:
    """The C tests with locked slots, cross-compiled, under user-mode emulation."""
    status = run([ROOT / "scripts" / "build-aarch64"])
    if status != 0:
        counts = Counts()
        counts.fail(f"aarch64 build: exit status {status}")
        return counts
    return meson_step(BUILD_AARCH64, ["quick"])


def port_step(name: str) -> Counts:
    """C tests for another machine or libc (scripts/port_builds.py)."""
    kind = port_builds.KINDS[name]
    counts = Counts()
    status = run([BIN / "python", ROOT / "scripts" / "port_builds.py", name])
    if status == SKIPPED:
        counts.skip(f"C tests for {name}: see its output", real_program=False)
    elif status != 0:
        counts.fail(f"{name} build: exit status {status}")
    else:
        names = port_builds.programs(kind)
        return meson_step(kind.folder, [compilers.SUITE], rebuild=False, names=names)
    return counts


def clang_step() -> Counts:
    """The part of the C tests that each other compiler's build runs, built with clang."""
    counts = Counts()
    if run([ROOT / "scripts" / "debian-packages", "clang"]) != 0:
        counts.skip("C tests built with clang: it is not installed", real_program=True)
        return counts
    row = compilers.build("clang", "O2", BUILD_CLANG)
    for note in row.notes:
        counts.fail(note)
    if row.failed == row.warnings:
        counts.add(meson_step(BUILD_CLANG, [compilers.SUITE], rebuild=False))
    return counts


def sanitizer_step(name: str) -> Counts:
    """C tests on locked slots under a sanitizer; those that cannot run are named."""
    kind = sanitizers.KINDS[name]
    counts = Counts()
    if reason := sanitizers.build(kind):
        counts.fail(f"{name} sanitizer: {reason}")
        return counts
    for test, reason in kind.left_out.items():
        print(f"left out: {test}: {reason}", flush=True)
    before = dict(os.environ)
    os.environ.update(kind.environment)
    try:
        return meson_step(
            kind.folder,
            [compilers.SUITE],
            rebuild=False,
            names=sanitizers.programs(kind),
            wrapper=kind.wrapper,
        )
    finally:
        os.environ.clear()
        os.environ.update(before)


def table_step(script: str, title: str) -> Counts:
    """A script that prints a table. It ends with 1 if a row failed, 77 if it cannot run here."""
    counts = Counts()
    command: list[str | Path] = [BIN / "python", ROOT / "scripts" / script]
    print("+", " ".join(map(str, command)), flush=True)
    with ending.started(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        shown = show(process)
    if process.returncode == SKIPPED:
        counts.skip(f"{title}: {one_line(' '.join(shown))}", real_program=False)
    elif process.returncode == 0:
        counts.passed += 1
    else:
        counts.fail(f"{title}: exit status {process.returncode}, see its table")
    return counts


def compilers_step() -> Counts:
    """gcc and clang at each optimization."""
    if run([ROOT / "scripts" / "debian-packages", "clang"]) != 0:
        counts = Counts()
        counts.skip("compilers: clang is not installed", real_program=False)
        return counts
    return table_step("compilers.py", "Compilers")


def fuzz_target(name: str, seconds: int) -> bool:
    """Whether a target read what libFuzzer made up for so long without a fault."""
    with tempfile.TemporaryDirectory() as found:
        corpus = ROOT / "tests" / "fuzz" / "corpus" / name
        command: list[str | Path] = [BUILD_FUZZ / "tests" / "fuzz" / f"fuzz-{name}"]
        command += [f"-max_total_time={seconds}", "-seed=1", "-detect_leaks=0", "-verbosity=0"]
        # Without the target's own words; an input that ends it is kept, and libFuzzer says where.
        command.append("-close_fd_mask=3")
        command += [f"-artifact_prefix={BUILD_FUZZ}/{name}-"]
        return run([*command, found, corpus]) == 0


def fuzz_step(size: str) -> Counts:
    """Parsers of text and files from outside under libFuzzer, with sanitizers (tests/fuzz)."""
    counts = Counts()
    if run([ROOT / "scripts" / "debian-packages", "clang", "libclang-rt-14-dev"]) != 0:
        counts.skip("fuzz targets: clang is not installed", real_program=False)
        return counts
    if not (BUILD_FUZZ / "build.ninja").exists():
        run(["env", "CC=clang", BIN / "meson", "setup", "-Dfuzz=true", BUILD_FUZZ])
    names = sorted(path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir())
    programs = [f"tests/fuzz/fuzz-{name}" for name in names]
    if (status := run([BIN / "ninja", "--quiet", "-C", BUILD_FUZZ, *programs])) != 0:
        counts.fail(f"fuzz targets: the build ended with {status}")
        return counts
    with ThreadPoolExecutor(2) as pool:
        passed = list(pool.map(lambda name: fuzz_target(name, FUZZ_SECONDS[size]), names))
    for name, good in zip(names, passed, strict=True):
        if good:
            counts.passed += 1
        else:
            counts.fail(f"fuzz {name}: see its output; the input is in {BUILD_FUZZ.name}")
    return counts


def lint_step() -> Counts:
    """`make lint`, which counts as one."""
    counts = Counts()
    if (status := run(["make", "--no-print-directory", "lint"])) == 0:
        counts.passed += 1
    else:
        counts.fail(f"make lint: exit status {status}, see its output")
    return counts


def valgrind_step(suite: str) -> Counts:
    """Unit tests under memcheck, with locked slots (tests/meson.build)."""
    if shutil.which("valgrind") is None:
        counts = Counts()
        counts.skip("unit tests under valgrind: it is not installed", real_program=False)
        return counts
    return meson_step(BUILD, [suite], "valgrind")


def mutants_step(names: list[str]) -> Counts:
    """Each mutant, or each of these, must be caught by the tests; the program prints the table."""
    counts = Counts()
    program = ROOT / "tests" / "mutants" / "run.py"
    if not program.exists():
        counts.skip("mutants: tests/mutants/run.py is missing", real_program=False)
    elif (status := run([sys.executable, program, *names])) == 0:
        counts.passed += 1
    else:
        counts.fail(f"mutants: exit status {status}")
    return counts


def booted_step() -> Counts:
    """Newer kernels and libcs on emulated machines (tests/booted/run.py)."""
    counts = Counts()
    if run([ROOT / "scripts" / "build-aarch64", "auto"]) != 0:
        counts.fail("aarch64 build for booted machines: exit status not 0")
        return counts
    program = ROOT / "tests" / "booted" / "run.py"
    command = [BIN / "python", program]
    print("+", *command, flush=True)
    with ending.started(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        lines = show(process)
    if process.returncode == SKIPPED:
        counts.skip(f"booted machines: {lines[-1]}", real_program=False)
        return counts
    counts.passed = sum(": ok " in line for line in lines)
    for line in lines:
        if ": not ok " in line:
            counts.fail(f"booted machine {line}")
    if process.returncode != 0 and counts.failed == 0:
        counts.fail(f"booted machines: exit status {process.returncode}")
    return counts


# The tests of a file after each other, as they share what is built and started for the file.
TWO_AT_ONCE = ("--numprocesses", "2", "--dist", "loadfile")

# Runs beside the step that follows, which mostly waits. Its figures are of the processor's time.
BESIDE = "explorer"

STEPS: dict[str, list[tuple[str, Callable[[], Counts]]]] = {
    "quick": [
        ("lint", lint_step),
        ("C tests", lambda: meson_step(BUILD, ["quick"], without="explorer")),
        ("C tests built with clang", clang_step),
        ("unit tests under valgrind", lambda: valgrind_step("valgrind-quick")),
        ("address and undefined behavior sanitizers", lambda: sanitizer_step("address")),
        ("thread sanitizer", lambda: sanitizer_step("thread")),
        ("fuzz targets", lambda: fuzz_step("quick")),
        ("Python tests", lambda: pytest_step("not full and not alone", *TWO_AT_ONCE)),
        ("explorer", explorer_step),
        ("Python tests of running programs", lambda: alone_step("not full and alone")),
        # One of them, so that the program which makes them stays alive.
        ("a mutant", lambda: mutants_step(["bulk push does not ask for strangers"])),
    ],
    "all": [
        ("lint", lint_step),
        ("C tests", lambda: meson_step(BUILD, [])),
        ("C tests in huge pages", huge_pages_step),
        ("unit tests under valgrind", lambda: valgrind_step("valgrind")),
        ("address and undefined behavior sanitizers", lambda: sanitizer_step("address")),
        ("thread sanitizer", lambda: sanitizer_step("thread")),
        ("Python tests", lambda: pytest_step("not alone", *TWO_AT_ONCE)),
        ("Python tests of running programs", lambda: alone_step("alone")),
        ("aarch64, locked slots, emulated", aarch64_step),
        ("riscv64, emulated", lambda: port_step("riscv64")),
        ("musl", lambda: port_step("musl")),
        ("compilers", compilers_step),
        ("fuzz targets", lambda: fuzz_step("all")),
        ("Debian releases", lambda: table_step("releases.py", "Debian releases")),
        ("newer kernels, booted", booted_step),
        ("mutants", lambda: mutants_step([])),
    ],
}


def steps_of(words: list[str]) -> list[tuple[str, Callable[[], Counts]]]:
    """The steps that a command line chooses; none if it is wrong."""
    if not words or words[0] not in STEPS:
        return []
    steps = STEPS[words[0]]
    wanted = words[1:]
    if not all(any(word in name for name, _ in steps) for word in wanted):
        return []
    return [step for step in steps if not wanted or any(word in step[0] for word in wanted)]


def counts_of(name: str, step: Callable[[], Counts]) -> tuple[Counts, str]:
    """What a step counts, also as a line, with its longest tests.

    A step that cannot go on is a failure, and the others follow it.
    """
    start = time.monotonic()
    try:
        counts = step()
    except Exception as error:
        counts = Counts()
        counts.fail(f"{name}: {type(error).__name__}: {one_line(str(error))}")
    took = time.monotonic() - start
    longest = sorted(counts.seconds.items(), key=lambda test: -test[1])[:LONGEST]
    for test, seconds in longest:
        print(f"{seconds:.1f} s: {test}")
    figures = f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped"
    return counts, f"{name}: {figures} in {took:.0f} s"


def main() -> int:
    steps = steps_of(sys.argv[1:])
    if not steps:
        print("usage: run_tests.py quick|all [STEP...], where a STEP is one of", file=sys.stderr)
        print(
            *dict.fromkeys(name for size in STEPS.values() for name, _ in size),
            sep="\n",
            file=sys.stderr,
        )
        return 2
    size = sys.argv[1]
    os.environ["KMEM_TEST_SIZE"] = size  # tests scale their own work by it
    total = Counts()
    rows = []

    def take(counts: Counts, row: str) -> None:
        total.add(counts)
        rows.append(row)
        print(f"== {row}", flush=True)

    with ThreadPoolExecutor(1) as pool:
        beside: Future[tuple[Counts, str]] | None = None
        for name, step in steps:
            print(f"== {name}", flush=True)
            if name == BESIDE:
                beside = pool.submit(counts_of, name, step)
                continue
            take(*counts_of(name, step))
            if beside:
                take(*beside.result())
                beside = None
        if beside:
            take(*beside.result())
    print("==", *rows, sep="\n")
    for note in total.notes:
        print(note)
    if total.passed == 0:
        print("no test passed")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
