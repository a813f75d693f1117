# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `make install` installs: programs are built in pkg-config's words, with nothing else."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TAKES_AND_GIVES = """
        struct kmem_cache *cache = kmem_cache_create("session", 24, 0, 0, 0);
        void *object = kmem_cache_alloc(cache, GFP_KERNEL);

        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
        return !object;
"""
IN_C = f"#include <kmem.h>\n#include <kmem-inline.h>\nint main(void) {{{TAKES_AND_GIVES}}}"
WITH_MALLOC = """
#include <kmem.h>
#include <stdlib.h>
int main(void) { void *block = calloc(1, 100); return !block || ksize(block) < 100; }
"""
IN_THE_KERNEL = f"#include <linux/slab.h>\nint main(void) {{{TAKES_AND_GIVES}}}"
IN_CPP = """
#include <kmem.hpp>
int main() { kmem::object_cache<long> longs("long"); auto one = longs.make(7); return *one != 7; }
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    destination = tmp_path_factory.mktemp("root")
    meson = [ROOT / ".venv" / "bin" / "meson", "install", "-C", ROOT / "build", "--no-rebuild"]
    subprocess.run([*meson, "--destdir", destination], check=True, capture_output=True)
    return destination


def words_of(installed: Path, package: str) -> list[str]:
    (file,) = installed.rglob("kmem.pc")
    environment = {
        **os.environ,
        "PKG_CONFIG_PATH": str(file.parent),
        "PKG_CONFIG_SYSROOT_DIR": str(installed),
    }
    command = ["pkg-config", "--cflags", "--libs", package]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.parametrize(
    ("package", "compiler", "source", "text"),
    [
        ("kmem", "gcc", "program.c", IN_C),
        ("kmem", "g++", "program.cpp", IN_CPP),
        ("kmem-malloc", "gcc", "program.c", WITH_MALLOC),
        ("kmem-kernel", "gcc", "program.c", IN_THE_KERNEL),
    ],
)
def test_programs(
    installed: Path, tmp_path: Path, package: str, compiler: str, source: str, text: str
) -> None:
    words = words_of(installed, package)
    folder = next(word[2:] for word in words if word.startswith("-L"))
    (tmp_path / source).write_text(text)
    # The archive has malloc, so there is one for both.
    for library in (
        words,
        [word.replace("-lkmem-malloc", "-lkmem") for word in ["-static", *words]],
    ):
        command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", source, "-o", "program"]
        subprocess.run([*command, *library], check=True, cwd=tmp_path)
        environment = {**os.environ, "LD_LIBRARY_PATH": folder}
        done = subprocess.run([tmp_path / "program"], env=environment, check=False)
        assert done.returncode == 0, library


def put_programs(folder: Path, programs: dict[str, str]) -> None:
    """In place of ours, by their words for a shell."""
    for program, text in programs.items():
        file = folder / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)


def test_relative_destination(tmp_path: Path) -> None:
    """DESTDIR counts from where make runs; Meson's own words are its arguments here."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    put_programs(tmp_path, {"scripts/build": "", ".venv/bin/meson": 'echo "$1" "$DESTDIR" >>calls'})
    subprocess.run(["make", "install", "DESTDIR=../some where"], check=True, cwd=tmp_path)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[-1] == f"install {tmp_path.parent}/some where"


def test_variables_of_python_are_for_other_programs(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts")
    told = 'echo "$PYTHONHOME$PYTHONPATH" >>calls'
    names = ("scripts/build", "scripts/venv", ".venv/bin/meson", ".venv/bin/python")
    put_programs(tmp_path, dict.fromkeys(names, told))
    environment = os.environ | {"PYTHONHOME": "/nonexistent", "PYTHONPATH": str(tmp_path)}
    for command in (["make", "install", "DESTDIR=there"], ["scripts/test", "quick"]):
        subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 6
    assert not any(calls)


def test_continuous_integration_fails_as_its_last_line_says(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    counts = "5 passed, 0 failed, 0 skipped"
    (tmp_path / "Makefile").write_text(f"test:\n\t@echo '{counts}'\n")
    unknown = "0 passed, 1 failed, 0 skipped"
    for folder, status, last in ((tmp_path, 0, counts), (tmp_path / "none", 1, unknown)):
        environment = os.environ | {"TMPDIR": str(folder)}
        command = [tmp_path / ".ci" / "run"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (status, last)


def run_venv(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["scripts/venv", "build"],
        cwd=root,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_search_path_of_cd(tmp_path: Path) -> None:
    """A shell's CDPATH that has a folder of the same name leads no script astray."""
    (tmp_path / "scripts").mkdir()
    done = run_venv(ROOT, CDPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_environment_of_another_python(tmp_path: Path) -> None:
    """After an upgrade of Python .venv is made anew; nothing is found in the old one."""
    for folder in ("scripts", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "venv", tmp_path / "scripts")
    (tmp_path / "scripts" / "debian-packages").symlink_to("/bin/true")
    # No such package is installed: the words before that are what the test is about.
    (tmp_path / "pyproject.toml").write_text("[build-system]\nrequires = 1\n")
    old, new = tmp_path / "python3.11", tmp_path / "python3.12"
    old.touch()
    new.touch()
    digest = hashlib.sha256((tmp_path / "pyproject.toml").read_bytes()).hexdigest()
    (tmp_path / ".venv" / ".home").write_text(f"{tmp_path} {old}")
    (tmp_path / ".venv" / ".installed-build").write_text(
        f"{tmp_path} {old} {digest}  pyproject.toml"
    )
    python = tmp_path / ".venv" / "bin" / "python"
    python.symlink_to(old)
    done = run_venv(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    python.unlink()
    python.symlink_to(new)
    assert run_venv(tmp_path).stderr.startswith("making .venv\n")


def test_layout_of_a_folder_with_a_comma() -> None:
    """The libraries are linked by a file of the tree; a comma ends each of the words behind -Wl."""
    ninja = (ROOT / "build" / "build.ninja").read_text()
    words = [word for word in ninja.split() if word.endswith("/layout.ld")]
    assert words
    assert not [word for word in words if word.startswith("-Wl,")]
