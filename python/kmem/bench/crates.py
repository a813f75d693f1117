# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Newest releases of other allocators, built as libraries to preload.

Distributions carry old releases. The crates that bring an allocator to Rust programs bundle the
sources of newer releases: `cargo vendor` fetches the newest crate, and this module builds its C or
C++ sources with the options of a release. Everything stays in a cache folder outside the tree; the
next run after that folder was deleted fetches anew.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kmem.bench.allocators import Allocator, preloadable
from kmem.common.errors import KmemError
from kmem.common.tree import BUILD

WHERE = BUILD / "bench" / "where"
TIMEOUT = 1800.0  # seconds to fetch and build an allocator
CHECK_TIMEOUT = 60.0  # seconds

Command = list[str]

MANIFEST = """\
[package]
name = "peer"
version = "0.0.0"
edition = "2021"

[dependencies]
{crate} = "*"
"""


@dataclass(frozen=True)
class Crate:
    """An allocator that is built from the sources in a crate."""

    name: str
    crate: str
    commands: Callable[[Path, Path], Sequence[Command]]  # build it, from sources, for a folder
    library: str  # file in that folder
    tools: tuple[str, ...]
    bundled: Callable[[Path], str] | None = None  # the allocator's release, if not the crate's
    hardened: bool = False


def build_mimalloc(sources: Path, folder: Path, more: str = "") -> Sequence[Command]:
    base = sources / "c_src" / "mimalloc" / "v3"
    options = "-shared -fPIC -O3 -DNDEBUG -fvisibility=hidden -ftls-model=initial-exec"
    options += " -fno-builtin-malloc -DMI_BUILD_RELEASE -DMI_MALLOC_OVERRIDE"
    options += f" -DMI_SHARED_LIB -DMI_SHARED_LIB_EXPORT {more}"
    files = [f"-I{base / 'include'}", str(base / "src" / "static.c")]
    return [["gcc", *options.split(), *files, "-pthread", "-o", str(folder / "mimalloc.so")]]


def build_mimalloc_secure(sources: Path, folder: Path) -> Sequence[Command]:
    """With all defences that mimalloc has for release builds."""
    return build_mimalloc(sources, folder, "-DMI_SECURE=4")


def mimalloc_version(sources: Path) -> str:
    header = sources / "c_src" / "mimalloc" / "v3" / "include" / "mimalloc.h"
    found = re.search(r"define MI_MALLOC_VERSION\s+(\d+)(\d\d)(\d\d)\b", header.read_text())
    if not found:
        raise KmemError(f"no version in {header}")
    return ".".join(str(int(part)) for part in found.groups())


def build_rpmalloc(sources: Path, folder: Path) -> Sequence[Command]:
    options = "-shared -fPIC -O3 -DNDEBUG -D_GNU_SOURCE -w -ftls-model=initial-exec"
    options += " -DENABLE_PRELOAD=1 -DENABLE_OVERRIDE=1"
    file = sources / "rpmalloc" / "rpmalloc" / "rpmalloc.c"
    libraries = ["-pthread", "-ldl", "-o", str(folder / "rpmalloc.so")]
    return [["gcc", *options.split(), str(file), *libraries]]


def build_snmalloc(sources: Path, folder: Path, target: str = "snmallocshim") -> Sequence[Command]:
    configure = ["cmake", "-S", str(sources / "upstream"), "-B", str(folder)]
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF"]
    return [configure, ["cmake", "--build", str(folder), "--target", target]]


def build_snmalloc_checks(sources: Path, folder: Path) -> Sequence[Command]:
    return build_snmalloc(sources, folder, "snmallocshim-checks")


def build_jemalloc(sources: Path, folder: Path) -> Sequence[Command]:
    tree = folder / "jemalloc"
    version = jemalloc_version(sources)
    options = [f"--with-version={version}-0-g0", "--disable-static", "--disable-doc"]
    return [
        ["cp", "-r", str(sources / "jemalloc"), str(tree)],
        ["cp", str(sources / "configure" / "configure"), str(tree)],
        ["env", "-C", str(tree), "sh", "./configure", *options],
        ["make", "-C", str(tree), "build_lib_shared"],
    ]


