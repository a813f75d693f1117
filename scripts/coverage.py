# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Print which lines of the C sources the C tests run, by folder.

    coverage.py [SUITE]

Builds build-coverage with gcc's counters, runs the tests of SUITE (quick) there, and asks gcov. A
line counts as run if any of the programs that contain it ran it. Counters of children that end by a
signal are lost, and a source of which no program ran is not counted. Exit status: 0, or 1 if the
build failed or there is no count; failed tests are only named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import compilers
import ending

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build-coverage"
FOLDERS = ("src", "include", "tools")
GROUP = 40  # files of counters of one gcov

Lines = dict[Path, dict[int, bool]]  # of each file: which lines there are, and whether they ran


def build_and_run(suite: str) -> str:
    """Build everything and run the tests of the suite; the reason if the build failed."""
    if reason := compilers.configure(FOLDER, "gcc", ["-Db_coverage=true", "-Doptimization=0"]):
        return reason
    for counts in FOLDER.rglob("*.gcda"):
        counts.unlink()
    log, status = compilers.make(FOLDER, lambda: ["all"])
    if status != 0:
        return f"the build failed, see {log}"
    command = ["meson", "test", "-C", str(FOLDER), "--no-rebuild", "-q", "--num-processes", "2"]
    command += ["--suite", suite, "--timeout-multiplier", "5"]
    ending.run(command, env=compilers.ENVIRONMENT)
    return ""


def read_counts(counts: list[Path]) -> Lines:
    command = ["gcov", "--json-format", "--stdout", *map(str, counts)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    found: Lines = defaultdict(dict)
    for document in done.stdout.splitlines():
        for file in json.loads(document)["files"]:
            path = Path(os.path.normpath(FOLDER / file["file"]))
            for line in file["lines"]:
                number = line["line_number"]
                found[path][number] = found[path].get(number, False) or line["count"] > 0
    return found


def all_counts() -> Lines:
    files = sorted(FOLDER.rglob("*.gcda"))
    groups = [files[at : at + GROUP] for at in range(0, len(files), GROUP)]
    total: Lines = defaultdict(dict)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(read_counts, groups):
            for path, lines in found.items():
                for number, ran in lines.items():
                    total[path][number] = total[path].get(number, False) or ran
    return total


def table(lines: Lines) -> str:
    """Markdown: a row for each folder, and their sum; empty without lines."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, numbers in lines.items():
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in FOLDERS:
            continue
        for name in (str(path.relative_to(ROOT).parent), "all"):
            rows[name][0] += len(numbers)
            rows[name][1] += sum(numbers.values())
    text = ["| folder | lines | run | share |", "|---|---:|---:|---:|"]
    for name in sorted(rows, key=lambda name: (name == "all", name)):
        there, ran = rows[name]
        text.append(f"| {name} | {there:,} | {ran:,} | {100 * ran / max(there, 1):.1f}% |")
    return "\n".join(text) if rows else ""


def main() -> int:
    if len(sys.argv) > 2:
        print("usage: coverage.py [SUITE]", file=sys.stderr)
        return 2
    if reason := build_and_run(sys.argv[1] if len(sys.argv) == 2 else "quick"):
        print(f"coverage: {reason}", file=sys.stderr)
        return 1
    text = table(all_counts())
    print(text or "no line was counted")
    return 0 if text else 1


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
