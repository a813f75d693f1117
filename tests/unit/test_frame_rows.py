# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The rows that the walk of the stack reads (machine/frame_row.h), compared with those of readelf,
at each address in the code of some libraries."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "tests" / "unit" / "print_rows"
LIBRARIES = ("libkmem-malloc.so", "libc.so.6", "libstdc++.so.6", "libm.so.6")
COMMON = re.compile(r"^(\w+) \w+ \w+ CIE \"(\w*)\"")
FUNCTION = re.compile(r"^\w+ \w+ \w+ FDE cie=(\w+) pc=(\w+)\.\.(\w+)")
PLACE = re.compile(r"c[+-]\d+")
OTHER_REGISTER = re.compile(r"\br\d+ \(\w+\)")
BASE = re.compile(r"r[sb]p\+\d+")


@dataclass(frozen=True)
class Row:
    start: int
    end: int
    text: str  # as print_rows has it


def text_of(columns: dict[str, str], augmentation: str) -> str:
    """A row that all registers are needed for is unknown to print_rows."""
    pointer = columns.get("rbp", "u")
    if "S" in augmentation or not BASE.fullmatch(columns["CFA"]):
        return "last" if columns["ra"] == "u" else "unknown"
    if columns["ra"] == "u":
        return "last"
    if not PLACE.fullmatch(columns["ra"]) or not (pointer == "u" or PLACE.fullmatch(pointer)):
        return "unknown"
    return f"{columns['CFA']} {pointer} {columns['ra']}"


def rows_of_readelf(library: Path) -> Iterator[Row]:
    command = ["readelf", "--debug-dump=frames-interp,no-follow-links", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    commons: dict[str, tuple[str, dict[str, str]]] = {}
    for block in listing.split("\n\n"):
        head, *lines = block.strip().split("\n")
        names = lines[0].split()[1:] if lines else []
        rows: dict[int, dict[str, str]] = {}
        for line in lines[1:]:
            place, *places = OTHER_REGISTER.sub("register", line).split()
            rows[int(place, 16)] = dict(zip(names, places, strict=True))
        if found := COMMON.match(head):
            commons[found[1]] = (found[2], next(iter(rows.values()), {}))
        elif found := FUNCTION.match(head):
            augmentation, first = commons[found[1]]
            start, end = int(found[2], 16), int(found[3], 16)
            rows = rows or {start: first}
            for at, until in zip(rows, [*list(rows)[1:], end], strict=True):
                yield Row(at, until, text_of(first | rows[at], augmentation))


def rows_of_library(library: Path) -> list[Row]:
    done = subprocess.run([PROGRAM, library], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    return [
        Row(int(at, 16), int(until, 16), text)
        for (at, text), (until, _) in pairwise(lines)
        if text != "end"
    ]


def path_of(name: str) -> Path:
    built = ROOT / "build" / "src" / name
    if built.exists():
        return built
    listing = subprocess.run(
        ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False
    ).stdout
    for line in listing.splitlines():
        if line.strip().startswith(f"{name} (") and "x86-64" in line:
            return Path(line.split()[-1]).resolve()
    pytest.skip(f"{name} is not there")


def known_bytes(rows: list[Row]) -> int:
    return sum(row.end - row.start for row in rows if row.text not in ("none", "unknown"))


@pytest.mark.parametrize("name", LIBRARIES)
def test_rows_are_those_of_readelf(name: str) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("readelf says of x86-64 alone where nothing called a function")
    if not shutil.which("readelf") or not PROGRAM.exists():
        pytest.skip("readelf or build/tests/unit/print_rows is not there")
    library = path_of(name)
    ours = rows_of_library(library)
    starts = [row.start for row in ours]
    theirs = list(rows_of_readelf(library))
    for row in theirs:
        at = row.start
        while at < row.end:
            mine = ours[bisect_right(starts, at) - 1]
            assert mine.start <= at < mine.end, f"{at:#x} is not in the code"
            assert mine.text == row.text, f"{library} at {at:#x}, readelf's row {row}"
            at = mine.end
    assert len(theirs) > 500
    assert len([row for row in theirs if row.text == "unknown"]) < len(theirs) / 20
    # Where readelf has no function, there is no row.
    assert known_bytes(ours) == known_bytes(theirs)
