# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Trees of releases of Debian in which packages are tried. Those that debootstrap and apt made are
kept in ~/.cache/kmem/trees; each test has a copy."""

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from builds import ROOT, need_packages

sys.path.insert(0, str(ROOT / "scripts"))
from releases import make, run_in

KEPT = Path.home() / ".cache" / "kmem" / "trees"


@dataclass(frozen=True)
class Kind:
    """A tree that is made for every release, with the packages of the kind that it is based on."""

    name: str
    packages: str
    base: "Kind | None" = None


# With libtracefs, a dependency of the command, which would stay behind when that is removed.
PYTHON = Kind("python", "python3 python3-pip")
COMPILERS = Kind("compilers", "cmake g++ gcc libtracefs1 make pkg-config", PYTHON)


def kept(kind: Kind, release: str) -> Path:
    base = kept(kind.base, release) if kind.base else None
    folder = KEPT / kind.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if reason := make(release, folder, kind.packages, base):
            pytest.skip(f"no tree of {release}: {reason}")
    return folder / release


def copy_of(kind: Kind, release: str, folder: Path) -> "Tree":
    if os.geteuid() != 0:
        pytest.skip("making a tree of a release and entering it needs root")
    need_packages("debootstrap")
    subprocess.run(["cp", "-a", kept(kind, release), folder / release], check=True)
    return Tree(folder / release)


@dataclass(frozen=True)
class Tree:
    path: Path

    def run(self, script: str, status: int = 0) -> str:
        """What a shell script prints in the tree, in /root; it must end with the status."""
        log = self.path.with_suffix(".log")
        log.write_text("")
        ended = run_in(self.path, f"cd /root\n{script}", log)
        output = log.read_text()
        assert ended == status, f"{script}: status {ended}\n{output[-4000:]}"
        return output

    def files(self) -> set[str]:
        """The names of all files that packages may leave."""
        found = self.run("find /usr /etc /opt -xdev ! -name __pycache__ ! -name '*.pyc'")
        return set(found.splitlines())
