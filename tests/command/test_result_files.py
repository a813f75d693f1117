# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Files that --json names, of commands that measure: a full disk, and the options of the caller."""

import json
from pathlib import Path

import pytest
from kmem_command import kmem

from kmem.traces import file as tr

TINY = Path(tr.__file__).parent / "boot-6.1tiny-slob-64M.slt.zst"
GLIBC = ("--peers", "glibc")
EXPLAINED = Path(__file__).parents[1] / "explain"
START = ("bench", "start", "--runs", "3", *GLIBC)
IDLE = ("bench", "idle", "--rounds", "1", "--seconds", "0.1", *GLIBC)
TAILS = ("bench", "tails", "--rounds", "1", "--scale", "0.01", "--only", "busy", *GLIBC)
SUITE = ("bench", "suite", "--rounds", "1", "--scale", "0.002", "--only", "mixed", *GLIBC)
MISUSE = ("bench", "misuse", "--levels", "default", "--runs", "0", "--only", "reuse/next/small")


@pytest.mark.parametrize(
    ("words", "figures"),
    [
        (START, "over glibc's"),
        (IDLE, "pages with a live block"),
        (TAILS, "busy: malloc, ns"),
        (SUITE, "CPU time in seconds"),
        ((*MISUSE, *GLIBC), "Without harm"),
        (("replay", TINY), "pages at the end"),
        (("replay", "--real-time", TINY), "medians of"),
        (("tune", TINY, "--trials", "2"), "defaults"),
        (("explain", EXPLAINED / "reports" / "conntrack-leak.txt"), "caches by memory"),
        (("explain", EXPLAINED / "profiles" / "go.pb.gz"), "by call site"),
        (("lab", "order", "--size", "192", "--cpus", "4"), "21 1 0"),
    ],
    ids=[
        *("start", "idle", "tails", "suite", "misuse", "replay", "real time", "tune"),
        *("tables", "profile", "order"),
    ],
)
def test_full_disk_does_not_take_the_figures(
    tmp_path: Path, words: tuple[str | Path, ...], figures: str
) -> None:
    """The file comes first; its error ended the command before anything was printed."""
    study = ("--study", tmp_path / "study") if words[0] == "tune" else ()
    done = kmem(*words, *study, "--json", "/dev/full", timeout=500)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "kmem: --json /dev/full: No space left on device",
    )
    assert figures in done.stdout


@pytest.mark.parametrize("words", [START, IDLE, TAILS], ids=["start", "idle", "tails"])
def test_options_of_the_caller_are_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    file, options = tmp_path / "file", {"KMEM_OPTIONS": "registry=off"}
    done = kmem(*words, "--json", file, environment=options)
    assert done.returncode == 0, done.stderr
    assert "KMEM_OPTIONS=registry=off held for libkmem" in done.stdout
    assert json.loads(file.read_text())["options"] == "registry=off"
