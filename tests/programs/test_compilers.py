# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compilers under the drop-in: what they write must be what they write without it."""

import shutil
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
    Command,
    DropIn,
    Plain,
)
from generate import c_main, c_source
from needs import command, require
from settings import under

SETTINGS = (DEFAULT, LOCKED, LIMITED, UNREGISTERED, SLAB, SLOB)
everywhere = under(*SETTINGS, quick=(DEFAULT, LOCKED))

UNITS = ("first", "second", "third")
MAKEFILE = """\
CFLAGS = -O2
program: {objects} main.o
\tgcc -o $@ $^
main.o {objects}: %.o: %.c
\tgcc $(CFLAGS) -c -o $@ $<
"""


def write_c_project(folder: Path) -> None:
    folder.mkdir()
    for number, name in enumerate(UNITS):
        (folder / f"{name}.c").write_text(c_source(name, 60 + number * 20))
    (folder / "main.c").write_text(c_main(list(UNITS)))
    objects = " ".join(f"{name}.o" for name in UNITS)
    (folder / "Makefile").write_text(MAKEFILE.format(objects=objects))


@pytest.fixture(scope="module")
def c_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project built without the drop-in."""
    require("gcc")
    folder = tmp_path_factory.mktemp("make") / "project"
    write_c_project(folder)
    Plain(folder).run([command("make"), "-j2"])
    return folder


@everywhere
def test_gcc_and_make(dropin: DropIn, plain: Plain, c_project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    write_c_project(folder)
    # make, and for each of four sources gcc, cc1, as; and to link gcc, collect2, ld.
    finished = dropin.run([command("make"), "-j2"], minimum=5_000, processes=16, folder=folder)
    assert finished.stderr == ""
    for name in (*(f"{unit}.o" for unit in UNITS), "main.o", "program"):
        assert (folder / name).read_bytes() == (c_project / name).read_bytes(), name
    expected = plain.run([c_project / "program"]).stdout
    assert expected.count("\n") == 60
    # All it takes is stdio's buffer of a page, which engine slob serves as a large block.
    least = 0 if dropin.setting is SLOB else 1
    assert dropin.run([folder / "program"], minimum=least).stdout == expected


COMPILE_CPP = ("-std=c++17", "-O1", "-pthread")


@pytest.fixture(scope="module")
def cpp_answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The object file and the program's output, made without the drop-in."""
    require("gcc")
    plain = Plain(tmp_path_factory.mktemp("cpp"))
    shutil.copy(INPUTS / "tables.cpp", plain.folder)
    plain.run([command("g++"), *COMPILE_CPP, "-c", "-o", "tables.o", "tables.cpp"])
    plain.run([command("g++"), *COMPILE_CPP, "-o", "tables", "tables.o"])
    output = plain.run([plain.folder / "tables"]).stdout
    return (plain.folder / "tables.o").read_bytes(), output


@everywhere
def test_gpp(dropin: DropIn, cpp_answers: tuple[bytes, str], tmp_path: Path) -> None:
    shutil.copy(INPUTS / "tables.cpp", tmp_path)
    argv: Command = [command("g++"), *COMPILE_CPP, "-c", "-o", "tables.o", "tables.cpp"]
    # g++, cc1plus, as; g++, collect2, ld.
    dropin.run(argv, minimum=20_000, processes=3)
    dropin.run([command("g++"), *COMPILE_CPP, "-o", "tables", "tables.o"], minimum=500, processes=3)
    assert (tmp_path / "tables.o").read_bytes() == cpp_answers[0]
    finished = dropin.run([tmp_path / "tables"], minimum=50_000)
    assert finished.stdout == cpp_answers[1]
    assert finished.stdout.startswith("weight ") and finished.stdout.endswith("caught 3000\n")


JAVA_MEMORY = "-Xmx512m"


@pytest.fixture(scope="module")
def java_answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The class file and the program's output, made without the drop-in."""
    require("java")
    plain = Plain(tmp_path_factory.mktemp("java"))
    javac: Command = [
        command("javac"),
        f"-J{JAVA_MEMORY}",
        "-d",
        plain.folder,
        INPUTS / "Workload.java",
    ]
    plain.run(javac)
    output = plain.run([command("java"), JAVA_MEMORY, "-cp", plain.folder, "Workload"]).stdout
    return (plain.folder / "Workload.class").read_bytes(), output


@under(DEFAULT, LOCKED, UNREGISTERED, SLAB, SLOB, quick=(DEFAULT, LOCKED))
def test_java(dropin: DropIn, java_answers: tuple[bytes, str], tmp_path: Path) -> None:
    javac: Command = [
        command("javac"),
        f"-J{JAVA_MEMORY}",
        "-d",
        tmp_path,
        INPUTS / "Workload.java",
    ]
    dropin.run(javac, minimum=20_000)
    assert (tmp_path / "Workload.class").read_bytes() == java_answers[0]
    finished = dropin.run(
        [command("java"), JAVA_MEMORY, "-cp", tmp_path, "Workload"], minimum=5_000
    )
    assert (finished.stdout, finished.stderr) == (java_answers[1], "")
    assert "9=200}" in finished.stdout


CARGO = "/usr/bin/cargo"


@under(*SETTINGS, quick=(DEFAULT,))
def test_cargo(dropin: DropIn, tmp_path: Path) -> None:
    """Debian's cargo and rustc; rustup's bring a malloc of their own."""
    require("cargo")
    folder = tmp_path / "crate"
    shutil.copytree(INPUTS / "crate", folder)
    environment = {"CARGO_HOME": str(tmp_path / "cargo-home"), "RUSTC": "/usr/bin/rustc"}
    # cargo, rustc for the library and for the program, the linkers.
    dropin.run(
        [CARGO, "build", "--release", "--offline", "--locked"],
        minimum=100_000,
        processes=6,
        folder=folder,
        environment=environment,
        timeout=400,
    )
    finished = dropin.run([folder / "target" / "release" / "counter"], minimum=5_000)
    assert finished.stdout == "397 different words of 160000, sum 2664667000\n"
    tested = dropin.run(
        [CARGO, "test", "--offline", "--locked", "--lib"],
        minimum=100_000,
        processes=4,
        folder=folder,
        environment=environment,
        timeout=400,
    )
    assert "test result: ok. 2 passed; 0 failed" in tested.stdout
