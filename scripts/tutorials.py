#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Follow tutorials: make their files, run their commands, compare the outputs.

    tutorials.py check [FILE...]     name each command whose output differs; default: docs/tutorials
    tutorials.py write [FILE...]     put what the commands print into the tutorials

A line "New file `PATH`:" stands in front of a file's content, and a block of `console` has commands
behind dollars, with their outputs. The commands of a tutorial run in one shell, in the tree, with a
folder of their own for /tmp/kmem-tutorial. An output must agree in its words, not in its numbers,
which differ from machine to machine; a line of three dots stands for any lines.

Exit status of check: 0, or 1 if an output differs or a command fails.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ending

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"
FOLDER = "/tmp/kmem-tutorial"
SECONDS = 120  # a command takes at most
DOTS = "..."

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEW_FILE = re.compile(r"^New file `([^`]+)`:$")
NUMBER = re.compile(r"[-+]?\b\d[\d.,]*(?:[KMG]i?B?\b|%|(?=\W|ns|us|$))")
DRAWN = re.compile(r"[▁-█─━╭╮╰╯│]+")


@dataclass(frozen=True)
class File:
    path: str
    content: str


@dataclass(frozen=True)
class Command:
    line: str
    output: str
    start: int  # of the output in the text
    end: int


class Wrong(Exception):
    """A command that cannot be run to its end."""


def steps(text: str) -> Iterator[File | Command]:
    for block in BLOCK.finditer(text):
        if block[1] != "console":
            last = text[: block.start()].rstrip("\n").rpartition("\n")[2]
            if new := NEW_FILE.match(last):
                yield File(new[1], block[2])
            continue
        for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block[2], re.MULTILINE):
            start = block.start(2) + part.start(2)
            yield Command(part[1], part[2], start, start + len(part[2]))


def words_of(output: str) -> list[str]:
    """The lines without numbers and drawings, which may differ."""
    lines = []
    for line in output.splitlines():
        line = DRAWN.sub(" ", NUMBER.sub("#", line))
        line = " ".join(line.split())
        if line:
            lines.append(line)
    return lines


def agree(expected: Sequence[str], found: Sequence[str]) -> bool:
    if not expected:
        return not found
    if expected[0] == DOTS:
        return any(agree(expected[1:], found[skip:]) for skip in range(len(found) + 1))
    return bool(found) and expected[0] == found[0] and agree(expected[1:], found[1:])


class Shell:
    """A bash that says when a command has ended, and how."""

    MARK = "kmem-tutorial-ended"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {name: text for name, text in os.environ.items() if name != "KMEM_OPTIONS"}
        environment |= {"COLUMNS": "100", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, line: str) -> str:
        """What a command prints; Wrong if it fails."""
        line = line.replace(FOLDER, str(self.folder))
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{{ {line}\n}} </dev/null\necho {self.MARK} $?\n".encode())
        self.process.stdin.flush()
        read = b""
        deadline = time.monotonic() + SECONDS
        while not (end := re.search(rf"{self.MARK} (\d+)\n\Z".encode(), read)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Wrong(f"did not end in {SECONDS} s; printed {read.decode()!r}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Wrong(f"ended the shell; printed {read.decode()!r}")
            read += more
        output = read[: end.start()].decode().replace(str(self.folder), FOLDER)
        if end[1] != b"0":
            raise Wrong(f"ended with status {end[1].decode()}; printed {output!r}")
        return output

    def end(self) -> None:
        """With all that it started and left behind."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def follow(text: str, folder: Path) -> Iterator[tuple[Command, str]]:
    """Each command with what it prints here."""
    shell = Shell(folder)
    try:
        for step in steps(text):
            if isinstance(step, File):
                place = Path(step.path.replace(FOLDER, str(folder)))
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(step.content.replace(FOLDER, str(folder)))
                continue
            try:
                yield step, shell.run(step.line)
            except Wrong as error:
                raise Wrong(f"$ {step.line}: {error}") from None
    finally:
        shell.end()


def kept(output: str, old: str) -> str:
    """The new output, with dots where the old one has them, in front of as many last lines."""
    lines = [line.rstrip() for line in output.splitlines()]
    wanted = old.splitlines()
    if DOTS in wanted:
        place = wanted.index(DOTS)
        last = len(wanted) - place - 1
        lines = [*lines[:place], DOTS, *(lines[-last:] if last else [])]
    return "".join(f"{line}\n" for line in lines)


def compare(file: Path, *, write: bool) -> list[str]:
    """A line for each command whose output differs."""
    text = file.read_text()
    changed, end, wrong = [], 0, []
    with tempfile.TemporaryDirectory(prefix="kmem-") as folder:
        for command, output in follow(text, Path(folder)):
            if not agree(words_of(command.output), words_of(output)):
                wrong.append(
                    f"{file.name}: $ {command.line}\nexpected:\n{command.output}found:\n{output}"
                )
            changed += [text[end : command.start], kept(output, command.output)]
            end = command.end
    if write:
        file.write_text("".join([*changed, text[end:]]))
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Follow tutorials and compare their outputs.")
    parser.add_argument("action", choices=("check", "write"))
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    status = 0
    for file in chosen.files or sorted(TUTORIALS.glob("*.md")):
        try:
            wrong = compare(file, write=chosen.action == "write")
        except Wrong as error:
            wrong = [f"{file.name}: {error}"]
            status = 1
        print("\n".join(wrong), end="\n" if wrong else "")
        if wrong and chosen.action == "check":
            status = 1
    return status


if __name__ == "__main__":
    ending.exceptions_for_signals()
    sys.exit(main())