def jemalloc_version(sources: Path) -> str:
    """jemalloc's version, from a crate's version "OWN+JEMALLOC-COMMITS-HASH"."""
    manifest = tomllib.loads((sources / "Cargo.toml").read_text())
    version: str = manifest["package"]["version"]
    return version.partition("+")[2].partition("-")[0]


# The crate's own build leaves out malloc and its relatives by a macro. This one does not define it.
TCMALLOC_BUILD = """\
cmake_minimum_required(VERSION 3.13)
project(tcmalloc CXX ASM)
set(CMAKE_CXX_STANDARD 17)
find_package(Threads REQUIRED)
add_library(tcmalloc SHARED {files})
target_include_directories(tcmalloc PRIVATE {folders})
target_compile_definitions(tcmalloc PRIVATE NDEBUG TCMALLOC_INTERNAL_8K_PAGES)
target_compile_options(tcmalloc PRIVATE -O2 -w -fno-omit-frame-pointer -ftls-model=initial-exec)
target_link_libraries(tcmalloc PRIVATE Threads::Threads)
"""


def build_tcmalloc(sources: Path, folder: Path) -> Sequence[Command]:
    """Google's TCMalloc and the parts of Abseil that the crate's build names."""
    names = re.findall(r'"(c_src/[^"]+\.(?:cc|S))"', (sources / "build.rs").read_text())
    files = [str(sources / name) for name in names if "bridge" not in name]
    files.append(str(sources / "c_src" / "tcmalloc" / "tcmalloc" / "tcmalloc.cc"))
    folders = " ".join(str(sources / "c_src" / name) for name in ("abseil-cpp", "tcmalloc"))
    text = TCMALLOC_BUILD.format(files=" ".join(files), folders=folders)
    (folder / "CMakeLists.txt").write_text(text)
    return [
        ["cmake", "-S", str(folder), "-B", str(folder)],
        ["cmake", "--build", str(folder), "--parallel", str(os.cpu_count() or 1)],
    ]


def build_hardened_malloc(sources: Path, folder: Path) -> Sequence[Command]:
    """GrapheneOS's hardened_malloc with its default settings."""
    base = sources / "vendor" / "hardened-malloc"
    lines = (sources / "config-default.conf").read_text().splitlines()
    settings = [f"-D{line}" for line in lines if "=" in line and not line.startswith("#")]
    options = "-std=c2x -O3 -D_GNU_SOURCE -w -shared -fPIC -fvisibility=hidden"
    # gcc 12 knows the word alignas from this header only.
    options += " -include stdalign.h"
    places = [f"-I{base / name}" for name in (".", "include", "third_party")]
    files = [str(file) for file in sorted(base.glob("*.c"))]
    library = ["-pthread", "-o", str(folder / "hardened_malloc.so")]
    return [["gcc", *options.split(), *settings, *places, *files, *library]]


CRATES = (
    Crate(
        "mimalloc-new",
        "libmimalloc-sys",
        build_mimalloc,
        "mimalloc.so",
        ("gcc",),
        mimalloc_version,
    ),
    Crate(
        "snmalloc",
        "snmalloc-sys",
        build_snmalloc,
        "libsnmallocshim.so",
        ("cmake", "g++", "make"),
    ),
    Crate("rpmalloc", "rpmalloc-sys", build_rpmalloc, "rpmalloc.so", ("gcc",)),
    Crate(
        "jemalloc-new",
        "tikv-jemalloc-sys",
        build_jemalloc,
        "jemalloc/lib/libjemalloc.so.2",
        ("gcc", "g++", "make"),
        jemalloc_version,
    ),
    Crate(
        "tcmalloc-new",
        "libtcmalloc-sys",
        build_tcmalloc,
        "libtcmalloc.so",
        ("cmake", "g++", "make"),
    ),
    Crate(
        "hardened_malloc",
        "hardened-malloc-sys",
        build_hardened_malloc,
        "hardened_malloc.so",
        ("gcc",),
        hardened=True,
    ),
)

