# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The command, run as a user runs it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KMEM = ROOT / "kmem"


def kmem(
    *arguments: object, environment: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Without options of whoever runs the tests, but for those in the environment given."""
    inherited = {name: text for name, text in os.environ.items() if name != "KMEM_OPTIONS"}
    return subprocess.run(
        [KMEM, *map(str, arguments)],
        env=inherited | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def script_output(name: str, *words: str, timeout: float) -> str:
    """What a script prints that measures the library and ends without a word of error."""
    if not (ROOT / "build" / "src" / "libkmem-malloc.so").exists():
        pytest.skip("the library is not built")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / name, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def container(*words: object) -> Iterator[int]:
    """A program in a namespace of processes of its own that has said `ready`: its number outside.
    The words are further options of unshare, and the program."""
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip("unshare is not allowed here")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        (pid,) = map(int, children.split())
        yield pid
    finally:
        process.kill()
        process.communicate()
