# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs on the drop-in, and the command that profiles them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kmem.live.registry.find import open_process
from kmem.live.registry.layout import RegistryError

ROOT = Path(__file__).resolve().parents[2]
KMEM = ROOT / "kmem"
LIBRARY = ROOT / "build" / "src" / "libkmem-malloc.so"


@contextmanager
def on_library(
    options: str, *command: str | Path, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "KMEM_OPTIONS": options, **variables}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_registry(process: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            open_process(process).close()
            return
        except RegistryError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def profile(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KMEM, "profile", *arguments], capture_output=True, text=True)
