# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Threads that wait for programs started by the command."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path


def children_of_threads() -> list[int]:
    """The processes that threads of this process have started; a thread may end meanwhile."""
    found: list[int] = []
    for thread in Path("/proc/self/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.extend(map(int, (thread / "children").read_text().split()))
    return found


@contextmanager
def waiting_threads(count: int | None) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for programs.

    The programs end with the command, if it is ended or fails.
    """
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children_of_threads():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
            raise
