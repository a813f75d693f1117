# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem explain` as a user runs it: text, JSON, page, and bad usage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "command"))
from kmem_command import KMEM, ROOT, kmem

from kmem.explain.treemap import HEIGHT, WIDTH, Item, lay_out
from kmem.lab.boots import BOOTS

REPORTS = Path(__file__).parent / "reports"
SWAPPING = REPORTS / "over-eager-swapping.txt"
explain = partial(kmem, "explain")


def numbers(value: Any, key: str = "") -> list[tuple[str, Any]]:
    """Every number of a document that is not a value with its word, by its key."""
    if isinstance(value, dict):
        if set(value) == {"value", "how"}:
            assert value["how"] in ("read", "computed", "modelled")
            return []
        return [found for name, part in value.items() for found in numbers(part, name)]
    if isinstance(value, list):
        return [found for part in value for found in numbers(part, key)]
    return [(key, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_every_number_says_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    for report in (SWAPPING, REPORTS / "extended-2015.txt", REPORTS / "debugged-sizes.txt"):
        result = explain(report, "--json", file)
        assert result.returncode == 0, result.stderr
        document = json.loads(file.read_text())
        left = {key for key, _ in numbers(document)}
        assert left <= {"line", "caches_that_fit", "caches_that_tell", "caches"}


def test_text_has_the_answers() -> None:
    result = explain(SWAPPING, "--top", "5")
    assert result.returncode == 0, result.stderr
    for text in (
        "/proc/slabinfo, 57 caches",
        "Slab of /proc/meminfo is 692,296 r KiB, of which these are 100.0% c",
        "CPU count: 8-15 c gives 57 of 57 caches their slabs",
        "52 smaller caches: --top 57 has them",
        "the policies of kernels, with 8 c CPUs",
        "the changes of the five mails",
    ):
        assert text in result.stdout
    assert "not read" not in result.stdout


@pytest.mark.parametrize("file", [SWAPPING, REPORTS.parent / "profiles" / "go-text.txt"])
def test_the_letters_are_explained_first(file: Path) -> None:
    lines = [line for line in explain(file).stdout.splitlines() if line.strip()]
    assert lines[1].startswith("Behind each number: r read, c computed")


def test_cpus_of_the_user_win(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert explain(SWAPPING, "--cpus", "64", "--json", file).returncode == 0
    (table,) = json.loads(file.read_text())["tables"]
    assert table["cpus"] == {"value": 64, "how": "read"}
    slabs = {row["kernels"]: row["slab_bytes"]["value"] for row in table["kernels"]}
    assert slabs["6.7, 6.8, 6.12, 6.18"] > table["total_bytes"]["value"]


def test_most_cpus() -> None:
    result = explain(SWAPPING, "--cpus", "8192", "--top", "3")
    assert result.returncode == 0, result.stderr
    assert "with 8,192 r CPUs" in result.stdout


def test_slab_under_kernels_with_slub(tmp_path: Path) -> None:
    """A table of SLAB does not tell the CPU count; the user does."""
    file = tmp_path / "out.json"
    report = REPORTS / "laptop-2004.txt"
    for arguments, kernels in (((), 0), (("--cpus", "4"), 4)):
        result = explain(report, "--json", file, *arguments)
        assert result.returncode == 0, result.stderr
        (table,) = json.loads(file.read_text())["tables"]
        assert len(table["kernels"]) == kernels
        assert table["cpu_fit"] is None


def test_two_times(tmp_path: Path) -> None:
    """A cache that grows, a cache that shrinks, and a cache that the kernel can reclaim."""
    head = "slabinfo - version: 2.1\n"
    rest = ": tunables 0 0 0 : slabdata"
    texts = []
    for number, (leak, other, inodes) in enumerate(((100, 900, 50), (400, 300, 500)), 1):
        rows = [
            f"leaky {64 * leak} {64 * leak} 64 64 1 {rest} {leak} {leak} 0",
            f"kmalloc-128 {32 * other} {32 * other} 128 32 1 {rest} {other} {other} 0",
            f"ext4_inode_cache {30 * inodes} {30 * inodes} 1072 30 8 {rest} {inodes} {inodes} 0",
        ]
        texts.append(tmp_path / f"{number}.txt")
        texts[-1].write_text(head + "\n".join(rows))
    result = explain(*texts, "--json", tmp_path / "out.json")
    assert result.returncode == 0, result.stderr
    assert "2 moments: 2 caches grow without ever shrinking" in result.stdout
    growths = json.loads((tmp_path / "out.json").read_text())["growths"]
    assert [(growth["name"], growth["reclaimed"]) for growth in growths] == [
        ("ext4_inode_cache", True),
        ("leaky", False),
    ]
    assert growths[1]["grown_bytes"] == {"value": 300 * 4096, "how": "computed"}


def test_standard_input() -> None:
    text = BOOTS[0].slabinfo.read_bytes()
    done = subprocess.run([KMEM, "explain", "-"], input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"CPU count: 4-7" in done.stdout


def test_tables_of_the_library(tmp_path: Path) -> None:
    """`kmem run --slabinfo` ends with comments of its own."""
    file = tmp_path / "table"
    assert kmem("run", "--slabinfo", file, sys.executable, "-c", "").returncode == 0
    result = explain(file)
    assert result.returncode == 0, result.stderr
    assert "/proc/slabinfo" in result.stdout
    assert "not read" not in result.stdout


def test_page_needs_no_other_file(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    names = tmp_path / "names.txt"
    names.write_text('<b>&"x 10 10 1024 4 1 : tunables 0 0 0 : slabdata 3 3 0\n')
    result = explain(SWAPPING, names, "--html", page)
    assert result.returncode == 0, result.stderr
    text = page.read_text()
    assert re.findall(r'(?:src|href)="(?!#|data:)([^"]+)"', text) == []
    assert text.count('<svg class="treemap"') == 2
    assert "<title>kmalloc-64: 465,952 KiB, 94.3% of it in use</title>" in text
    assert "<b>" not in text


def test_page_in_a_browser(tmp_path: Path, new_page: Any) -> None:
    page = tmp_path / "page.html"
    assert explain(SWAPPING, "--html", page).returncode == 0
    shown = new_page(1300, 30_000, ("file:", "data:"), failures=True)
    shown.goto(page.as_uri())
    box = shown.locator("svg.treemap").bounding_box()
    assert box["width"] > 900 and box["height"] > 400
    shown.locator("th button").first.click()
    assert shown.locator("table.sorted").count() == 1


def test_treemap_covers_its_area() -> None:
    items = [Item(str(size), size, 0.5, False) for size in (900, 400, 300, 50, 20, 20, 5, 1)]
    boxes = lay_out(items)
    whole = sum(item.bytes for item in items)
    for box in boxes:
        area = box.width * box.height
        assert area == pytest.approx(WIDTH * HEIGHT * box.item.bytes / whole, rel=1e-6)
        assert box.x >= -1e-6 and box.x + box.width <= WIDTH + 1e-6
        assert box.y >= -1e-6 and box.y + box.height <= HEIGHT + 1e-6
    for one in boxes:
        for other in boxes:
            apart = (
                one.x + one.width <= other.x + 1e-6
                or other.x + other.width <= one.x + 1e-6
                or one.y + one.height <= other.y + 1e-6
                or other.y + other.height <= one.y + 1e-6
            )
            assert one is other or apart


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "FILE"),
        (
            ("nothing.txt",),
            1,
            "explain: nothing.txt: No such file or directory; expected a file, or a process id",
        ),
        ((SWAPPING, "--page-size", "5000"), 2, "expected 4096, 16384 or 65536"),
        ((SWAPPING, "--cpus", "0"), 2, "--cpus '0': expected 1 to 8192\n"),
        ((SWAPPING, "--cpus", "9000"), 2, "--cpus '9000': expected 1 to 8192\n"),
        (("١٢",), 1, "explain: ١٢: No such file or directory; expected a file, or a process id"),
        ((SWAPPING, "--json", "/nowhere/x"), 1, "--json /nowhere/x"),
        ((ROOT / "src",), 1, "expected a slab table"),
    ],
)
def test_bad_usage(arguments: tuple[object, ...], status: int, message: str) -> None:
    result = explain(*arguments)
    assert result.returncode == status
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
