# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Documents: links lead somewhere, table cells are short, and figures are those of the commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from kmem.commands.shown import command as all_of_kmem

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "document_figures.py"
CELL_MOST = 200  # characters; more is a paragraph or a list beneath the table

sys.path.insert(0, str(SCRIPT.parent))
import document_figures  # noqa: E402

DOCUMENTS = document_figures.documents()


def without_code(text: str) -> str:
    """With code and comments blanked, line for line."""
    blocks = re.compile(r"^```.*?^```|<!--.*?-->", re.DOTALL | re.MULTILINE)
    text = blocks.sub(lambda block: "\n" * block[0].count("\n"), text)
    return re.sub(r"`[^`\n]*`", "`", text)


def anchors(text: str) -> set[str]:
    """Those that a page has: headings in small letters without punctuation, blanks as hyphens.

    And those that it names itself, as the glossary does for its words.
    """
    found = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+\s+(.*?)\s*$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        times = sum(re.fullmatch(rf"{re.escape(words)}(-\d+)?", name) is not None for name in found)
        found.add(f"{words}-{times}" if times else words)
    return found


def broken_links(file: Path, text: str) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue  # an address outside the tree
        name, _, anchor = target.partition("#")
        place = (file.parent / name).resolve() if name else file
        if not place.exists():
            broken.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(place.read_text()):
            broken.append(f"{target}: no such heading")
    # A name of a document in code is one of this tree, too.
    for name in re.findall(r"`([\w./-]+\.md)`", text):
        if not any((folder / name).exists() for folder in (file.parent, ROOT, ROOT / "docs")):
            broken.append(f"{name}: no such document")
    return broken


def long_cells(text: str) -> list[str]:
    cells = [
        cell.strip()
        for line in without_links(text).split("\n")
        if line.startswith("|")
        for cell in re.split(r"(?<!\\)\|", line.strip("|"))
    ]
    return [cell for cell in cells if len(cell) > CELL_MOST]


def without_links(text: str) -> str:
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_and_tables(file: Path) -> None:
    text = file.read_text()
    assert broken_links(file, text) == []
    assert long_cells(text) == []


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text(
        '# A heading, `with` code\n## Twice\n## Twice\n<a id="own"></a>\n'
    )
    text = "[a](there.md) [b](there.md#a-heading-with-code) [c](there.md#twice-1) `[d](none.md)`"
    text += " [o](there.md#own)"
    assert broken_links(tmp_path / "new.md", text) == []
    assert broken_links(tmp_path / "new.md", "[a](there.md#twice-2) [b](none.md) `none.md`") == [
        "there.md#twice-2: no such heading",
        "none.md: no such file",
        "none.md: no such document",
    ]
    assert long_cells(f"| {'a' * 201} | b |") == ["a" * 201]
    assert long_cells(f"| {'a' * 200} | [b]({'c' * 300}) <!--{'d' * 300}--> |") == []


def table_words(name: str, pattern: str) -> set[str]:
    """What the pattern finds in the tables of a document."""
    lines = (ROOT / "docs" / name).read_text().split("\n")
    return set(re.findall(pattern, "\n".join(line for line in lines if line.startswith("|"))))


def test_every_target_of_make_is_listed() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets and table_words("building.md", r"`make ([\w-]+)`") == set(targets[1].split())


@pytest.mark.parametrize("name", ["building.md", "install.md"])
def test_every_command_names_its_packages(name: str) -> None:
    """But run, which needs none, demo, which make runs, and bench, which is not installed."""
    commands = set(all_of_kmem().commands) - {"run", "demo"}
    if name == "install.md":
        commands.remove("bench")
    assert commands - table_words(name, r"`(?:\./kmem )?(\w+)[ `]") == set()


# ---- Figures ------------------------------------------------------------------------------------


def figures(action: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, action, *files]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_figures_are_the_kept_ones() -> None:
    done = figures("check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_changed_figure_is_found_and_mended() -> None:
    """The last digit in front of each marker."""
    page = (ROOT / "docs" / "experiments.md").read_text()
    marked = list(re.finditer(r"\d(?=\D?<!--[a-z])", page))
    assert len(marked) > 80
    for digit in marked:
        wrong = str((int(digit[0]) + 1) % 10)
        changed = page[: digit.start()] + wrong + page[digit.end() :]
        mended, lines = document_figures.rewritten(changed)
        assert mended == page
        assert len(lines) == 1 and "stands there, expected" in lines[0]


def test_a_changed_document_fails_the_check(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("-1.0%<!--freeze: rows[1].allocator_percent-->\n")
    kept = json.loads((ROOT / "docs" / "figures" / "freeze.json").read_text())
    value = f"{kept['rows'][1]['allocator_percent']:+.1f}"
    done = figures("check", page)
    assert done.returncode == 1 and f"-1.0 stands there, expected {value}" in done.stdout
    assert figures("write", page).returncode == 0
    assert figures("check", page).returncode == 0


@pytest.mark.parametrize(
    "marker",
    [
        "5<!--nothing: a-->",
        "5<!--freeze: nothing-->",
        "5<!--freeze: len(seeds), len(seeds)-->",
        "<!--freeze: 1-->",
    ],
)
def test_a_marker_that_leads_nowhere_is_named(tmp_path: Path, marker: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{marker}\n")
    done = figures("check", page)
    assert done.returncode == 1 and f"{page}: line 3: " in done.stdout
    assert page.read_text() == f"# Page\n\n{marker}\n"


def test_every_kept_file_is_known() -> None:
    kept = {file.stem for file in document_figures.KEPT.glob("*.json")}
    assert kept - set(document_figures.COMMANDS) == {
        "slob-elsewhere",
        "cpu-seconds",
        "explored",
        "idle",
        "hunt",
        "tails",
        "fuzz-readers",
        "heaps-check",
        "heaps-held-back",
        "heaps-winners",
        "import-speed",
        "import-speed-long",
        "misuse",
    }
    assert set(document_figures.COMMANDS) <= kept
    table = (document_figures.KEPT / "README.md").read_text()
    listed = re.findall(r"`([\w*-]+)\.json`", table)
    assert {name for name in kept if not any(fnmatch(name, one) for one in listed)} == set()


QUICK = ("boots", "freeze-quick", "workloads", "slob")


def is_quick(name: str) -> bool:
    """Whether `make test` runs a command anew; tables of reports take a second."""
    return name in QUICK or name.startswith("explain-")


SLOW = pytest.mark.timeout(3600)  # cpu-partial takes five minutes of CPU time


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if is_quick(name) else [pytest.mark.full, SLOW])
        for name in document_figures.COMMANDS
    ],
)
def test_commands_write_what_is_kept(name: str) -> None:
    """`scripts/document_figures.py keep NAME` and `write` bring files and documents up to date."""
    kept = json.loads((document_figures.KEPT / f"{name}.json").read_text())
    written, _ = document_figures.run(name)
    assert json.loads(written) == kept
