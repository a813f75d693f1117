# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Messages of commits (CONTRIBUTING.md): a wrong one is found, and why is said."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CHECK = ROOT / "scripts" / "check-commits"
GOOD = "heap: blocks have a header\n\nWithout it free does not know their size.\n"


def git(folder: Path, *arguments: str) -> None:
    names = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path, message: str, path: str) -> None:
    file = folder / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(message)
    git(folder, "add", path)
    git(folder, "commit", "-q", "-m", message)


def checked(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHECK, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, GOOD, "src/block.c")
    return folder


@pytest.mark.parametrize(
    ("message", "path", "reason"),
    [
        ("blocks have a header\n\nWhy.\n", "src/b.c", 'expected "area: subject"'),
        (f"heap: {'x' * 67}\n\nWhy.\n", "src/b.c", "longer than 72 characters"),
        ("heap: blocks end\nnot empty\n\nWhy.\n", "src/b.c", "the second line is not empty"),
        ("heap: blocks end\n", "python/b.py", "no body says why"),
        ("heap: blocks end.\n\nWhy.\n", "src/b.c", "full stop"),
    ],
)
def test_a_planted_message_is_found(repository: Path, message: str, path: str, reason: str) -> None:
    commit(repository, message, path)
    done = checked(repository, "1")
    assert done.returncode == 1
    assert reason in done.stderr


def test_good_messages_pass(repository: Path) -> None:
    commit(repository, "docs: a table of blocks\n", "docs/blocks.md")
    commit(repository, f"a, b: {'x' * 66}\n\nWhy.\n", "src/b.c")
    done = checked(repository, "3")
    assert (done.returncode, done.stdout) == (0, "commit messages: 3 checked\n")


def test_new_are_those_that_the_upstream_has_not(repository: Path, tmp_path: Path) -> None:
    commit(repository, "an old message\n", "src/old.c")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repository), str(clone))
    assert checked(clone).stdout == "commit messages: 0 checked\n"
    commit(clone, "heap: no reason\n", "src/new.c")
    done = checked(clone)
    assert done.returncode == 1
    assert "heap: no reason" in done.stderr
    assert "old" not in done.stderr


def test_without_an_upstream_the_reason_is_said(repository: Path, tmp_path: Path) -> None:
    for folder in (repository, tmp_path):
        done = checked(folder)
        assert done.returncode == 0
        assert "skipped" in done.stdout


def test_wrong_arguments(repository: Path) -> None:
    assert checked(repository, "-5").returncode == 2
