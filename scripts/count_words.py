#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Count the words that hide the subject of a sentence, in comments, help texts and documents.

    count_words.py [--files N] [--limit RATE]

Counted are nine words (WORDS) for each 100 words of prose, and the sentences that begin with an
opening of OPENINGS. Comments of C are counted by folder; Python's are those of python/kmem, with
its docstrings and help texts; documents are all *.md of the tree without their code. --files
lists the N files of each group with the highest rate, and --limit makes the exit status 1 if a
group has a higher rate than that.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = {"what", "who", "whom", "whose", "one", "ones", "same", "such", "those"}
OPENINGS = ("The same", "Who", "What is")
HELP_ARGUMENTS = {"help", "short_help", "epilog", "description"}  # of Typer and argparse
FEW_WORDS = 50  # a file with fewer is not listed: its rate says nothing

WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
# A comment, or a text or character, in which a comment does not begin.
C_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
SENTENCE_BEGIN = r"(?:\A|(?<=[.?!]\s)|(?<=\n\n))"
OPENING = re.compile(rf"{SENTENCE_BEGIN}\s*(?:{'|'.join(OPENINGS)})\b")


@dataclass
class Counted:
    """The figures of some prose."""

    words: int = 0
    marked: int = 0  # of WORDS
    openings: int = 0

    def add(self, other: Counted) -> None:
        self.words += other.words
        self.marked += other.marked
        self.openings += other.openings

    def rate(self) -> float:
        return 100 * self.marked / self.words if self.words else 0.0


@dataclass
class Group:
    """Files of a kind, which are counted together."""

    name: str
    files: dict[str, Counted] = field(default_factory=dict)

    def total(self) -> Counted:
        total = Counted()
        for counted in self.files.values():
            total.add(counted)
        return total


def count(texts: list[str]) -> Counted:
    counted = Counted()
    for text in texts:
        words = WORD.findall(text)
        counted.words += len(words)
        counted.marked += sum(word.lower() in WORDS for word in words)
        counted.openings += len(OPENING.findall(text))
    return counted


def c_comments(source: str) -> list[str]:
    comments = []
    for token in C_TOKEN.findall(source):
        if token.startswith("//"):
            comments.append(token[2:].strip())
        elif token.startswith("/*"):
            lines = [line.strip().removeprefix("*").strip() for line in token[2:-2].split("\n")]
            comments.append("\n".join(lines).strip())
    return comments


def python_help(tree: ast.Module) -> list[str]:
    """Texts that are arguments of these names."""
    return [
        part.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for argument in call.keywords
        if argument.arg in HELP_ARGUMENTS
        for part in ast.walk(argument.value)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def python_prose(source: str) -> list[str]:
    """Comments, docstrings and help texts."""
    lines = source.splitlines()
    texts: list[str] = []
    last = (-2, 0)  # line and column of the comment before
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#!").strip()
        line, column = token.start
        alone = lines[line - 1][:column].strip() == ""
        if alone and last == (line - 1, column):
            texts[-1] += "\n" + text  # a comment goes on
        else:
            texts.append(text)
        last = (line, column if alone else -1)
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node)):
            texts.append(docstring)
    return texts + python_help(tree)


def document_prose(source: str) -> list[str]:
    """Paragraphs, list items and table cells, without code and addresses."""
    source = re.sub(r"^```.*?^```", "", source, flags=re.DOTALL | re.MULTILINE)
    source = re.sub(r"<!--.*?-->", "", source, flags=re.DOTALL)
    source = re.sub(r"`[^`]*`", "`", source)
    source = re.sub(r"\]\([^)]*\)", "]", source)
    texts = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.)\s)", source):
        for cell in paragraph.split("|"):
            text = re.sub(r"\A[\s#*-]*(?:\d+\.\s)?[\s*]*", "", cell).strip()
            if text:
                texts.append(text)
    return texts


def tracked(*patterns: str) -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def read_groups() -> list[Group]:
    groups = []
    for folder in ("src", "include", "tools", "tests"):
        patterns = [f"{folder}/*{suffix}" for suffix in (".c", ".h", ".cpp", ".hpp")]
        groups.append(Group(f"comments in C, {folder}"))
        for name in tracked(*patterns):
            groups[-1].files[name] = count(c_comments((ROOT / name).read_text()))
    groups.append(Group("Python, python/kmem"))
    for name in tracked("python/kmem/*.py"):
        groups[-1].files[name] = count(python_prose((ROOT / name).read_text()))
    groups.append(Group("documents"))
    for name in tracked("*.md"):
        groups[-1].files[name] = count(document_prose((ROOT / name).read_text()))
    return groups


def row(name: str, counted: Counted) -> str:
    return (
        f"{name:<44} {counted.words:>8} {counted.marked:>8} {counted.rate():>8.2f} "
        f"{counted.openings:>8}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the words that hide a subject.")
    parser.add_argument("--files", type=int, default=0, metavar="N", help="list the worst files")
    parser.add_argument("--limit", type=float, metavar="RATE", help="highest rate of a group")
    chosen = parser.parse_args()
    print(f"{'':<44} {'words':>8} {'marked':>8} {'per 100':>8} {'openings':>8}")
    groups = read_groups()
    for group in groups:
        print(row(group.name, group.total()))
        listed = [item for item in group.files.items() if item[1].words >= FEW_WORDS]
        listed.sort(key=lambda item: item[1].rate(), reverse=True)
        for name, counted in listed[: chosen.files]:
            print(row(f"  {name}", counted))
    if chosen.limit is None:
        return 0
    above = [group.name for group in groups if group.total().rate() > chosen.limit]
    if above:
        print(f"above {chosen.limit}: {', '.join(above)}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
