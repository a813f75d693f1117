# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The folders of the library are floors (src/floors): no file includes a header of a higher floor,
and no object takes a symbol that a higher floor defines."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "src"
OBJECTS = ("libkmem-core.a.p", "libkmem-bound.a.p", "libkmem-malloc.so.*.p")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
DEFINED = "TDBRCVWi"  # the letters of nm for symbols that an object gives to others


@dataclass(frozen=True)
class Edge:
    """A file needs something of another file."""

    user: str  # below src
    owner: str
    by: str  # "include", or the symbol


def floors() -> tuple[list[str], set[str]]:
    """The floors, highest first, and the folders that are none."""
    rows = [
        line.split(maxsplit=1)
        for line in (ROOT / "src" / "floors").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    outside = {name for name, text in rows if text == "outside"}
    return [name for name, _ in rows if name not in outside], outside


def folder(file: str) -> str:
    return file.split("/", 1)[0]


def includes(source: Path, names: Iterable[str]) -> set[Edge]:
    """The includes of files in the named folders, if the header lies there too."""
    edges = set()
    for name in names:
        for file in [*(source / name).rglob("*.c"), *(source / name).rglob("*.h")]:
            user = str(file.relative_to(source))
            for header in INCLUDE.findall(file.read_text()):
                if (source / header).is_file():
                    edges.add(Edge(user, header, "include"))
    return edges


def symbols(objects: Iterable[tuple[str, Path]]) -> set[Edge]:
    """The symbols that an object, named by its source below src, takes from another."""
    owners: dict[str, str] = {}
    uses: list[tuple[str, str]] = []
    for source, file in objects:
        text = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
        for line in text.splitlines():
            *_, letter, symbol = line.split()
            if letter in DEFINED:
                owners.setdefault(symbol, source)
            elif letter == "U":
                uses.append((source, symbol))
    return {
        Edge(source, owners[symbol], symbol)
        for source, symbol in uses
        if symbol in owners and owners[symbol] != source
    }


def built_objects() -> list[tuple[str, Path]]:
    sources = {
        str(file.relative_to(ROOT / "src")).replace("/", "_"): str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src").rglob("*.c")
    }
    files = [file for name in OBJECTS for file in BUILD.glob(f"{name}/*.o")]
    return [(sources[file.stem], file) for file in files if file.stem in sources]


def upward(edges: Iterable[Edge]) -> list[str]:
    order = {name: number for number, name in enumerate(floors()[0])}
    return sorted(
        f"{edge.user} is below {edge.owner} ({edge.by})"
        for edge in edges
        if folder(edge.user) in order
        and folder(edge.owner) in order
        and order[folder(edge.user)] > order[folder(edge.owner)]
    )


def test_every_folder_is_a_floor() -> None:
    names, outside = floors()
    folders = {
        folder(str(file.relative_to(ROOT / "src"))) for file in (ROOT / "src").rglob("*/*.[ch]")
    }
    assert folders == {*names, *outside}


def test_no_include_points_up() -> None:
    edges = includes(ROOT / "src", floors()[0])
    assert len(edges) > len(floors()[0])
    assert upward(edges) == []


def test_no_call_points_up() -> None:
    objects = built_objects()
    if not objects:
        pytest.skip(f"{BUILD} is not built")
    edges = symbols(objects)
    # Objects of every floor that has code were found.
    assert {folder(edge.user) for edge in edges} >= {"malloc", "api", "heap", "engines", "page"}
    assert upward(edges) == []


def test_a_planted_include_is_seen(tmp_path: Path) -> None:
    for file, text in (("heap/heap.h", ""), ("page/planted.c", '#include "heap/heap.h"\n')):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    edges = includes(tmp_path, ["heap", "page"])
    assert upward(edges) == ["page/planted.c is below heap/heap.h (include)"]


def test_a_planted_call_is_seen(tmp_path: Path) -> None:
    """The declaration is written in the file itself, so that no include tells."""
    objects = []
    for source, text in (
        ("heap/upper.c", "int upper(void) { return 1; }\n"),
        ("page/planted.c", "int upper(void);\nint planted(void) { return upper(); }\n"),
    ):
        (tmp_path / source).parent.mkdir()
        (tmp_path / source).write_text(text)
        file = tmp_path / Path(source).with_suffix(".o")
        subprocess.run(["cc", "-c", tmp_path / source, "-o", file], check=True)
        objects.append((source, file))
    assert upward(symbols(objects)) == ["page/planted.c is below heap/upper.c (upper)"]
