# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the drop-in does with the restartable sequences of threads and of their children by vfork.

Programs run under c/follow_rseq.c, which sees on every kernel what only new ones punish.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from dropin import DropIn, Finished, Plain, Setting, check_status, start, wait
from needs import require, skip_as_told
from settings import under

Build = Callable[..., Path]

LAST_LINE = re.compile(
    r"follow_rseq: tasks \d+, registrations (\d+), unregistrations \d+, borrowers (\d+),"
    r" faults (\d+), stores (seen|unseen)\n"
)
FIRST_LINE = re.compile(r"follow_rseq: task \d+ of process \d+ ([a-z_' ]+): .*\n")

RSEQ = Setting("rseq", options="slots=rseq")
LOCKED = Setting("locked", options="slots=locked")
UNREGISTERED = Setting(
    "unregistered", options="slots=rseq", environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
)
SETTINGS = (RSEQ, LOCKED, UNREGISTERED)
everywhere = under(*SETTINGS, quick=SETTINGS)
one_quick = under(*SETTINGS, quick=(RSEQ,))


def run_followed(
    folder: Path, build: Build, command: list[Path | str], environment: Mapping[str, str]
) -> Finished:
    """The environment is that of the program, not of what follows it."""
    assigned = [f"{name}={value}" for name, value in environment.items()]
    follow = build("follow_rseq", "follow_rseq.c")
    finished = wait(start([follow, "env", *assigned, *command], folder, {}))
    skip_as_told(finished)
    return finished


def skip_if_stores_are_unseen(word: str) -> None:
    if word == "unseen":
        pytest.skip("no watchpoints here: stores were not checked, only system calls")


def expect_rules_kept(
    dropin: DropIn, build: Build, library: Path, command: list[Path | str], borrowers: int
) -> str:
    """Returns the output of a program that makes so many children by vfork, or more."""
    environment = {**dropin.setting.environment, "LD_PRELOAD": dropin.preload or str(library)}
    if dropin.setting.options:
        environment["KMEM_OPTIONS"] = dropin.setting.options
    finished = run_followed(dropin.folder, build, command, environment)
    check_status(finished)
    # The library is silent, so it got the slots that it was to have.
    counted = LAST_LINE.fullmatch(finished.stderr)
    assert counted, finished.describe()
    assert int(counted[1]) > 0, "nobody has registered restartable sequences"
    assert int(counted[2]) >= borrowers, finished.describe()
    assert int(counted[3]) == 0, finished.describe()
    skip_if_stores_are_unseen(counted[4])
    return finished.stdout


@everywhere
@pytest.mark.parametrize("threads", ["0", "3", "8"])
@pytest.mark.parametrize("rights", ["told", "untold"])
def test_children_of_vfork(
    dropin: DropIn, build: Build, library: Path, threads: str, rights: str
) -> None:
    program = build("vforks_at_once", "vforks_at_once.c", flags=("-pthread",))
    command = [program, threads, rights]
    assert expect_rules_kept(dropin, build, library, command, borrowers=16) == "ok\n"


@one_quick
def test_children_of_vfork_beside_threads(dropin: DropIn, build: Build, library: Path) -> None:
    program = build("vfork_beside_threads", "vfork_beside_threads.c", flags=("-pthread",))
    assert expect_rules_kept(dropin, build, library, [program], borrowers=400) == "ok\n"


@under(Setting("no options"))
def test_child_of_vfork_starts_the_heap(dropin: DropIn, build: Build, library: Path) -> None:
    program = build("vfork_first", "vfork_first.c")
    assert expect_rules_kept(dropin, build, library, [program], borrowers=2) == "ok\n"


@one_quick
@pytest.mark.parametrize("way", ["filter", "rights"])
@pytest.mark.parametrize("state", ["used", "new"])
def test_children_of_vfork_in_a_sandbox(
    dropin: DropIn, build: Build, library: Path, way: str, state: str
) -> None:
    program = build("sandboxed", "sandboxed.c")
    command = [program, way, state]
    assert expect_rules_kept(dropin, build, library, command, borrowers=4) == "ok\n"


@one_quick
def test_shell(dropin: DropIn, build: Build, library: Path) -> None:
    script = "i=0; while [ $i -lt 50 ]; do /bin/true; x=$(/bin/echo $i); i=$((i+1)); done; echo $x"
    command: list[Path | str] = ["dash", "-c", script]
    assert expect_rules_kept(dropin, build, library, command, borrowers=50) == "49\n"


@one_quick
def test_python_subprocess(dropin: DropIn, build: Build, library: Path) -> None:
    require("python")
    script = (
        "import subprocess\n"
        "for _ in range(10): subprocess.run(['/bin/true'], cwd='/', check=True)\n"
        "print('ok')"
    )
    command: list[Path | str] = ["/usr/bin/python3", "-c", script]
    assert expect_rules_kept(dropin, build, library, command, borrowers=10) == "ok\n"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program is for x86-64")
@under(UNREGISTERED)
@pytest.mark.parametrize("size", ["20", "28", "32", "33", "64"])
def test_areas_of_every_length(dropin: DropIn, build: Build, library: Path, size: str) -> None:
    """As libraries register them for whom the kernel knows more fields."""
    program = build("area_of_size", "area_of_size.c", flags=("-pthread",))
    command = [program, size]
    assert expect_rules_kept(dropin, build, library, command, borrowers=80) == "ok\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("child registers", "registers the area of another task"),
        ("unregisters longer", "unregisters what it has not registered"),
        ("registers longer", "registers again with another length"),
        ("stays unregistered", "ends without its registration"),
        ("cpu_id_start", "stores to a field that is the kernel's"),
        ("cpu_id", "stores to a field that is the kernel's"),
        ("node_id", "stores to a field that is the kernel's"),
        ("mm_cid", "stores to a field that is the kernel's"),
        ("child stores", "stores to the area of its parent"),
        ("child begins", "stores to the area of its parent"),
        ("registers again", ""),
        ("none", ""),
    ],
)
def test_broken_rules_are_seen(plain: Plain, build: Build, fault: str, said: str) -> None:
    """By a program without the drop-in, which breaks one of them."""
    program = build("break_rseq", "break_rseq.c")
    finished = run_followed(plain.folder, build, [program, fault], {})
    assert finished.stdout == "ok\n", finished.describe()
    counted = LAST_LINE.search(finished.stderr)
    assert counted, finished.describe()
    if "stores" in said:
        skip_if_stores_are_unseen(counted[4])
    assert finished.status == int(said != ""), finished.describe()
    assert set(FIRST_LINE.findall(finished.stderr)) == ({said} if said else set())
