# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The packages on machines that have nothing else of the library: trees of releases of Debian, in
which programs are built and run."""

import shutil
import sys
from pathlib import Path

import pytest
from builds import BIN, ROOT, run
from trees import COMPILERS, PYTHON, Tree, copy_of

sys.path.insert(0, str(ROOT / "tests" / "install"))
from users import FILES, OF_CMAKE, OWNER

pytestmark = pytest.mark.timeout(1800)

VERSION = (ROOT / "VERSION").read_text().strip()
MOST_BYTES = 30_000_000
RELEASES = [
    "bookworm",
    pytest.param("trixie", marks=pytest.mark.full),
    pytest.param("sid", marks=pytest.mark.full),
]
APT = "DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends"


@pytest.fixture(scope="module")
def packages() -> dict[str, Path]:
    """Built, and looked at by lintian, which fails the build."""
    run([ROOT / "scripts" / "deb"], ROOT)
    return {file.name.partition("_")[0]: file for file in (ROOT / "build-deb").glob("*.deb")}


def names(package: Path) -> set[str]:
    listed = run(["dpkg-deb", "--contents", package], ROOT).splitlines()
    return {line.split()[5].removeprefix(".") for line in listed if line[0] != "d"}


def test_contents_of_debian_packages(packages: dict[str, Path]) -> None:
    assert packages.keys() - {f"{name}-dbgsym" for name in packages} == {
        "kmem",
        "libkmem-dev",
        "libkmem0",
    }
    files = {Path(name).name for name in names(packages["libkmem0"])}
    assert {"libkmem.so.0", "libkmem-malloc.so.0"} <= files
    files = {Path(name).name for name in names(packages["libkmem-dev"])}
    assert {"kmem.h", "kmem.pc", "libkmem.a", "libkmem.so", "slab.h", "kmem.3.gz"} <= files
    assert "kmem-config.cmake" in files
    assert names(packages["kmem"]) >= {
        "/usr/bin/kmem",
        "/usr/share/bash-completion/completions/kmem",
        "/usr/share/fish/vendor_completions.d/kmem.fish",
        "/usr/share/man/man1/kmem-run.1.gz",
        "/usr/share/man/man7/kmem-options.7.gz",
        "/usr/share/zsh/vendor-completions/_kmem",
    }


def build_and_run(tree: Tree) -> None:
    """By the compilers' words, pkg-config and CMake."""
    for name, text in FILES.items():
        (tree.path / "root" / name).write_text(text)
    for compiler, source, package in (
        ("gcc", "program.c", "kmem"),
        ("gcc -DOURS", "program.c", "kmem-malloc"),
        ("g++ -std=c++17", "program.cpp", "kmem"),
    ):
        words = f"$(pkg-config --cflags --libs {package})"
        tree.run(f"{compiler} {source} -o program {words} && ./program")
    tree.run("cmake -S . -B out && cmake --build out")
    for program in OF_CMAKE:
        tree.run(f"out/{program}")


def run_the_command(tree: Tree) -> None:
    (tree.path / "root" / "owner.py").write_text(OWNER)
    (library,) = (tree.path / "usr" / "lib").glob("*/libkmem-malloc.so.0")
    named = library.resolve().relative_to(tree.path)
    assert tree.run("kmem run -- python3 owner.py").strip() == f"/{named}"
    assert tree.run('kmem run -- python3 -c "print(6 * 7)"') == "42\n"
    assert "\nkmalloc-64 " in tree.run("kmem run --slabinfo - -- sort owner.py")
    assert tree.run("kmem --version") == f"kmem {VERSION}\n"
    for command in ("ps", "top", "lab order", "tune x.ktrace"):
        told = tree.run(f"kmem {command}", status=1)
        assert told.startswith("kmem: Python packages are missing; install them with: ")
        assert told.count("\n") == 1


@pytest.mark.parametrize("release", RELEASES)
def test_debian_packages(packages: dict[str, Path], release: str, tmp_path: Path) -> None:
    tree = copy_of(COMPILERS, release, tmp_path)
    before = tree.files()
    for name in ("kmem", "libkmem-dev", "libkmem0"):
        shutil.copy(packages[name], tree.path / "root" / f"{name}.deb")
    tree.run(f"{APT} install ./kmem.deb ./libkmem-dev.deb ./libkmem0.deb")
    build_and_run(tree)
    run_the_command(tree)
    tree.run(f"{APT} purge kmem libkmem-dev libkmem0")
    assert tree.files() == before
    shutil.rmtree(tree.path)


def test_wheel_on_python_and_pip_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """pip's time and the bytes on disk are printed; the time depends on the machine."""
    run([BIN / "python", ROOT / "scripts" / "wheel.py", tmp_path], ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    tree = copy_of(PYTHON, "bookworm", tmp_path)
    shutil.copy(wheel, tree.path / "root")
    (tree.path / "root" / "owner.py").write_text(OWNER)
    measured = tree.run("""
        set -e
        bytes() { du -sxB1 --apparent-size / | cut -f1; }
        before=$(bytes)
        start=$(date +%s%N)
        export PIP_ROOT_USER_ACTION=ignore PATH=/usr/local/bin:$PATH
        python3 -m pip install --quiet --no-index --break-system-packages *.whl
        kmem run -- python3 owner.py >owner
        echo $((($(date +%s%N) - start) / 1000000)) $(($(bytes) - before))
        """)
    milliseconds, size_bytes = map(int, measured.split())
    with capsys.disabled():
        print(
            f"\n{wheel.name} on Debian 12 with python3 and pip: installed and run in "
            f"{milliseconds / 1000:.1f} s, {size_bytes / 1e6:.1f} MB"
        )
    owner = (tree.path / "root" / "owner").read_text().strip()
    assert Path(owner).name == "libkmem-malloc.so"
    assert 0 < size_bytes < MOST_BYTES
    shutil.rmtree(tree.path)