# Builds with defences that their authors leave out of the release, for `kmem bench misuse`.
DEFENDED = (
    Crate(
        "mimalloc-secure",
        "libmimalloc-sys",
        build_mimalloc_secure,
        "mimalloc.so",
        ("gcc",),
        mimalloc_version,
        hardened=True,
    ),
    Crate(
        "snmalloc-checks",
        "snmalloc-sys",
        build_snmalloc_checks,
        "libsnmallocshim-checks.so",
        ("cmake", "g++", "make"),
        hardened=True,
    ),
)


def cache_folder() -> Path:
    """Where peers are kept: kmem/peers in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "kmem" / "peers"


def run(command: Sequence[str | Path], folder: Path, what: str) -> None:
    """Run a step; if it fails, the error has the last line that it wrote."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except OSError as error:
        raise KmemError(f"{what}: {command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise KmemError(f"{what}: no end in {TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or [f"status {done.returncode}"]
        raise KmemError(f"{what}: {lines[-1][-200:]}")


def check_library(library: Path) -> None:
    """Check that every function of malloc's family comes from LIBRARY when it is preloaded."""
    try:
        done = subprocess.run(
            [WHERE],
            env={**os.environ, "LD_PRELOAD": preloadable(library)},
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KmemError(f"{library} does not work: no end in {CHECK_TIMEOUT:g} s") from None
    if done.returncode != 0:
        raise KmemError(f"{library} does not work: status {done.returncode} {done.stderr.strip()}")
    for line in done.stdout.splitlines():
        call, _, file = line.partition(" ")
        if Path(file).resolve() != library.resolve():
            raise KmemError(f"{library} has no {call}; it comes from {file}")


def fetch(crate: Crate, folder: Path) -> tuple[Path, str]:
    """Fetch the newest version on the registry; the folder of its sources, and the version."""
    (folder / "Cargo.toml").write_text(MANIFEST.format(crate=crate.crate))
    (folder / "src").mkdir()
    (folder / "src" / "lib.rs").touch()
    run(["cargo", "vendor", "--quiet", "vendor"], folder, f"fetching {crate.crate}")
    sources = folder / "vendor" / crate.crate
    manifest = tomllib.loads((sources / "Cargo.toml").read_text())
    version: str = manifest["package"]["version"]
    if crate.bundled is None:
        return sources, f"{crate.crate} {version}"
    return sources, f"{crate.bundled(sources)}, {crate.crate} {version.partition('+')[0]}"


def make(crate: Crate, folder: Path) -> str:
    """Fetch, build and check; the version.

    peer.json in the folder is written last, as the sign that all steps succeeded.
    """
    for tool in ("cargo", *crate.tools):
        if shutil.which(tool) is None:
            raise KmemError(f"{tool} is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    built = folder / "build"
    built.mkdir(parents=True)
    sources, version = fetch(crate, folder)
    for command in crate.commands(sources, built):
        run(command, folder, f"building {crate.crate}")
    check_library(built / crate.library)
    (folder / "peer.json").write_text(json.dumps({"version": version}) + "\n")
    return version


def version_of(crate: Crate, folder: Path) -> str | None:
    """The version of a finished build.

    None if a file is missing: the cache may have been cleaned, or the disk was full.
    """
    if not (folder / "build" / crate.library).exists():
        return None
    try:
        version: str = json.loads((folder / "peer.json").read_text())["version"]
    except (FileNotFoundError, ValueError):
        return None
    return version


def provide(crate: Crate, report: Callable[[str], None]) -> tuple[Allocator, str]:
    """The library and its version, from the cache or built now. Raises KmemError."""
    cache = cache_folder()
    folder = cache / crate.name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # A second run waits here for the first, and then finds the work done.
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            version = version_of(crate, folder)
            if version is None:
                report(f"fetching and building {crate.crate}")
                version = make(crate, folder)
            else:
                check_library(folder / "build" / crate.library)
    except OSError as error:
        raise KmemError(f"{error.filename or folder}: {error.strerror}") from None
    library = folder / "build" / crate.library
    return Allocator(crate.name, library, hardened=crate.hardened), version
