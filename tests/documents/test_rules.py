# SPDX-License-Identifier: Apache-2.0 OR MIT
"""docs/kernel-rules.md has an entry for every tag that the tree cites, and no other.

A tag is S1-31 (a fact), S1.7 (a table), S1 (a chapter) or T5 (a row of the cost table). "S1-50 to
S1-59" cites the first and the last tag, and the entries between them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = Path("docs/kernel-rules.md")
RESULTS = Path("bench/results")  # written by programs

CHAPTER = r"S(?:1[0-3]|[1-9])"
TAG = re.compile(rf"\b(?:{CHAPTER}(?:-\d+|\.\d+)?(?![-.]?\d)|T(?:2[01]|1\d|[1-9]))\b(?!-\w)")
RANGE = re.compile(rf"\b({CHAPTER})-(\d+) to \1-(\d+)\b")
ENTRY = re.compile(r'<a id="([^"]+)"></a>\*\*([^*]+)\*\*')
CHAPTER_ANCHOR = re.compile(r'<a id="([^"]+)"></a>\n\n## (\S+) ')
# A section's bare number cannot be told from a figure.
BARE_SECTION = re.compile(
    r"\b[Ss]pec(?:ification)? \d+\.\d|\b[Ss]ection \d+\.\d|\b(?:the|a) spec\b"
)


def walked(root: Path) -> Iterator[Path]:
    """All files of a tree without git, but for the folders of builds and tools."""
    for path in sorted(root.iterdir()):
        if path.name.startswith((".", "build", "__pycache__")):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from walked(path)
        elif path.is_file():
            yield path


def files(root: Path) -> list[Path]:
    """The tree's files, of git if the tree is git's own, by their paths from the root."""
    try:
        command = ["git", "-C", str(root), "ls-files", "-z"]
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        paths = [root / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = []
    if not (root / ".git").exists() or not paths:
        paths = list(walked(root))
    return [path.relative_to(root) for path in paths if path.is_file()]


def texts(root: Path) -> Iterator[tuple[Path, str]]:
    """Every text of the tree that may cite a tag: all but the rules, this test and results."""
    here = Path(__file__).resolve().relative_to(ROOT)
    for path in files(root):
        if path in (RULES, here) or RESULTS in path.parents:
            continue
        data = (root / path).read_bytes()
        if b"\0" not in data:
            yield path, data.decode(errors="replace")


def cited(root: Path) -> dict[str, str]:
    """Tags and ranges ("S1-50 to S1-59") that the tree cites, and a place of each."""
    found: dict[str, str] = {}
    for path, text in texts(root):
        for number, line in enumerate(text.splitlines(), 1):
            for match in (*TAG.finditer(line), *RANGE.finditer(line)):
                found.setdefault(match[0], f"{path}:{number}")
        # A range may be broken by the end of a comment's line.
        joined = re.sub(r"\s*\n[\s*/#]*", " ", text)
        for match in RANGE.finditer(joined):
            found.setdefault(match[0], str(path))
    return found


def entries(rules: str) -> list[str]:
    return [name for _, name in ENTRY.findall(rules)]


def chapters(rules: str) -> list[str]:
    return [name for _, name in CHAPTER_ANCHOR.findall(rules)]


def without_entry(tags: dict[str, str], rules: str) -> list[str]:
    known = {*entries(rules), *chapters(rules)}
    return [
        f"{place}: {tag} has no entry in {RULES}"
        for tag, place in tags.items()
        if TAG.fullmatch(tag) and tag not in known
    ]


def uncited(tags: dict[str, str], rules: str) -> list[str]:
    ranges = [match for tag in tags if (match := RANGE.fullmatch(tag))]

    def is_in_range(name: str) -> bool:
        chapter, _, number = name.partition("-")
        return any(
            chapter == match[1] and int(match[2]) <= int(number or 0) <= int(match[3])
            for match in ranges
        )

    return [
        f"{RULES}: nothing cites {name}"
        for name in entries(rules)
        if name not in tags and not is_in_range(name)
    ]


def rules_text() -> str:
    return (ROOT / RULES).read_text()


def test_every_tag_has_an_entry() -> None:
    assert without_entry(cited(ROOT), rules_text()) == []


def test_every_entry_is_cited() -> None:
    assert uncited(cited(ROOT), rules_text()) == []


def test_an_entry_is_found_by_its_tag() -> None:
    """#s1-31 leads to S1-31; no tag has two entries."""
    rules = rules_text()
    pairs = ENTRY.findall(rules) + CHAPTER_ANCHOR.findall(rules)
    assert [(anchor, name) for anchor, name in pairs if anchor != name.lower()] == []
    assert rules.count('<a id="') == len(pairs)
    assert len({name for _, name in pairs}) == len(pairs)


def test_rules_cite_entries() -> None:
    """A rule that refers to another finds it too."""
    rules = rules_text()
    tags = {match[0]: str(RULES) for match in TAG.finditer(rules)}
    assert without_entry(tags, rules) == []


def test_nothing_is_cited_by_a_bare_number() -> None:
    found = [
        f"{path}: {match[0]!r}"
        for path, text in texts(ROOT)
        for match in BARE_SECTION.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize("tag", ["S1-99", "S5.9", "S8", "T20"])
def test_a_planted_tag_is_found(tmp_path: Path, tag: str) -> None:
    """In a tree without git, which is walked."""
    (tmp_path / "src").mkdir()
    (tmp_path / "build-clang").mkdir()
    (tmp_path / "src" / "planted.c").write_text(f"/* Of a line\n * and a tag ({tag}). */\n")
    (tmp_path / "build-clang" / "log.txt").write_text("S1-98")
    rules = '- <a id="s1-31"></a>**S1-31** A fact.\n'
    assert without_entry(cited(tmp_path), rules) == [
        f"src/planted.c:2: {tag} has no entry in {RULES}"
    ]


def test_a_planted_entry_is_found(tmp_path: Path) -> None:
    (tmp_path / "cites.c").write_text("/* S1-31; S1-50 to\n * S1-59 */\n")
    rules = "".join(
        f'- <a id="{tag.lower()}"></a>**{tag}** A fact.\n'
        for tag in ("S1-31", "S1-50", "S1-54", "S1-59", "S1-60")
    )
    tags = cited(tmp_path)
    assert without_entry(tags, rules) == []
    assert uncited(tags, rules) == [f"{RULES}: nothing cites S1-60"]


@pytest.mark.parametrize(
    "text", ["S3-DG", "E5-2670", "S32", "S14", "T22", "S1-31-2", "AS1", "0.01"]
)
def test_other_words_are_no_tags(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.txt").write_text(text)
    assert cited(tmp_path) == {}
