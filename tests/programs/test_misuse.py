# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pointers that are not ours: one line that names the pointer and the call, then the end of the
program, or, by option, none of its business."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import DEFAULT, LOCKED, SLAB, SLOB, DropIn, Finished, Setting
from settings import under

Build = Callable[..., Path]

MISUSES = [
    "on-stack",
    "global",
    "own-mapping",
    "unmapped",
    "interior-small",
    "interior-large",
    "interior-large-page",
    "interior-huge",
    "double-small",
    "double-later",
    "double-large",
    "double-huge",
    "kfree-on-stack",
    "kfree-interior-large",
    "kfree-double-small",
    "kfree-double-large",
    "realloc-on-stack",
    "realloc-interior-large",
    "free-at-1",
    "free-at-16",
    "realloc-at-16",
    "realloc-at-16-to-none",
    "realloc-array-at-8",
    "cfree-at-16",
    "free_sized-at-16",
    "free_aligned_sized-at-16",
    "delete-at-16",
    "delete-array-at-16",
    "delete-sized-at-16",
    "delete-array-sized-at-16",
]
# Found at the call with check=sheaf, else later or, if the block has a new owner by then, never.
MOVED = ["double-moved", "double-elsewhere"]
# Found only when the caches give the object back, when nobody knows who freed it.
FOUND_LATER = {"interior-small", "double-later"}

everywhere = under(DEFAULT, LOCKED, SLAB, SLOB, quick=(DEFAULT, LOCKED))
each_misuse = pytest.mark.parametrize("misuse", MISUSES)


def call_of(misuse: str) -> str:
    """The call that the program misuses, as the line is to name it."""
    first = misuse.split("-")[0]
    if first == "delete":
        return "operator delete"
    named = ("kfree", "realloc", "cfree", "free_sized", "free_aligned_sized")
    return first if first in named else "free"


def names_call(setting: Setting, misuse: str) -> bool:
    """Engine slob, in front of which nothing rests, finds all at the call, as check=sheaf does."""
    at_call = setting.name == "slob" or "check=sheaf" in setting.options
    return misuse not in FOUND_LATER or at_call


def expect_line_and_callers(finished: Finished, misuse: str, setting: Setting = DEFAULT) -> None:
    """Standard error: a line with the pointer that was printed first, what lies there, callers."""
    pointer = finished.stdout.splitlines()[0]
    assert finished.messages(), finished.describe()
    assert finished.stderr.splitlines() == finished.messages(), finished.describe()
    line, *stack = finished.messages()
    if stack and re.match(r"kmem:   (at )?that address |kmem:   there is no object at ", stack[0]):
        stack.pop(0)
    assert all(re.match(r"kmem:   (here by thread|  )", one) for one in stack), finished.describe()
    assert re.search(rf"{pointer}\b", line), line
    if names_call(setting, misuse):
        assert re.search(rf"\b{call_of(misuse)}\({pointer}\)", line), line


def run(dropin: DropIn, build: Build, misuse: str) -> Finished:
    return dropin.attempt([build("misuse", "misuse.c"), misuse])


@everywhere
@each_misuse
def test_reported_and_ended(dropin: DropIn, build: Build, misuse: str) -> None:
    finished = run(dropin, build, misuse)
    assert finished.status == -signal.SIGABRT, finished.describe()
    assert "survived" not in finished.stdout
    expect_line_and_callers(finished, misuse, dropin.setting)


@everywhere
@each_misuse
def test_reported_and_ignored(dropin: DropIn, build: Build, misuse: str) -> None:
    ignoring = dropin.under(dropin.setting.with_options("bad_free=ignore"))
    finished = run(ignoring, build, misuse)
    assert finished.status == 0, finished.describe()
    assert finished.stdout.endswith("survived\n")
    expect_line_and_callers(finished, misuse, dropin.setting)


@everywhere
@pytest.mark.parametrize("misuse", MISUSES + MOVED)
def test_checked_at_the_call(dropin: DropIn, build: Build, misuse: str) -> None:
    checked = dropin.under(dropin.setting.with_options("check=sheaf"))
    finished = run(checked, build, misuse)
    assert finished.status == -signal.SIGABRT, finished.describe()
    expect_line_and_callers(finished, misuse, checked.setting)


@everywhere
def test_block_of_libc_is_handed_to_libc(dropin: DropIn, build: Build) -> None:
    to_libc = dropin.under(dropin.setting.with_options("bad_free=libc"))
    finished = run(to_libc, build, "libc-block")
    assert finished.status == 0, finished.describe()
    assert finished.stdout.endswith("survived\n")


@pytest.mark.parametrize("misuse", [name for name in MISUSES if "-at-" in name])
def test_libc_is_not_asked_about_small_addresses(dropin: DropIn, build: Build, misuse: str) -> None:
    to_libc = dropin.under(dropin.setting.with_options("bad_free=libc"))
    finished = run(to_libc, build, misuse)
    assert finished.status == -signal.SIGABRT, finished.describe()
    expect_line_and_callers(finished, misuse)


@everywhere
@pytest.mark.parametrize("use", ["none", "kfree-to-16"])
def test_right_use_is_silent(dropin: DropIn, build: Build, use: str) -> None:
    finished = run(dropin, build, use)
    assert (finished.status, finished.stdout, finished.stderr) == (0, "survived\n", "")
