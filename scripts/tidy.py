# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Run clang-tidy with the checks of .clang-tidy on the C sources of the library and the tools.

    tidy.py [FILE]...

Needs build/, configured. A source that is built several times, as for the simulated machines, is
checked as the library has it. Exit status: 0, or 1 if there is a finding.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
DATABASE = BUILD / "tidy"  # of clang-tidy: one command a file
FOLDERS = ("src", "tools")
GROUP = 8  # files of one process


def write_database() -> list[str]:
    """The files of the database that is written."""
    commands: dict[str, dict[str, str]] = {}
    for command in json.loads((BUILD / "compile_commands.json").read_text()):
        path = Path(os.path.normpath(BUILD / command["file"]))
        own = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS
        if own and path.suffix == ".c" and "simulator" not in command["output"]:
            commands.setdefault(str(path), command | {"file": str(path)})
    DATABASE.mkdir(exist_ok=True)
    (DATABASE / "compile_commands.json").write_text(json.dumps(list(commands.values())))
    return sorted(commands)


def check(files: list[str]) -> str:
    """The findings in these files; empty if there are none."""
    command = ["clang-tidy", "--quiet", "-p", str(DATABASE), *files]
    # gcc's options that clang does not know are no finding.
    command.insert(1, "--extra-arg=-Wno-unknown-warning-option")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + (done.stderr if done.returncode and not done.stdout else "")


def main() -> int:
    files = write_database()
    if sys.argv[1:]:
        wanted = {str(Path(name).resolve()) for name in sys.argv[1:]}
        files = [name for name in files if name in wanted]
    groups = [files[at : at + GROUP] for at in range(0, len(files), GROUP)]
    with ThreadPoolExecutor(2) as pool:
        found = [text for text in pool.map(check, groups) if text]
    print("".join(found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
