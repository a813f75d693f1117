# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What is installed: by `make install`, whose programs are built in pkg-config's words with nothing
else, and what the commands and targets install for themselves."""

import ast
import hashlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement

from kmem.commands.app import app
from kmem.common.extras import extra_of, unfit

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


def test_variables_of_python_are_for_other_programs(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts")
    told = 'echo "$PYTHONHOME$PYTHONPATH" >>calls'
    # Three of make, and four of the script: the last one's program runs twice.
    names = ("scripts/build", "scripts/venv", ".venv/bin/python")
    put_programs(tmp_path, dict.fromkeys(names, told))
    environment = os.environ | {"PYTHONHOME": "/nonexistent", "PYTHONPATH": str(tmp_path)}
    for command in (["make", "install", "DESTDIR=there"], ["scripts/test", "quick"]):
        subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 7
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


def copy_of_scripts(folder: Path, pyproject: str) -> None:
    for name in ("scripts", ".venv/bin", "python"):
        (folder / name).mkdir(parents=True)
    for name in ("venv", "progress"):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts")
    (folder / "scripts" / "debian-packages").symlink_to("/bin/true")
    (folder / "pyproject.toml").write_text(pyproject)


def test_environment_of_another_python(tmp_path: Path) -> None:
    """After an upgrade of Python .venv is made anew; nothing is found in the old one."""
    # No extra is in it: the words before that are what the test is about.
    copy_of_scripts(tmp_path, "[project]\n")
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
    assert run_venv(tmp_path).stderr.startswith("kmem: making .venv\n")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """That every user reaches; the parents of tmp_path are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_tree_of_another_user(open_folder: Path) -> None:
    """Neither an error of Python's venv nor pip's words: a line says who can install."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a tree that another user may not write to")
    copy_of_scripts(open_folder, "[project]\n")
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for place in (open_folder / ".venv", open_folder):
        done = subprocess.run(
            [*as_nobody, "scripts/venv", "build"],
            cwd=open_folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (
            1,
            f"kmem: {place}: not writable, so the Python packages (build) cannot be installed; "
            "expected a checkout of your own, or its owner to run: "
            f"{open_folder}/scripts/venv build\n",
        )
        shutil.rmtree(open_folder / ".venv", ignore_errors=True)


EXTRAS = """
[project.optional-dependencies]
small = ["a==1"]
build = ["kmem[small]", "b==2"]
[tool.kmem.extras]
build = { packages = 7, megabytes = 40 }
"""


def test_what_is_installed_is_said_before(tmp_path: Path) -> None:
    """An extra has come with another that contains it. Pip's own words are its arguments."""
    copy_of_scripts(tmp_path, EXTRAS)
    put_programs(
        tmp_path,
        {".venv/bin/python": f'[ "$1" = - ] && exec {sys.executable} "$@"\necho "$*" >>calls'},
    )
    (tmp_path / ".venv" / ".home").write_text(f"{tmp_path} {tmp_path}/.venv/bin/python")
    done = run_venv(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "kmem: installing Python packages (build): at most 7 packages, 40 MB in .venv, about 20 s\n"
    )
    words = (tmp_path / "calls").read_text().split()
    assert words[:3] == ["-m", "pip", "install"] and sorted(words[-2:]) == ["a==1", "b==2"]
    for extra in ("build", "small"):
        assert (tmp_path / ".venv" / f".installed-{extra}").exists()


def extras() -> dict[str, list[str]]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return dict(document["project"]["optional-dependencies"])


def packages_of(extra: str) -> dict[str, Distribution]:
    """All that is installed with it, by its name."""
    found: dict[str, Distribution] = {}
    waiting = list(map(Requirement, extras()[extra]))
    seen = set()
    while waiting:
        one = waiting.pop()
        if one.name == "kmem":
            waiting += [Requirement(text) for name in one.extras for text in extras()[name]]
        elif (key := (one.name, frozenset(one.extras))) not in seen:
            seen.add(key)
            package = distribution(one.name)
            found[package.name.lower()] = package
            for needed in map(Requirement, package.requires or []):
                chosen = [{"extra": extra} for extra in one.extras or [""]]
                if needed.marker is None or any(map(needed.marker.evaluate, chosen)):
                    waiting.append(needed)
    return found


def test_packages_that_do_not_do_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation asks for the versions of the tree's tests, or newer ones."""

    def version(name: str) -> str:
        return "0.7.0" if name == "typer" else "9999.1rc2"

    pyproject = ROOT / "pyproject.toml"
    expected = dict(one.split("==") for one in extras()["command"])["typer"]
    monkeypatch.setattr(metadata, "version", version)
    told = f"Python packages are too old (typer 0.7.0, expected {expected} or newer)"
    assert unfit("command", pyproject) == told
    monkeypatch.setattr(metadata, "version", lambda name: "9999.1rc2")
    assert unfit("tune", pyproject) == ""
    monkeypatch.undo()
    assert unfit("command", pyproject) == ""  # of the tree's .venv


