# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Interpreters and tools: perl, bash, git, node, stress-ng."""

import re
from pathlib import Path

import pytest
from dropin import (
    DEFAULT,
    INPUTS,
    LIMITED,
    LOCKED,
    SLAB,
    SLOB,
    UNREGISTERED,
    Argument,
    Command,
    DropIn,
    Finished,
    Plain,
)
from generate import git_history
from needs import command, require
from settings import under

SETTINGS = (DEFAULT, LOCKED, LIMITED, UNREGISTERED, SLAB, SLOB)
everywhere = under(*SETTINGS, quick=(DEFAULT, LOCKED, LIMITED))
each_engine_quick = under(*SETTINGS, quick=(DEFAULT, LOCKED, LIMITED, SLAB, SLOB))
unlimited = under(DEFAULT, LOCKED, UNREGISTERED, SLAB, SLOB, quick=(DEFAULT, LOCKED))


# ---- perl and bash -----------------------------------------------------------------------------


@each_engine_quick
def test_perl(dropin: DropIn, plain: Plain) -> None:
    require("perl")
    argv: Command = [command("perl"), INPUTS / "workload.pl"]
    finished = dropin.run(argv, minimum=50_000)
    assert finished.stdout == plain.run(argv).stdout
    assert finished.stdout.endswith("pipes ok\n")
    assert finished.stderr == ""


@each_engine_quick
def test_bash(dropin: DropIn, plain: Plain) -> None:
    require("bash")
    argv: Command = [command("bash"), INPUTS / "workload.bash"]
    finished = dropin.run(argv, minimum=300, processes=20)
    assert finished.stdout == plain.run(argv).stdout
    assert "deepererer\n" in finished.stdout and "doubled 600\n" in finished.stdout
    assert finished.stdout.endswith("8 2694\n")
    assert finished.stderr == ""


# ---- git ---------------------------------------------------------------------------------------

COMMITS, FILES = 300, 120
HEAD_TREE = ("rev-parse", "HEAD^{tree}", "HEAD")


class Repository:
    """Runs git on one repository, each command on the drop-in."""

    def __init__(self, dropin: DropIn, folder: Path) -> None:
        self.dropin = dropin
        self.folder = folder

    def git(
        self, *arguments: Argument, minimum: int, processes: int = 1, stdin: str | None = None
    ) -> Finished:
        argv: Command = [command("git"), "-C", self.folder, *arguments]
        return self.dropin.run(argv, minimum=minimum, processes=processes, stdin=stdin)

    def import_history(self, history: str) -> None:
        self.folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main", minimum=50)
        self.git("fast-import", "--quiet", "--done", minimum=300, stdin=history)
        self.git("reset", "--quiet", "--hard", minimum=100)


@pytest.fixture(scope="module")
def plain_names(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The names of the last tree and commit, from git without the drop-in."""
    require("git")
    plain = Plain(tmp_path_factory.mktemp("git"))
    plain.run([command("git"), "init", "--quiet", "--bare", "--initial-branch=main"])
    plain.run(
        [command("git"), "fast-import", "--quiet", "--done"], stdin=git_history(COMMITS, FILES)
    )
    return plain.run([command("git"), *HEAD_TREE]).stdout


@everywhere
def test_git(dropin: DropIn, plain_names: str, tmp_path: Path) -> None:
    origin = Repository(dropin, tmp_path / "origin")
    origin.import_history(git_history(COMMITS, FILES))
    assert origin.git(*HEAD_TREE, minimum=50).stdout == plain_names

    clone = Repository(dropin, tmp_path / "clone")
    origin.git(
        *("clone", "--quiet", "--no-local", f"file://{origin.folder}", clone.folder),
        minimum=300,
        processes=3,
    )
    # git, repack, pack-objects with two threads, prune-packed and more.
    clone.git(
        *("-c", "pack.threads=2", "-c", "gc.pruneExpire=now", "gc", "--quiet", "--aggressive"),
        minimum=300,
        processes=4,
    )
    for repository in (origin, clone):
        checked = repository.git("fsck", "--full", "--strict", "--no-progress", minimum=300)
        assert checked.stdout == "" and checked.stderr == "", checked.describe()
        assert repository.git(*HEAD_TREE, minimum=50).stdout == plain_names
        assert repository.git("status", "--porcelain", minimum=50).stdout == ""
    log = clone.git("log", "--format=%s", "--stat", "-p", minimum=300).stdout
    assert len(re.findall(r"^Change number \d+$", log, re.MULTILINE)) == COMMITS
    assert clone.git("blame", "folder1/file1.txt", minimum=100).stdout.count("\n") == 121


# ---- node --------------------------------------------------------------------------------------


@unlimited
def test_node(dropin: DropIn, plain: Plain, tmp_path: Path) -> None:
    require("node")
    argv: Command = [command("node"), INPUTS / "workload.js", tmp_path]
    expected = plain.run(argv)
    finished = dropin.run(argv, minimum=10_000)
    assert finished.stdout == expected.stdout
    assert finished.stdout.count("worker ") == 4
    assert finished.stderr == ""


# ---- stress-ng ---------------------------------------------------------------------------------


def expect_stressed(finished: Finished, stressor: str) -> None:
    report = finished.stdout + finished.stderr
    assert re.search(rf"passed: 2: {stressor} \(2\)|successful run completed", report), report
    assert not re.search(r"failed: [1-9]|fail:", report), report


@under(*(setting for setting in SETTINGS if setting is not SLOB), quick=(DEFAULT, LOCKED, LIMITED))
def test_stress_ng(dropin: DropIn) -> None:
    """Two processes of three threads each, which look at what they wrote (--verify)."""
    require("stress-ng")
    argv: Command = [command("stress-ng"), "--malloc", "2", "--malloc-ops", "400000"]
    argv += ["--malloc-pthreads", "2", "--malloc-bytes", "64K", "--malloc-max", "4096"]
    argv += ["--verify", "--temp-path", dropin.folder]
    finished = dropin.run(argv, minimum=2_000, processes=2)
    expect_stressed(finished, "malloc")


@under(SLOB, quick=())
def test_stress_ng_without_malloc(dropin: DropIn) -> None:
    """Its malloc stressor writes 8 bytes to what it got by calloc(17, 0). Other engines' least
    block has room for them; engine slob's blocks have the size asked for, and it says so."""
    require("stress-ng")
    argv: Command = [command("stress-ng"), "--skiplist", "2", "--skiplist-ops", "2000"]
    argv += ["--verify", "--temp-path", dropin.folder]
    finished = dropin.run(argv, minimum=10_000, processes=2)
    expect_stressed(finished, "skiplist")
