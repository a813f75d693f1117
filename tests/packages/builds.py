# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tests of packages have in common: running tools, and small programs on the library."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"

# Ends with 0 if a cache works and malloc is glibc's (argument 0) or the library's (1).
PROGRAM = """\
#include <kmem.h>
#include <stdlib.h>

int main(int count, char **words)
{
        struct kmem_cache *cache = kmem_cache_create("session", 24, 0, 0, NULL);
        void *object = kmem_cache_alloc(cache, GFP_KERNEL);
        void *block = malloc(100);
        int is_ours = ksize(block) >= 100;

        kmem_cache_free(cache, object);
        kmem_cache_destroy(cache);
        return count != 2 || !object || is_ours != atoi(words[1]);
}
"""


def run(
    words: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """The output of a command that must end well."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def need_packages(*names: str) -> None:
    """Debian packages that a test runs; it is skipped where they cannot be installed."""
    script = ROOT / "scripts" / "debian-packages"
    done = subprocess.run([script, *names], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(" ".join(done.stderr.split())[-300:])


def exported(library: Path) -> set[str]:
    """The names that a shared library gives to programs, with their versions."""
    lines = run(["nm", "-D", "--defined-only", library], ROOT).splitlines()
    return {line.split()[-1] for line in lines}
