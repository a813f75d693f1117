# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Build with gcc and clang at each optimization, and run the C tests of suite `compilers`.

    compilers.py [--folder FOLDER] [--compiler NAME]... [--kind KIND]...

Every build is a row of the table that is printed: the compiler, its kind (the optimization;
lto: -O2 -flto), its warnings, and the tests that passed, failed and were skipped. A warning counts
as a failure. Built are the libraries and what those tests need. Tests that replace functions of the
library when they are linked are left out of lto, where the compiler may have put these functions
into their callers before. Builds lie in FOLDER (build-compilers) and are kept, so a second run is
quick. Needs gcc, clang, cmocka, Meson and Ninja.

Exit status: 0, or 1 if a build failed, warned, or failed a test; 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import ending

ROOT = Path(__file__).resolve().parent.parent
COMPILERS = {"gcc": "g++", "clang": "clang++"}
KINDS = {
    "O2": ["-Doptimization=2"],
    "O3": ["-Doptimization=3"],
    "Og": ["-Doptimization=g"],
    "lto": ["-Doptimization=2", "-Db_lto=true"],
}
SUITE = "compilers"
# Meson and Ninja of the Python that runs this, where it has them.
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
BAD = {"FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS"}


@dataclass
class Row:
    """What became of one build."""

    compiler: str
    kind: str
    warnings: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)

    def fail(self, note: str) -> None:
        self.failed += 1
        self.notes.append(f"{self.compiler} {self.kind}: {note}")


def version(compiler: str) -> str:
    """The compiler's name and number, as "gcc 12.2.0"."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    first = done.stdout.splitlines()[0]
    found = re.findall(r"\d+\.\d+\.\d+", first)
    return f"{compiler} {found[-1] if found else first}"


def introspect(folder: Path, what: str) -> list[dict[str, Any]]:
    command = ["meson", "introspect", what, str(folder)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def tests(folder: Path) -> dict[str, str]:
    """The program of each test, by the test's name."""
    return {
        test["name"]: os.path.relpath(test["cmd"][0], folder)
        for test in introspect(folder, "--tests")
        if any(suite.endswith(SUITE) for suite in test["suite"])
    }


def replacing(folder: Path) -> set[str]:
    """Programs that replace functions of the library when they are linked."""
    return {
        os.path.relpath(target["filename"][0], folder)
        for target in introspect(folder, "--targets")
        for sources in target["target_sources"]
        if any("--wrap=" in parameter for parameter in sources.get("parameters", []))
    }


def chosen_tests(kind: str, folder: Path) -> dict[str, str]:
    """The tests of a build: with lto those that replace no function."""
    left_out = replacing(folder) if kind == "lto" else set()
    return {name: program for name, program in tests(folder).items() if program not in left_out}


def targets(kind: str, folder: Path) -> list[str]:
    """The libraries, and the programs of the tests."""
    programs = set(chosen_tests(kind, folder).values())
    return ["libraries", *sorted(programs)]


def configure(folder: Path, compiler: str, arguments: Iterable[str]) -> str:
    """Configure @folder with the tests if that was not done; the reason if it failed."""
    if (folder / "build.ninja").exists():
        return ""
    done = subprocess.run(
        ["meson", "setup", "-Dtests=true", *arguments, str(folder)],
        cwd=ROOT,
        env=ENVIRONMENT | {"CC": compiler, "CXX": COMPILERS[compiler]},
        capture_output=True,
        text=True,
        check=False,
    )
    return f"meson setup: {done.stdout.splitlines()[-1]}" if done.returncode != 0 else ""


def ninja(folder: Path, wanted: Iterable[str], output: IO[str]) -> int:
    command = ["ninja", "-C", str(folder), "-j", "2", *wanted]
    return ending.run(command, env=ENVIRONMENT, stdout=output, stderr=output)


def make(folder: Path, targets: Callable[[], Iterable[str]]) -> tuple[Path, int]:
    """Build what @targets says of the configured folder; the compiler's words, and the status."""
    log = folder / "build.log"
    with log.open("w") as output:
        # Meson first: its files may name other tests than when the folder was built last.
        status = ninja(folder, ["build.ninja"], output)
        if status == 0:
            status = ninja(folder, targets(), output)
    return log, status


def build(compiler: str, kind: str, folder: Path) -> Row:
    """Configure and build what is missing in @folder; the compiler's words are in its build.log."""
    row = Row(version(compiler), kind)
    warned = folder / "warned"
    if warned.exists():  # else what is up to date would not warn again
        shutil.rmtree(folder)
    if reason := configure(folder, compiler, KINDS[kind]):
        row.fail(reason)
        return row
    log, status = make(folder, lambda: targets(kind, folder))
    warnings = set(re.findall(r"^\S+: warning: .*$", log.read_text(errors="replace"), re.MULTILINE))
    row.warnings = len(warnings)
    if warnings:
        warned.touch()
    for warning in sorted(warnings)[:10]:
        row.fail(warning)
    if status != 0:
        row.fail(f"the build failed, see {log}")
    return row


def test(row: Row, folder: Path) -> None:
    log = folder / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    names = chosen_tests(row.kind, folder)
    row.skipped = len(tests(folder)) - len(names)
    if row.skipped:
        build_name = f"{row.compiler} {row.kind}"
        row.notes.append(
            f"{build_name}: {row.skipped} tests left out, which replace functions (--wrap)"
        )
    command = ["meson", "test", "-C", str(folder), "--num-processes", "2", "--no-rebuild"]
    command += ["--suite", SUITE, *names]
    status = ending.run(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    if not log.exists():
        row.fail(f"meson test: exit status {status}")
        return
    for line in log.read_text(errors="replace").splitlines():
        result = json.loads(line)
        if result["result"] == "SKIP":
            row.skipped += 1
        elif result["result"] in BAD:
            row.fail(f"{result['name']}: {result['result'].lower()}")
        else:
            row.passed += 1


def run(compiler: str, kind: str, folder: Path) -> Row:
    row = build(compiler, kind, folder)
    if row.failed == row.warnings:
        test(row, folder)
    return row


def table(rows: list[Row]) -> str:
    """Markdown: a line a build, then what failed."""
    lines = [
        "| compiler | kind | warnings | passed | failed | skipped |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.compiler} | `{row.kind}` | {row.warnings} | {row.passed} | {row.failed} "
        f"| {row.skipped} |"
        for row in rows
    ]
    notes = [note for row in rows for note in row.notes]
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build with each compiler, and run the C tests.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build-compilers")
    parser.add_argument("--compiler", action="append", choices=list(COMPILERS))
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    chosen = parser.parse_args()
    rows = []
    for compiler in chosen.compiler or COMPILERS:
        for kind in chosen.kind or KINDS:
            name = f"{compiler}-{kind}"
            folder = chosen.folder.absolute() / name
            rows.append(run(compiler, kind, folder))
            print(f"{rows[-1].compiler} {kind}: {rows[-1].failed} failed", file=sys.stderr)
    print(table(rows))
    return 1 if any(row.failed for row in rows) else 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
