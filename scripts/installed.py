# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The files of an installed kmem command, for `make install`, `make wheel` and `make deb`.

As a program it prints the names of the programs in build/ that commands start, for Ninja.
"""

import shutil
import subprocess
from pathlib import Path

from kmem.common.errors import KmemError

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
# Programs that are linked with the library ask for it by this name.
SONAME = f"libkmem.so.{VERSION.split('.')[0]}"

# Programs that commands start, in build/, where they look for them (kmem.common.tree). Those of
# `kmem bench` are not here: it compares with allocators that it compiles, in the tree. Some are
# only built where libzstd or libtracefs is.
PROGRAMS = (
    "bench/bulk",
    "bench/costs",
    "bench/lists",
    "tools/import-trace",
    "tools/loads-4k",
    "tools/loads-64k",
    "tools/options",
    "tools/order",
    "tools/record-program",
    "tools/replay",
    "tools/replay-16k",
    "tools/replay-64k",
    "tools/replay-real-time",
    "tools/trace/libkmem-trace.so",
)
KERNEL_PROGRAM = "tools/record-kernel"  # needs Debian's libtracefs and root


def put(source: Path, target: Path) -> None:
    """A copy with a mode that does not depend on the umask."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def put_stripped(source: Path, target: Path) -> None:
    """Without debugging information, which is most of a program's size."""
    put(source, target)
    done = subprocess.run(
        ["strip", "--strip-unneeded", target], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise KmemError(f"strip: {done.stderr.strip()}")


def put_package(target: Path) -> None:
    """The Python package with its traces and tables."""
    for file in sorted((ROOT / "python" / "kmem").rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            put(file, target / file.relative_to(ROOT / "python" / "kmem"))


def put_tree(target: Path, *more: str, stripped: bool = True) -> None:
    """The launcher, the programs and what both read, laid out as the tree; no libraries."""
    for name in ("kmem", "VERSION", "pyproject.toml"):
        put(ROOT / name, target / name)
    for program in (*PROGRAMS, *more):
        if (BUILD / program).exists():
            (put_stripped if stripped else put)(BUILD / program, target / "build" / program)


if __name__ == "__main__":
    print(*PROGRAMS, KERNEL_PROGRAM)
