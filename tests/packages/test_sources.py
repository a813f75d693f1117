# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Projects that build the library from its sources: with CMake's FetchContent, and as a subproject
of Meson by a wrap file and the archive of `make dist`."""

import hashlib
import shutil
from pathlib import Path

import pytest
from builds import BIN, PROGRAM, ROOT, exported, need_packages, run

LIBRARIES = {"kmem": 0, "malloc": 1, "kmem-static": 1}  # and whether malloc is theirs
SHARED = ("libkmem.so.0", "libkmem-malloc.so.0")

CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(program C)
include(FetchContent)
FetchContent_Declare(libkmem SOURCE_DIR "{root}")
FetchContent_MakeAvailable(libkmem)
foreach(library kmem malloc kmem-static)
  add_executable(program-${{library}} program.c)
  target_link_libraries(program-${{library}} PRIVATE kmem::${{library}})
endforeach()
target_link_options(program-kmem-static PRIVATE -static)
"""
MESON = """\
project('program', 'c')
foreach name, package : {'kmem': 'kmem', 'malloc': 'kmem-malloc', 'kmem-static': 'kmem-static'}
  executable('program-' + name, 'program.c', dependencies: dependency(package))
endforeach
"""

# What a project may ask for all that it builds, the library too.
OF_PROJECTS_BY_CMAKE = (
    "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON",
    "-DCMAKE_UNITY_BUILD=ON",
    "-DCMAKE_C_STANDARD=99",
    "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror",
)
OF_PROJECTS_BY_MESON = (
    "-Db_lto=true",
    "-Dunity=on",
    "-Dc_std=c99",
    "-Dwarning_level=3",
    "-Dwerror=true",
)


def test_recipe_is_what_meson_does() -> None:
    """CMake and cargo build by this file."""
    run([BIN / "python", ROOT / "packaging" / "recipe.py", "--check"], ROOT)


def expect_programs(build: Path) -> None:
    for name, has_malloc in LIBRARIES.items():
        run([build / f"program-{name}", str(has_malloc)], build)


def expect_libraries_as_of_meson(folder: Path) -> None:
    """Names with versions; never unloaded; the layout of the linker's file."""
    for name in SHARED:
        (made,) = folder.rglob(name)
        assert exported(made) == exported(ROOT / "build" / "src" / name)
        headers = run(["readelf", "-dW", made], folder)
        assert f"[{name}]" in headers and "NODELETE" in headers
        assert "text.used" in run(["readelf", "-SW", made], folder)


@pytest.mark.parametrize("options", [(), OF_PROJECTS_BY_CMAKE])
def test_cmake(tmp_path: Path, options: tuple[str, ...]) -> None:
    need_packages("cmake", "ninja-build")
    # A space, which the linker's words must survive. A comma ends CMake's own -Wl,-rpath.
    folder = tmp_path / "a folder"
    tree = folder / "libkmem"
    tree.mkdir(parents=True)
    for name in ("CMakeLists.txt", "VERSION"):
        shutil.copy(ROOT / name, tree)
    for name in ("src", "include", "packaging"):
        (tree / name).symlink_to(ROOT / name)
    (folder / "CMakeLists.txt").write_text(CMAKE.format(root=tree))
    (folder / "program.c").write_text(PROGRAM)
    build = folder / "build"
    run(["cmake", "-S", folder, "-B", build, "-G", "Ninja", *options], folder)
    run(["cmake", "--build", build, "--parallel", "2"], folder)
    expect_programs(build)
    if not options:
        expect_libraries_as_of_meson(build)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the archive of the last commit and what belongs to it."""
    folder = tmp_path_factory.mktemp("dist")
    run([ROOT / "scripts" / "dist", folder], ROOT)
    return folder


def test_archive(archive: Path) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    (file,) = archive.glob("*.tar.xz")
    assert file.name == f"libkmem-{version}.tar.xz"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest in file.with_name(file.name + ".sha256sum").read_text()
    assert f"source_hash = {digest}\n" in (archive / "libkmem.wrap").read_text()
    names = run(["tar", "-tf", file], archive).splitlines()
    known = run(["git", "ls-tree", "-r", "--name-only", "HEAD"], ROOT).splitlines()
    files = {name.partition("/")[2] for name in names if not name.endswith("/")}
    assert files == set(known)


@pytest.mark.parametrize("options", [(), OF_PROJECTS_BY_MESON])
def test_meson_wrap(archive: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    subprojects = tmp_path / "subprojects"
    (subprojects / "packagefiles").mkdir(parents=True)
    shutil.copy(archive / "libkmem.wrap", subprojects)
    (file,) = archive.glob("*.tar.xz")
    shutil.copy(file, subprojects / "packagefiles")
    (tmp_path / "meson.build").write_text(MESON)
    (tmp_path / "program.c").write_text(PROGRAM)
    build = tmp_path / "build"
    run([BIN / "meson", "setup", *options, build], tmp_path)
    run([BIN / "ninja", "-C", build, "-j2"], tmp_path)
    expect_programs(build)
    if not options:
        expect_libraries_as_of_meson(build)
