# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The texts that scripts/import_speed.py makes are read to the last event, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "import_speed.py"
LIVING = 1000


def figures(folder: Path, size: int, *forms: str) -> dict[str, dict[str, float]]:
    file = folder / "speed.json"
    words = [sys.executable, SCRIPT, *forms, "--bytes", str(size), "--living", str(LIVING)]
    done = subprocess.run([*words, "--json", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: dict[str, dict[str, float]] = json.loads(file.read_text())["rows"]
    assert list(rows) == list(forms)
    return rows


def test_every_event_is_read(tmp_path: Path) -> None:
    for row in figures(tmp_path, 4_000_000, "perf", "trace-cmd", "ftrace").values():
        assert row["unreadable"] == 0
        # Texts are written in parts of so many lines.
        assert row["events"] > 0 and row["events"] % 20_000 == 0
        assert 0 < row["living"] <= LIVING + 1


@pytest.mark.full
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    (small,) = figures(tmp_path, 20_000_000, "ftrace").values()
    (large,) = figures(tmp_path, 200_000_000, "ftrace").values()
    assert large["events"] > 8 * small["events"]
    assert large["peak_bytes"] < small["peak_bytes"] + (4 << 20)
