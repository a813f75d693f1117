# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`make release`: its files, checksums and tag, and what it refuses, in a small clone."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from kmem_command import ROOT

VERSION = (ROOT / "VERSION").read_text().strip()
DATED = f"# Changes\n\n## {VERSION} (2026-01-31)\n"


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *words]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "scripts").mkdir(parents=True)
    for name in ("scripts/release", "VERSION", ".gitignore", "Makefile"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "CHANGELOG.md").write_text(DATED)
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@localhost")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all: a commit")


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "release"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def add_part(folder: Path, name: str, line: str) -> None:
    script = folder / "scripts" / name
    script.write_text(f"#!/bin/sh\n{line}\n")
    script.chmod(0o755)


def test_files_checksums_and_tag(clone: Path) -> None:
    add_part(clone, "wheel", 'echo wheel >"$1/kmem.whl"')
    commit(clone)
    done = release(clone)
    assert done.returncode == 0, done.stderr
    made = clone / "build-release"
    sources = f"libkmem-{VERSION}.tar.gz"
    assert {path.name for path in made.iterdir()} == {sources, "kmem.whl", "SHA256SUMS"}
    subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=made, check=True
    )
    assert (made / "SHA256SUMS").read_text().count("\n") == 2
    with tarfile.open(made / sources) as archive:
        assert f"libkmem-{VERSION}/scripts/release" in archive.getnames()
    assert git(clone, "rev-parse", f"v{VERSION}^{{commit}}") == git(clone, "rev-parse", "HEAD")
    for part in ("deb", "crates"):
        assert f"without scripts/{part}" in done.stdout


def test_sources_of_dist(clone: Path) -> None:
    add_part(clone, "dist", 'echo sources >"$1/sources"')
    commit(clone)
    assert release(clone).returncode == 0
    made = {path.name for path in (clone / "build-release").iterdir()}
    assert made == {"sources", "SHA256SUMS"}


def test_a_repeated_release_is_equal(clone: Path) -> None:
    sums = []
    for _ in range(2):
        assert release(clone).returncode == 0
        sums.append((clone / "build-release" / "SHA256SUMS").read_text())
        shutil.rmtree(clone / "build-release")
    assert sums[0] == sums[1]


def change(clone: Path) -> None:
    (clone / "new").touch()


def undated(clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text(f"# Changes\n\n## {VERSION} (unreleased)\n")
    commit(clone)


def other_tag(clone: Path) -> None:
    git(clone, "tag", f"v{VERSION}")
    change(clone)
    commit(clone)


def there(clone: Path) -> None:
    (clone / "build-release").mkdir()


def failing_part(clone: Path) -> None:
    add_part(clone, "deb", "echo half >$1/half; exit 3")
    commit(clone)


def part_that_changes_the_tree(clone: Path) -> None:
    add_part(clone, "deb", "touch left")
    commit(clone)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change, "the tree is not clean, commit or remove first: new"),
        (undated, f'no line "## {VERSION} (YYYY-MM-DD)"'),
        (other_tag, f"v{VERSION} is the tag of another commit"),
        (there, "build-release is there already"),
        (failing_part, ""),
        (part_that_changes_the_tree, "a part changed the tree"),
    ],
)
def test_what_is_refused(clone: Path, spoil, words: str) -> None:
    spoil(clone)
    before = git(clone, "tag")
    done = release(clone)
    assert done.returncode != 0
    assert words in done.stderr
    assert git(clone, "tag") == before
    made = clone / "build-release"
    assert not made.exists() or list(made.iterdir()) == []


def test_the_changes_are_of_this_version() -> None:
    newest = re.findall(r"^## (\S+) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[
        0
    ]
    assert newest[0] == VERSION
    assert newest[1] == "unreleased" or re.fullmatch(r"\d{4}-\d{2}-\d{2}", newest[1])
