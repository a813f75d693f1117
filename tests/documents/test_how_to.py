# SPDX-License-Identifier: Apache-2.0 OR MIT
"""docs/how-to-add-a-policy.md, followed to the letter on a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to-add-a-policy.md"
BIN = Path(sys.executable).parent

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEW_FILE = re.compile(r"^New file `([^`]+)`:$")
CHANGE = re.compile(r"^`([^`]+)`, (after|in place of) `(.+)`:$")

BUILT = ["libraries", "bench/reuse", "tools/options"]

# The laboratory without the build of everything that it begins with; the test has built its part.
KMEM = """
import sys
import kmem.lab.report
kmem.lab.report.build = lambda: None
from kmem.__main__ import main
main()
"""


@dataclass(frozen=True)
class Edit:
    """A block of code and its place: `way` is empty for a new file."""

    path: str
    way: str
    line: str
    code: str


@dataclass(frozen=True)
class Command:
    """A line behind a dollar, and its output."""

    line: str
    output: str


def read_blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Language, content, and the last line in front of each block."""
    for block in BLOCK.finditer(text):
        before = text[: block.start()].rstrip("\n")
        yield block[1], block[2], before.rpartition("\n")[2]


def read_edits(text: str) -> list[Edit]:
    edits = []
    for language, code, place in read_blocks(text):
        if language == "console":
            continue
        if new := NEW_FILE.match(place):
            edits.append(Edit(new[1], "", "", code))
        elif change := CHANGE.match(place):
            edits.append(Edit(change[1], change[2], change[3], code))
        else:
            raise ValueError(f"{place!r}: expected the place of the code below")
    return edits


def read_commands(text: str) -> list[Command]:
    commands = []
    for language, content, _ in read_blocks(text):
        if language == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                line, _, output = part.partition("\n")
                commands.append(Command(line, output))
    return commands


def apply(edit: Edit, folder: Path) -> None:
    file = folder / edit.path
    if not edit.way:
        if file.exists():
            raise ValueError(f"{edit.path} is there already")
        file.write_text(edit.code)
        return
    lines = file.read_text().splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if line.strip() == edit.line]
    if len(found) != 1:
        raise ValueError(f"{edit.path}: {len(found)} lines {edit.line!r}; expected one")
    kept = lines[found[0] : found[0] + 1] if edit.way == "after" else []
    lines[found[0] : found[0] + 1] = [*kept, edit.code]
    file.write_text("".join(lines))


def copy_tree(folder: Path) -> None:
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, capture_output=True, check=True).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def build(folder: Path) -> None:
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    for command in (
        ["meson", "setup", "--buildtype=debug", "--werror", "build"],
        ["ninja", "-C", "build", *BUILT],
    ):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def text() -> str:
    return HOW_TO.read_text()


@pytest.fixture(scope="module")
def tree(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with all code of the document, built."""
    folder = tmp_path_factory.mktemp("followed")
    copy_tree(folder)
    for edit in read_edits(text):
        apply(edit, folder)
    build(folder)
    return folder


def run(line: str, folder: Path) -> str:
    """Standard output; ./kmem run needs no Python, any other command has that of the test."""
    environment = {name: value for name, value in os.environ.items() if name != "KMEM_OPTIONS"}
    environment |= {"PYTHONPATH": str(folder / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    if line.startswith("./kmem ") and not line.startswith("./kmem run "):
        command = [sys.executable, "-c", KMEM, *line.split()[1:]]
    else:
        command = ["bash", "-c", line]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == "", done.stderr
    return done.stdout


def lines_of(output: str) -> list[str]:
    """Without blanks at the ends of lines and without empty lines, which tables have."""
    return [line.rstrip() for line in output.splitlines() if line.strip()]


def test_commands_print_their_outputs(text: str, tree: Path) -> None:
    commands = read_commands(text)
    assert len(commands) == 8
    for command in commands:
        for _ in range(3 if command.line.startswith("KMEM_OPTIONS") else 1):
            assert lines_of(run(command.line, tree)) == lines_of(command.output), command.line


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("block", "block", "not the start of a block of this heap"),
        ("NULL", "block + 16", "it is not the start of an object"),
    ],
)
def test_a_wrong_free_is_seen(
    tree: Path, tmp_path: Path, first: str, second: str, message: str
) -> None:
    """By the new back end: twice, or inside an object."""
    source, program = tmp_path / "wrong.c", tmp_path / "wrong"
    source.write_text(
        "#include <stdlib.h>\n"
        f"int main(void) {{ char *block = malloc(3000); free({first}); free({second}); }}\n"
    )
    subprocess.run(["cc", "-w", "-fno-builtin", "-o", program, source], check=True)
    line = f"./kmem run --set engine=page,bad_free=ignore -- {program} 2>&1"
    assert message in run(line, tree)


def test_the_experiment_is_of_all(tree: Path) -> None:
    line = "import kmem.lab.everything; print('reuse' in kmem.lab.everything.EXPERIMENTS)"
    assert run(f'{sys.executable} -c "{line}"', tree) == "True\n"


def test_code_has_the_form_of_the_tree(text: str, tree: Path) -> None:
    """So that make lint has nothing to say when it was typed."""
    edited = sorted({edit.path for edit in read_edits(text)})
    python = [name for name in edited if name.endswith(".py")]
    for command in (["ruff", "check", *python], ["ruff", "format", "--check", *python]):
        done = subprocess.run(
            [BIN / command[0], *command[1:]], cwd=tree, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    if shutil.which("clang-format") is None:
        pytest.skip("clang-format is not installed")
    c = [name for name in edited if name.endswith((".c", ".h"))]
    done = subprocess.run(
        ["clang-format", "--dry-run", "-Werror", *c],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("`file.c`, after `two`:", "2 lines 'two'"),
        ("`file.c`, in place of `four`:", "0 lines 'four'"),
        ("New file `file.c`:", "there already"),
        ("Somewhere:", "expected the place"),
    ],
)
def test_a_wrong_place_is_named(place: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file.c").write_text("one\ntwo\n  two\nthree\n")
    with pytest.raises(ValueError, match=message):
        for edit in read_edits(f"{place}\n\n```c\ncode\n```\n"):
            apply(edit, tmp_path)


def test_edits(tmp_path: Path) -> None:
    (tmp_path / "file.c").write_text("one\n  two\nthree\n")
    for place in ("`file.c`, after `one`:", "`file.c`, in place of `two`:", "New file `new.c`:"):
        (edit,) = read_edits(f"Text.\n\n{place}\n\n```c\ncode\n```\n")
        apply(edit, tmp_path)
    assert (tmp_path / "file.c").read_text() == "one\ncode\ncode\nthree\n"
    assert (tmp_path / "new.c").read_text() == "code\n"
