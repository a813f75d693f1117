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


def figures(folder: Path, size: int, *forms: str, repeat: int = 1) -> dict[str, dict[str, float]]:
    file = folder / "speed.json"
    words = [sys.executable, SCRIPT, *forms, "--bytes", str(size), "--living", str(LIVING)]
    words += ["--repeat", str(repeat), "--folder", str(folder)]
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


def test_a_text_is_repeated_with_later_times(tmp_path: Path) -> None:
    forms = ("perf", "trace-cmd", "ftrace")
    once = figures(tmp_path, 2_500_000, *forms)
    for form, row in figures(tmp_path, 2_500_000, *forms, repeat=3).items():
        assert row["unreadable"] == row["living"] == 0
        # All that lived is freed, each time.
        assert row["events"] == 3 * (once[form]["events"] + once[form]["living"])


def test_later_times() -> None:
    sys.path.insert(0, str(SCRIPT.parent))
    from import_speed import later

    lines = b"a     9.5: x\nb   123.4: y\n"
    assert later(lines, (2, 7), 99_000) == b"a 99009.5: x\nb 99123.4: y\n"
    assert later(lines, (2, 7), 1) == b"a 00010.5: x\nb 00124.4: y\n"


@pytest.mark.full
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    (small,) = figures(tmp_path, 20_000_000, "ftrace").values()
    (large,) = figures(tmp_path, 200_000_000, "ftrace").values()
    assert large["events"] > 8 * small["events"]
    assert large["peak_bytes"] < small["peak_bytes"] + (4 << 20)
