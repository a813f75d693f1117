# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the files of the command are, in the tree and installed, and making sure of them.

An installed folder is laid out as the tree, but has only what runs: the launcher, VERSION,
pyproject.toml and the programs in build/ (scripts/installed.py puts them there). A wheel has this
folder inside the package.
"""

import subprocess
from pathlib import Path

from kmem.common.errors import KmemError
from kmem.common.extras import advice, unfit

PACKAGE = Path(__file__).resolve().parents[1]
IN_WHEEL = (PACKAGE / "tree").exists()
ROOT = PACKAGE / "tree" if IN_WHEEL else PACKAGE.parents[1]
# The launcher, which is a shell script, tells them apart by this file too.
IN_TREE = (ROOT / "scripts" / "venv").exists()
LAUNCHER = ROOT / "kmem"
BUILD = ROOT / "build"
LIBRARY = BUILD / "src" / "libkmem-malloc.so"


def need_tree(command: str) -> None:
    """Refuse a command that compiles programs, or compares with the sources of others."""
    if not IN_TREE:
        raise KmemError(f"{command}: not installed; expected libkmem's tree, and ./kmem there")


def build(*files: Path) -> None:
    """Build these files or all, as far as they are out of date; quick if nothing is."""
    if not IN_TREE:
        for file in files:
            if not file.exists():
                need_tree(str(file))
        return
    names = [file.relative_to(BUILD) for file in files]
    if subprocess.run([ROOT / "scripts" / "build", *names], check=False).returncode != 0:
        raise KmemError("the build failed, see above")


def need_packages(*names: str) -> None:
    """Install missing Debian packages as root; otherwise the script prints the line."""
    need_tree(f"Debian packages {', '.join(names)}")
    script = ROOT / "scripts" / "debian-packages"
    if subprocess.run([script, *names], check=False).returncode != 0:
        raise KmemError("Debian packages are missing, see above")


def need_extra(extra: str) -> None:
    """In the tree: install the packages of an extra. Else: refuse if they are not there."""
    if IN_TREE:
        if subprocess.run([ROOT / "scripts" / "venv", extra], check=False).returncode != 0:
            raise KmemError(f"the Python packages of kmem[{extra}] cannot be installed, see above")
        return
    pyproject = ROOT / "pyproject.toml"
    if reason := unfit(extra, pyproject):
        how = advice(extra, None if IN_WHEEL else pyproject)
        raise KmemError(f"{reason}; install them with: {how}")
