# SPDX-License-Identifier: Apache-2.0 OR MIT
"""docs/mails.md has all five mails, and what its rows name exists: options with their values,
functions, files, tests and commands."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kmem.lab.mails import MAILS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "mails.md"
PLACE = re.compile(r"`(\w+)` in \[([\w.]+)\]\(\.\./([\w/.-]+)\)")
HEADINGS = ["claim", "option and value", "function", "test", "command"]


@dataclass(frozen=True)
class Row:
    mail: str
    claim: str
    options: list[str]
    function: str
    test: str
    command: str


def rows() -> list[Row]:
    found = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        name = section.partition("\n")[0]
        lines = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        assert cells[0] == HEADINGS
        for claim, options, function, test, command in cells[2:]:
            found.append(
                Row(name, claim, re.findall("`([^`]+)`", options), function, test, command)
            )
    return found


ROWS = rows()


def is_defined(name: str, file: Path) -> bool:
    """As a function or a macro, whose name is at the begin of a line or behind its type."""
    text = file.read_text()
    if file.suffix == ".py":
        return re.search(rf"^(def|class) {name}\(", text, re.MULTILINE) is not None
    return re.search(rf"^[A-Za-z_][\w \t*]*\b\**{name}\(", text, re.MULTILINE) is not None


def assert_place(text: str) -> None:
    """The only place in a cell."""
    match = PLACE.fullmatch(text)
    assert match, text
    name, shown, path = match.groups()
    file = ROOT / path
    assert file.is_file(), path
    assert file.name == shown
    assert is_defined(name, file), f"{path} does not define {name}"


def test_all_mails_are_there_with_their_archives() -> None:
    text = PAGE.read_text()
    for mail in MAILS:
        assert f"[{mail.subject}]({mail.address}), {mail.author}, {mail.date}." in text
        assert mail.address in (ROOT / "docs" / "glossary.md").read_text()
    assert len({row.mail for row in ROWS}) == len(MAILS) == 5
    for name in {row.mail for row in ROWS}:
        assert len([row for row in ROWS if row.mail == name]) >= 12


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.claim)
def test_what_a_row_names_exists(row: Row) -> None:
    if row.function != "-":
        assert_place(row.function)
    if row.test != "-":
        assert_place(row.test)
        assert "tests/" in row.test
    # A claim without anything says why.
    if row.function == row.test == "-":
        assert row.claim.count(".") > 1


def complaint(option: str) -> str:
    """The library's line at its start about an option, or a value, that it does not know."""
    done = subprocess.run(
        [ROOT / "kmem", "run", "--set", option, "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == (2 if done.stderr else 0)
    return done.stderr


def test_options_are_accepted() -> None:
    options = sorted({option for row in ROWS for option in row.options})
    assert len(options) > 15
    assert {option: complaint(option) for option in options} == dict.fromkeys(options, "")
    assert "freeze=never" in complaint("freeze=never")


def commands() -> list[str]:
    found = {row.command for row in ROWS if row.command != "-"}
    assert all(command.startswith("`./kmem ") and command.endswith("`") for command in found)
    return sorted(command.strip("`") for command in found)


@pytest.mark.parametrize("command", commands())
def test_commands_exist(command: str) -> None:
    """With their options, which their help names."""
    words = shlex.split(command)
    names = [word for word in words[1:] if not word.startswith("--")]
    help_words = [ROOT / "kmem", *(names[:2] if names[0] in ("lab", "bench") else names[:1])]
    done = subprocess.run(
        [*help_words, "--help"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", done.stdout), option


def test_what_is_not_there_is_found(tmp_path: Path) -> None:
    file = tmp_path / "code.c"
    file.write_text(
        "static void one(void)\n{\n        two(1);\n}\nstruct page *three(int a,\n  int b)\n{\n}\n"
    )
    assert [is_defined(name, file) for name in ("one", "two", "three", "thre")] == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(AssertionError):
        assert_place("`nothing` in [order.c](../src/engines/slub/order.c)")
    with pytest.raises(AssertionError):
        assert_place("`slub_order` in [order.c](../src/engines/slub/none.c)")
