# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The programs that these tests run, and the Debian packages that hold them.

What is missing is installed once, all of it in one call: by running this file, or at the first test
that lacks something.
"""

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from dropin import ROOT, SYSTEM_PATH, Finished


@dataclass(frozen=True)
class Need:
    """A program is there when all its commands and files are found; a file may be a pattern."""

    packages: tuple[str, ...]
    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        commands = [name for name in self.commands if locate(name) is None]
        return commands + [name for name in self.files if not any(Path("/").glob(name[1:]))]


# Debian's Python with its version, of which its tests are a package.
PYTHON = Path("/usr/bin/python3").resolve()


def postgres(name: str) -> Path:
    """A program of the newest PostgreSQL that is installed."""
    found = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    return max(found, key=lambda path: int(path.parts[4]))


NEEDS = {
    "python": Need(
        ("python3", f"lib{PYTHON.name}-testsuite"),
        files=(str(PYTHON), f"/usr/lib/{PYTHON.name}/test/test_json/__init__.py"),
    ),
    "sqlite3": Need(("sqlite3",), ("sqlite3",)),
    "redis": Need(
        ("redis-server", "redis-tools"), ("redis-server", "redis-benchmark", "redis-check-rdb")
    ),
    "postgresql": Need(
        ("postgresql",),
        files=tuple(
            f"/usr/lib/postgresql/*/bin/{name}"
            for name in ("initdb", "postgres", "pgbench", "psql")
        ),
    ),
    "gcc": Need(("gcc", "g++", "make"), ("gcc", "g++", "make")),
    "java": Need(("default-jdk-headless",), ("java", "javac")),
    "cargo": Need(("cargo", "rustc"), files=("/usr/bin/cargo", "/usr/bin/rustc")),
    "perl": Need(("perl",), ("perl",)),
    "bash": Need(("bash", "coreutils", "gawk"), ("bash", "sort", "gawk")),
    "git": Need(("git",), ("git",)),
    "node": Need(("nodejs",), ("node",)),
    "stress-ng": Need(("stress-ng",), ("stress-ng",)),
    # For the pages that commands write (tests/lab, tests/command).
    "chromium": Need(("chromium",), ("chromium",)),
}


def locate(name: str) -> Path | None:
    """The command of that name: Debian's if there is one, else the caller's own."""
    found = shutil.which(name, path=SYSTEM_PATH) or shutil.which(name, path=os.environ.get("PATH"))
    return Path(found) if found else None


def command(name: str) -> Path:
    """The path of a command that require() has seen to."""
    found = locate(name)
    assert found is not None, f"{name} is not installed"
    return found


def install(**streams: int) -> subprocess.CompletedProcess[str]:
    """Installs what any of the programs lacks; the script says how much that is."""
    packages = [name for need in NEEDS.values() if need.missing() for name in need.packages]
    return subprocess.run(
        [ROOT / "scripts" / "debian-packages", *packages], text=True, check=False, **streams
    )


def skip_as_told(finished: Finished) -> None:
    """Programs of our own say with status 77 what the machine lacks for them."""
    if finished.status == 77:
        pytest.skip(finished.stdout.strip())


@functools.cache
def install_missing() -> str:
    """The same once, for a test: returns why that failed, or nothing."""
    done = install(stderr=subprocess.PIPE)
    return "" if done.returncode == 0 else " ".join(done.stderr.split())[-400:]


def require(name: str) -> None:
    """Makes sure that a program is installed, or skips the test and says why."""
    need = NEEDS[name]
    if not need.missing():
        return
    reason = install_missing()
    if missing := need.missing():
        pytest.skip(f"{name}: missing {', '.join(missing)}; {reason or 'not in its packages'}")


@functools.cache
def require_packages(*packages: str) -> None:
    """Makes sure that Debian packages are installed, or skips the test and says why."""
    script = [ROOT / "scripts" / "debian-packages", *packages]
    done = subprocess.run(script, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(" ".join(done.stderr.split())[-400:])


if __name__ == "__main__":
    # A test that lacks a program says why.
    install()
