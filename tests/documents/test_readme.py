# SPDX-License-Identifier: Apache-2.0 OR MIT
"""README.md: short, with pictures of the newest result, and commands that work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
LINES_MOST = 150
PICTURE_MOST = 150_000  # bytes

sys.path.insert(0, str(ROOT / "scripts"))
import document_figures  # noqa: E402
import readme_pictures  # noqa: E402


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= LINES_MOST


def test_the_chart_is_of_the_newest_result() -> None:
    """`scripts/readme_pictures.py chart` draws it anew, and the text names the file."""
    newest = document_figures.newest_result()
    assert f"bench/results/{newest.name}" in README
    drawn = (ROOT / "docs" / "pictures" / "time.svg").read_text()
    assert drawn == readme_pictures.chart(json.loads(newest.read_text()))


def test_the_next_in_time_and_in_memory_are_named() -> None:
    means = json.loads(document_figures.newest_result().read_text())["geomean"]
    for figure in ("time", "memory"):
        order = sorted(means[figure], key=means[figure].get)
        assert order[0] == "libkmem"
        assert re.search(rf"\b{order[1]}, next\s+in {figure}", README), order


def test_the_chart_follows_its_figures() -> None:
    times = {"libkmem": 1.0, "other": 2.0, "another": 2.0}
    result = {"geomean": {"rows": 3, "time": times, "memory": {name: 1.5 for name in times}}}
    drawn = readme_pictures.chart(result)
    places = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)
    names = re.findall(r"<text[^>]*>(libkmem|other|another)</text>", drawn)
    assert len(places) == 3 and sorted(names) == ["another", "libkmem", "other"]
    assert len({y for _, y in places}) == 1
    assert min(float(x) for x, _ in places) == readme_pictures.LEFT
    assert "3 rows" in drawn


def test_pictures_are_there_and_small() -> None:
    pictures = re.findall(r'(?:!\[[^\]]+\]\(|<img src=")([^)"]+)[)"]', README)
    assert len(pictures) == 3
    for name in pictures:
        assert 0 < (ROOT / name).stat().st_size < PICTURE_MOST, name
        if name.endswith(".svg"):
            # Nothing comes from another site.
            assert not re.search(r"(href=|url\()['\"]?http", (ROOT / name).read_text())


def test_a_program_runs_as_the_start_says(tmp_path: Path) -> None:
    """make build has been done for the tests, and make demo has a test of its own."""
    (line,) = re.findall(r"^(\./kmem run -- .*?) +#", README, re.MULTILINE)
    table = tmp_path / "table"
    environment = os.environ | {"KMEM_OPTIONS": f"slabinfo={table}"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("on libkmem\n", "")
    assert table.read_text().startswith("slabinfo - version: 2.1\n")


def test_the_five_lines_of_c(tmp_path: Path) -> None:
    (lines,) = re.findall(r"^```c\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    include, rest = lines.split("\n", 1)
    source = tmp_path / "five.c"
    source.write_text(
        f"{include}\nstruct session {{ char name[40]; }};\nint main(void)\n{{\n{rest}\n"
        "return session == 0;\n}\n"
    )
    program = tmp_path / "five"
    library = ROOT / "build" / "src"
    command = ["cc", "-Wall", "-Werror", f"-I{ROOT / 'include'}", source, f"-L{library}", "-lkmem"]
    done = subprocess.run([*command, f"-Wl,-rpath,{library}", "-o", program], check=False)
    assert done.returncode == 0
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.parametrize("words", [[], ["nothing"], ["chart", "nothing"]])
def test_unknown_pictures_are_refused(words: list[str]) -> None:
    command = [sys.executable, ROOT / "scripts" / "readme_pictures.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "expected some of chart, top, page" in done.stderr
