# SPDX-License-Identifier: Apache-2.0 OR MIT
"""No process of a search outlives the one that began it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

EXPLORER = Path(__file__).resolve().parents[2] / "build/tests/explore/explore"
SECONDS_MOST = 30


def members(session: int) -> list[int]:
    """Processes of the session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, of, *_ = (entry / "stat").read_text().rpartition(") ")[2].split()
        except (OSError, ValueError):
            continue
        if int(of) == session and state not in "ZX":
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_search_ends_with_its_process(number: int) -> None:
    if not EXPLORER.exists():
        pytest.skip(f"{EXPLORER} is not built: configure with -Dtests=true")
    # Two preemptions take it minutes.
    search = subprocess.Popen(
        [EXPLORER, "close_same_cpu", "--seconds", "600"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + SECONDS_MOST
    try:
        assert search.stdout
        for _ in range(2):
            search.stdout.readline()  # it has searched with none, with one
        while len(members(search.pid)) < 2:
            assert time.monotonic() < deadline, "it starts no process"
        search.send_signal(number)
        search.wait()
        while left := members(search.pid):
            assert time.monotonic() < deadline, f"processes {left} go on"
    finally:
        search.kill()
        search.wait()
        for process in members(search.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
