# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every symbol of the malloc family, in C and in C++, by programs that check the results."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import DEFAULT, LIMITED, LOCKED, SLAB, SLOB, UNREGISTERED, DropIn, Plain
from settings import under

Build = Callable[..., Path]

SETTINGS = (DEFAULT, LOCKED, UNREGISTERED, LIMITED, SLAB, SLOB)
everywhere = under(*SETTINGS, quick=SETTINGS)


@everywhere
def test_c_symbols(dropin: DropIn, build: Build) -> None:
    program = build("symbols", "symbols.c")
    finished = dropin.run([program, "all"], minimum=3_000)
    assert (finished.stdout, finished.stderr) == ("ok\n", "")


@everywhere
def test_errors_are_those_of_libc(dropin: DropIn, plain: Plain, build: Build) -> None:
    """What fails, and errno then; and that nothing else touches errno."""
    program = build("errors", "errors.c", flags=("-fno-builtin", "-w"))
    expected = plain.run([program])
    finished = dropin.attempt([program])
    assert finished.status == 0, finished.describe()
    assert finished.stdout == expected.stdout


# Titles, words in front of numbers, and how wide these are: malloc_stats of libc.
STATS = """Arena 0:
system bytes     = {:>10}
in use bytes     = {:>10}
Total (incl. mmap):
system bytes     = {:>10}
in use bytes     = {:>10}
max mmap regions = {:>10}
max mmap bytes   = {:>10}
"""


def stats_of(text: str) -> str:
    """What malloc_stats prints in libc's form, made anew from the numbers in it."""
    numbers = re.findall(r"= +(\d+)\n", "".join(text.splitlines(keepends=True)[:8]))
    return STATS.format(*numbers)


@everywhere
def test_stats_have_the_form_of_libc(dropin: DropIn, plain: Plain, build: Build) -> None:
    program = build("errors", "errors.c", flags=("-fno-builtin", "-w"))
    for finished in (plain.run([program]), dropin.attempt([program])):
        assert finished.stderr.startswith(stats_of(finished.stderr)), finished.describe()


@everywhere
def test_cpp_operators(dropin: DropIn, build: Build) -> None:
    program = build("operators", "operators.cpp", flags=("-pthread",))
    finished = dropin.run([program], minimum=3_000)
    assert (finished.stdout, finished.stderr) == ("ok\n", "")


@pytest.mark.parametrize("replaced", ["SINGLE", "ARRAY"])
@everywhere
def test_replaced_operators(dropin: DropIn, build: Build, replaced: str) -> None:
    """Operators that a program does not replace call those that it does."""
    name = f"replaced_operators_{replaced}"
    program = build(name, "replaced_operators.cpp", flags=(f"-DREPLACE_{replaced}",))
    finished = dropin.run([program], minimum=100)
    assert (finished.stdout, finished.stderr) == ("ok\n", "")


@everywhere
def test_cpp_plugin_of_a_c_program(dropin: DropIn, build: Build) -> None:
    """A C++ runtime that only the plug-in sees is found when its operators have to throw."""
    plugin = build("libplugin.so", "plugin.cpp", flags=("-shared", "-fPIC"))
    program = build("plugin_host", "plugin_host.c")
    finished = dropin.run([program, plugin], minimum=20)
    assert (finished.stdout, finished.stderr) == ("ok\n", "")
