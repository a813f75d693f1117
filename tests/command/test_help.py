# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The help of each command, on a terminal of 80 columns."""

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from kmem_command import kmem

from kmem.commands.shown import command


def parts(part: Any, words: str) -> Iterator[Any]:
    yield pytest.param(part, id=words)
    for name, inner in getattr(part, "commands", {}).items():
        if name != "run":
            yield from parts(inner, f"{words} {name}")


def shown(
    part: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    part.main(["--help"], prog_name="kmem", standalone_mode=False)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("part", list(parts(command(), "kmem")))
def test_lines_fill_the_terminal(
    part: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(part, monkeypatch, capsys)
    assert max(map(len, lines)) <= 80
    text = lines[lines.index("", 1) + 1 : next(i for i, row in enumerate(lines) if row[:1] == "╭")]
    paragraphs = "\n".join(line.removeprefix(" ") for line in text).strip().split("\n\n")
    for paragraph in paragraphs:
        assert paragraph == textwrap.fill(
            paragraph, 78, break_long_words=False, break_on_hyphens=False
        )


@pytest.mark.parametrize("part", list(parts(command(), "kmem")))
def test_values_have_names_and_not_types(
    part: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(part, monkeypatch, capsys)
    assert not re.search(r"<|\[\[|\.\.\.[]}]\.\.\.", "\n".join(lines))


def test_help_of_run_fits_the_terminal() -> None:
    assert max(map(len, kmem("run", "--help").stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "ranges"),
    [
        ("replay", ("1 to 8192", "1 to 8;", "1 to 65536", "1 to 1073741824", "at most 1024")),
        ("tune", ("1 to 8192", "1 to 8;", "1 to 65536", "0.000001 to 1000000000")),
        ("profile", ("1K to 1T",)),
        ("run", ("0 to 1073741824", "1 to less than 8 exbibytes")),
        ("lab order", ("1 to 8192", "4096 to 65536", "1 to 10000;", "1 to 100000000")),
        ("record kernel", ("at most 86400",)),
    ],
)
def test_ranges_of_numbers_are_said(words: str, ranges: tuple[str, ...]) -> None:
    shown = kmem(*words.split(), "--help", environment={"COLUMNS": "300"}).stdout
    text = " ".join(shown.replace("│", " ").split())
    for one in ranges:
        assert one in text
