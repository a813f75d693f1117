# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Where the parts of the tree are, and making sure that they are there."""

import subprocess
from pathlib import Path

from kmem.common.errors import KmemError

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
LIBRARY = BUILD / "src" / "libkmem-malloc.so"


def build(*files: Path) -> None:
    """Build these files or all, as far as they are out of date; quick if nothing is."""
    names = [file.relative_to(BUILD) for file in files]
    if subprocess.run([ROOT / "scripts" / "build", *names], check=False).returncode != 0:
        raise KmemError("the build failed, see above")


def need_packages(*names: str) -> None:
    """Install missing Debian packages as root; otherwise the script prints the line."""
    script = ROOT / "scripts" / "debian-packages"
    if subprocess.run([script, *names], check=False).returncode != 0:
        raise KmemError("Debian packages are missing, see above")


def need_extra(extra: str) -> None:
    """Install the packages of an extra of pyproject.toml; quick when they are there."""
    if subprocess.run([ROOT / "scripts" / "venv", extra], check=False).returncode != 0:
        raise KmemError(f"the Python packages of kmem[{extra}] cannot be installed, see above")
