# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Every symbol of the malloc family, in C and in C++, by programs that check the results."""

from collections.abc import Callable
from pathlib import Path

import pytest
from dropin import DEFAULT, LIMITED, LOCKED, SLAB, SLOB, UNREGISTERED, DropIn
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