@pytest.mark.parametrize("extra", extras())
def test_size_of_an_extra(extra: str) -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    said = document["tool"]["kmem"]["extras"][extra]
    packages = packages_of(extra)
    files = [file.locate() for package in packages.values() for file in package.files or []]
    megabytes = sum(Path(file).stat().st_size for file in files if Path(file).exists()) / 1e6
    print(f"{len(packages)} packages, {megabytes:.1f} MB")
    assert len(packages) <= said["packages"] <= len(packages) + 3
    assert 0.8 * said["megabytes"] <= megabytes <= 1.1 * said["megabytes"]


def functions_of(command: object) -> Iterator[Callable[..., object]]:
    """The functions of a command, or of all commands in a group."""
    for part in getattr(command, "commands", {}).values():
        yield from functions_of(part)
    if callback := getattr(command, "callback", None):
        yield inspect.unwrap(callback)


def modules_of_commands() -> dict[str, set[str]]:
    """For each command, by its first word, the modules of ours that its functions import."""
    found: dict[str, set[str]] = {}
    for word, command in typer.main.get_command(app).commands.items():
        for function in functions_of(command):
            tree = ast.parse(inspect.getsource(function))
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    found.setdefault(word, set()).add(node.module)
    return found


HIDDEN = """
import sys
import tempfile
from importlib.machinery import PathFinder
class Rest(PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        if name.partition(".")[0] not in {hidden}:
            return super().find_spec(name, *rest)
sys.meta_path = [Rest if finder is PathFinder else finder for finder in sys.meta_path]
import {modules}
"""


def has_packages_for(extras_there: Iterable[str], modules: Iterable[str]) -> None:
    """Whether the modules can be imported with the packages of these extras alone."""
    there = {name for extra in extras_there for name in packages_of(extra)}
    names = {
        kept: {
            top
            for package in packages_of("test").values()
            if (package.name.lower() in there) == kept
            for top in {Path(file).parts[0].removesuffix(".py") for file in package.files or []}
            if top.isidentifier()
        }
        for kept in (False, True)
    }
    code = HIDDEN.format(
        # Some packages share a name at the top, as `google`.
        hidden=sorted(names[False] - names[True]),
        modules=", ".join(["kmem.commands.start", *sorted(modules)]),
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{extras_there}: {done.stderr}"


@pytest.mark.parametrize(("word", "modules"), modules_of_commands().items())
def test_a_command_has_the_packages_that_it_needs(
    word: str, modules: set[str], tmp_path: Path
) -> None:
    """Those of its extra, and what the commands import is in them."""
    put_programs(
        tmp_path, {"scripts/venv": f'echo "$1" >{tmp_path}/extra', ".venv/bin/python": "exit 0"}
    )
    shutil.copy(ROOT / "kmem", tmp_path)
    for words in ([word, "--help"], [word]):
        subprocess.run([tmp_path / "kmem", *words], check=True)
        extra = (tmp_path / "extra").read_text().strip()
        assert extra == ("command" if words[1:] else extra_of([word])) == extra_of(words)
    has_packages_for([extra], modules)


def askers() -> dict[str, tuple[list[str], list[str]]]:
    """Functions that ask for further packages: the extras, and modules of ours imported there."""
    found = {}
    for file in sorted((ROOT / "python" / "kmem").rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            nodes = list(ast.walk(function))
            asked = [
                word.value
                for node in nodes
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "need_extra"
                for word in node.args
                if isinstance(word, ast.Constant) and isinstance(word.value, str)
            ]
            if asked:
                found[f"{file.stem}.{function.name}"] = (
                    asked,
                    [one.module for one in nodes if isinstance(one, ast.ImportFrom) and one.module],
                )
    return found


@pytest.mark.parametrize(("asked", "modules"), askers().values(), ids=askers())
def test_further_packages_are_asked_for(asked: list[str], modules: list[str]) -> None:
    """`kmem explain` asked for those that name functions, and imported Polars as well."""
    has_packages_for(["command", *asked], modules)


def test_pip_is_told_that_there_is_no_package(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--target", tmp_path / "there"]
    for words in ([], ["--editable"]):
        done = subprocess.run([*pip, *words, tmp_path], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert (
            "kmem: pip does not build libkmem; make wheel does, or run ./kmem in this tree"
            in done.stderr
        )
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "there").exists()


def test_progress_without_a_terminal(tmp_path: Path) -> None:
    """Status, output and descriptors are the command's, and nobody waits for the one that tells."""
    script = ROOT / "scripts" / "progress"
    # Many, as a command that ends at once may do so before the first nap has begun.
    for _ in range(100):
        done = subprocess.run(
            [script, "x", "sh", "-c", "echo out; exit 3"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "")
    for status, shown in ((0, ""), (3, "out\n")):
        done = subprocess.run(
            [script, "-q", "x", "sh", "-c", f"echo out; exit {status}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (status, "", shown)
    # A nap that ends at once stands for one of 20 seconds.
    put_programs(tmp_path, {"sleep": "exit 0"})
    done = subprocess.run(
        [script, "building", "/bin/sleep", "1"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert re.match(r"kmem: building: \d+ s so far\n", done.stderr)


def test_layout_of_a_folder_with_a_comma() -> None:
    """The libraries are linked by a file of the tree; a comma ends each of the words behind -Wl."""
    ninja = (ROOT / "build" / "build.ninja").read_text()
    words = [word for word in ninja.split() if word.endswith("/layout.ld")]
    assert words
    assert not [word for word in words if word.startswith("-Wl,")]
