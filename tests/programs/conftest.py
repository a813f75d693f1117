# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fixtures shared by the tests of real programs and of process behaviour."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dropin import DEFAULT, LIBRARIES, PROGRAMS_IN_C, DropIn, Plain
from needs import require

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def library() -> Path:
    """The built drop-in library."""
    path = LIBRARIES / "libkmem-malloc.so"
    if not path.exists():
        pytest.fail(f"{path} is missing: run `make build` first", pytrace=False)
    return path


@pytest.fixture
def dropin(request: pytest.FixtureRequest, tmp_path: Path) -> DropIn:
    """Runs programs on the drop-in, under the setting that settings.under() chose."""
    if not os.environ.get("KMEM_TEST_PRELOAD"):
        request.getfixturevalue("library")
    return DropIn(getattr(request, "param", DEFAULT), tmp_path)


@pytest.fixture
def plain(tmp_path: Path) -> Plain:
    """Runs programs without the drop-in."""
    return Plain(tmp_path)


@functools.cache
def compile_program(
    out: Path, compiler: str, sources: Sequence[str], flags: Sequence[str], libraries: Sequence[str]
) -> Path:
    # Interposed and removed functions are called on purpose; freed pointers are used on purpose.
    chosen = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-use-after-free", *flags]
    standard = "-std=c++17" if compiler == "g++" else "-std=gnu17"
    inputs = [str(PROGRAMS_IN_C / source) for source in sources]
    done = subprocess.run(
        [compiler, standard, *chosen, "-o", str(out), *inputs, *libraries],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(sources)} does not compile:\n{done.stderr}", pytrace=False)
    return out


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles programs of the folder c/, each once.

    build(NAME, SOURCE..., flags=(...), libraries=(...)) returns the path of the program.
    """
    require("gcc")
    folder = tmp_path_factory.mktemp("built")

    def compile_once(
        name: str, *sources: str, flags: Sequence[str] = (), libraries: Sequence[str] = ()
    ) -> Path:
        compiler = "g++" if sources[0].endswith(".cpp") else "gcc"
        return compile_program(
            folder / name, compiler, tuple(sources), tuple(flags), tuple(libraries)
        )

    return compile_once
