#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Mutants that the explorer finds alone.

    mutants.py BUILD [--preemptions N [--reduced] | --all] [--seconds N] [NAME...]

For each mutant of mutants.toml (or those whose names contain a NAME) a copy of the sources gets the
mutant's edits, the explorer is built from it as Meson built it in folder BUILD, and the mutant's
scenarios are searched with up to N preemptions (2), each for at most --seconds (60). A mutant that
needs store buffers is searched under sequential consistency too, where it must not be found. Prints
how the mutant is found, with the schedule that can be replayed, or that it is not. --reduced leaves
out most of equal schedules, --all searches one of each class of them without a bound; both are for
the mutants that need no weak memory. Exit status: 0,
1 if a mutant is not found that mutants.toml does not say is missed, or 2 if an edit does not apply.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "scripts"))

import ending  # noqa: E402

PROGRAM = "tests/explore/explore"
FAILED = 1
BOUND = re.compile(r": (\d+ preemptions|all): (\d+) executions")


class MutantError(Exception):
    """A mutant that cannot be built as it is written down; the text is for people."""


@dataclass
class Edit:
    file: str  # relative to the tree
    find: str
    replace: str


@dataclass
class Mutant:
    name: str
    scenarios: list[str]
    memory: str  # the memory model that it needs
    missed: str  # the reason why no scenario finds it; empty for the others
    edits: list[Edit]


def read_mutants() -> list[Mutant]:
    known = {
        entry["name"]: [
            Edit(os.path.normpath(f"src/{edit['file']}"), edit["find"], edit["replace"])
            for edit in entry["edit"]
        ]
        for entry in tomllib.loads((ROOT / "tests/mutants/mutants.toml").read_text())["mutant"]
    }
    mutants = []
    for entry in tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]:
        if "file" in entry:
            edits = [Edit(entry["file"], entry["find"], entry["replace"])]
        elif "edit" in entry:
            edits = [Edit(edit["file"], edit["find"], edit["replace"]) for edit in entry["edit"]]
        elif entry["name"] in known:
            edits = known[entry["name"]]
        else:
            raise MutantError(f'tests/mutants/mutants.toml has no mutant "{entry["name"]}"')
        memory = entry.get("memory", "sc")
        missed = entry.get("missed", "")
        mutants.append(Mutant(entry["name"], entry["scenarios"], memory, missed, edits))
    return mutants


class Copy:
    """A copy of the tree in which the explorer is built by the commands of a build folder."""

    def __init__(self, build: Path, path: Path) -> None:
        self.path = path
        self.build = path / "build"
        for name in ("src", "include", "tests/explore"):
            shutil.copytree(ROOT / name, path / name)
        self.commands = {
            entry["output"]: entry["command"]
            for entry in json.loads((build / "compile_commands.json").read_text())
            if entry["output"].startswith(f"{PROGRAM}.p/")
        }
        listed = subprocess.run(
            ["ninja", "-C", str(build), "-t", "commands", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
        )
        self.link = listed.stdout.splitlines()[-1]
        if not self.commands:
            raise MutantError(f"{build} does not build {PROGRAM}: configure it with -Dtests=true")
        (self.build / f"{PROGRAM}.p").mkdir(parents=True)
        self.changed: set[str] = set()  # files whose edits the objects have
        self.compile(list(self.commands))
        self.depends = {output: self.read_depends(output) for output in self.commands}

    def run(self, command: str) -> None:
        done = subprocess.run(
            shlex.split(command), cwd=self.build, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise MutantError(done.stderr)

    def compile(self, outputs: list[str]) -> None:
        # A mutant may leave a variable unused; the tree itself is built without warnings.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(lambda output: self.run(f"{self.commands[output]} -w"), outputs):
                pass
        self.run(self.link)

    def read_depends(self, output: str) -> set[str]:
        """The files of the tree that an object was made from."""
        words = (self.build / f"{output}.d").read_text().replace("\\\n", " ").split()[1:]
        return {os.path.relpath(self.build / word, self.path) for word in words}

    def edit(self, mutant: Mutant) -> None:
        for edit in mutant.edits:
            path = self.path / edit.file
            text = path.read_text()
            if text.count(edit.find) != 1:
                raise MutantError(
                    f'"{mutant.name}": its text occurs {text.count(edit.find)} times in '
                    f"{edit.file}, expected 1:\n{edit.find}"
                )
            path.write_text(text.replace(edit.find, edit.replace))
        self.rebuild(mutant)

    def restore(self, mutant: Mutant) -> None:
        """The sources only: the next mutant's build makes the objects anew."""
        for edit in mutant.edits:
            shutil.copy(ROOT / edit.file, self.path / edit.file)

    def rebuild(self, mutant: Mutant) -> None:
        changed = {edit.file for edit in mutant.edits}
        old = self.changed | changed
        self.changed = changed
        self.compile([output for output, files in self.depends.items() if files & old])

    def search(self, scenario: str, bounds: list[str]) -> str:
        """The output of a search that fails; empty if it does not."""
        command = [str(self.build / PROGRAM), scenario, *bounds]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode < 0 and not BOUND.search(done.stdout):
            return f"FAILED: in the setup: the program ended by signal {-done.returncode}"
        return done.stdout if done.returncode == FAILED else ""


def summary(output: str) -> str:
    """The bound, the reason and the schedule of a failure."""
    lines = output.splitlines()
    if lines[-1].startswith("FAILED: in the setup"):
        return lines[-1].removeprefix("FAILED: ")
    bound, executions = BOUND.findall(output)[-1]
    reason = next(line for line in lines if ": FAILED: " in line)
    replay = next(line for line in lines if line.startswith("replay: "))
    return (
        f"{bound}, execution {executions}: "
        f"{reason.partition(': FAILED: ')[2]}; {replay.removeprefix('replay: ')}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--preemptions", type=int, default=2)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--seconds", type=int, default=60, help="per scenario")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_intermixed_args()
    seconds = ["--seconds", str(given.seconds)]
    wrong = False
    found = 0
    try:
        mutants = [
            mutant
            for mutant in read_mutants()
            if (not given.names or any(name in mutant.name for name in given.names))
            and not ((given.all or given.reduced) and mutant.memory != "sc")
        ]
        with tempfile.TemporaryDirectory() as folder:
            copy = Copy(given.build.resolve(), Path(folder))
            for mutant in mutants:
                copy.edit(mutant)
                bounds = ["--memory", mutant.memory, "--preemptions", str(given.preemptions)]
                bounds += ["--reduced"] * given.reduced
                outputs = (
                    copy.search(scenario, (["--all"] if given.all else bounds) + seconds)
                    for scenario in mutant.scenarios
                )
                output = next(filter(None, outputs), "")
                if mutant.memory != "sc":
                    for scenario in mutant.scenarios:
                        if copy.search(scenario, ["--preemptions", "1", *seconds]):
                            raise MutantError(f'"{mutant.name}": {scenario} finds it under sc')
                found += bool(output)
                wrong |= not output and not mutant.missed
                told = f"missed: {mutant.missed}" if mutant.missed else "NOT FOUND"
                print(f"{mutant.name}: {summary(output) if output else told}", flush=True)
                copy.restore(mutant)
    except MutantError as error:
        print(f"mutants.py: {error}", file=sys.stderr)
        return 2
    print(f"{found} of {len(mutants)} mutants found")
    return 1 if wrong else 0


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
