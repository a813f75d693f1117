# SPDX-License-Identifier: Apache-2.0 OR MIT
"""docs/tour.md against the tree: files, functions, and floors that never go up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "docs" / "tour.md"

LINK = re.compile(r"\[[^\]]*\]\(\.\./([^)]*)\)")


@dataclass(frozen=True)
class Step:
    """A row of a table."""

    number: int
    caller: int  # row of the file that calls; 0: none
    path: str
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Way:
    """A table; rows of a way down have callers."""

    heading: str
    is_down: bool
    steps: tuple[Step, ...]


def read_step(cells: dict[str, str]) -> Step:
    file = cells["file, functions"]
    (path,) = LINK.findall(file)
    functions = tuple(re.findall(r"`(\w+)`", LINK.sub("", file)))
    return Step(int(cells["step"]), int(cells.get("from") or 0), path, functions)


def read_ways(text: str) -> list[Way]:
    ways = []
    heading = ""
    for part in re.split(r"\n\n+", text):
        if part.startswith("#"):
            heading = part.lstrip("# ")
        if not part.startswith("| step"):
            continue
        names, *rows = [
            [cell.strip() for cell in row.split("|")[1:-1]]
            for row in part.split("\n")
            if not row.startswith("|--")
        ]
        steps = tuple(read_step(dict(zip(names, row, strict=True))) for row in rows if row)
        ways.append(Way(heading, "from" in names, steps))
    return ways


def read_floors(text: str) -> list[str]:
    (line,) = re.findall(r"^malloc, api, .*$", text, re.MULTILINE)
    return line.split(", ")


def defines(path: Path, name: str) -> bool:
    text = path.read_text()
    if path.suffix == ".py":
        return re.search(rf"^(def|class) {name}\b", text, re.MULTILINE) is not None
    # A definition begins in the first column, and a brace follows its arguments.
    return (
        re.search(rf"^[A-Za-z][^\n;#]*\b{name}\([^;{{}}]*\)\s*\{{", text, re.MULTILINE) is not None
    )


def calls(path: Path, name: str) -> bool:
    """Or has it in a table; operations of an engine are called by their names in its table."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    operation = name.removeprefix("slub_")  # slub_take is called as take
    return re.search(rf"\b{name}\b|->{operation}\(", text) is not None


def wrong_files(ways: list[Way]) -> list[str]:
    wrong = []
    for way in ways:
        for step in way.steps:
            place = f"{way.heading}: {step.path}"
            if not (ROOT / step.path).is_file():
                wrong.append(f"{place}: no such file")
                continue
            wrong += [
                f"{place}: no function {name}"
                for name in step.functions
                if not defines(ROOT / step.path, name)
            ]
    return wrong


def wrong_way_down(way: Way, floors: list[str]) -> list[str]:
    wrong = []
    seen: set[str] = set()
    last = 0
    for step in way.steps:
        place = f"{way.heading}: {step.path}"
        floor = floors.index(step.path.split("/")[1])
        if step.path in seen:
            wrong.append(f"{place}: comes twice")
        if floor < last:
            wrong.append(f"{place}: goes up from {floors[last]}")
        seen.add(step.path)
        last = floor
        if step.number == 1:
            continue
        if not 0 < step.caller < step.number:
            wrong.append(f"{place}: row {step.caller} does not call it")
            continue
        caller = ROOT / way.steps[step.caller - 1].path
        if not any(calls(caller, name) for name in step.functions):
            wrong.append(f"{place}: {caller.name} calls none of its functions")
    return wrong


def test_files_and_functions() -> None:
    ways = read_ways(TOUR.read_text())
    assert [step.number for way in ways for step in way.steps] == [
        number for way in ways for number in range(1, len(way.steps) + 1)
    ]
    assert wrong_files(ways) == []


def test_floors_are_the_folders() -> None:
    text = TOUR.read_text()
    floors = read_floors(text)
    others = {"simulator", "urcu"}  # other machines, and another library
    assert set(floors) | others == {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}


def test_ways_down() -> None:
    text = TOUR.read_text()
    floors = read_floors(text)
    down = [way for way in read_ways(text) if way.is_down]
    assert len(down) == 7
    assert [line for way in down for line in wrong_way_down(way, floors)] == []


def test_the_first_call_enters_every_floor_but_one() -> None:
    text = TOUR.read_text()
    first = read_ways(text)[0]
    entered = {step.path.split("/")[1] for step in first.steps}
    assert set(read_floors(text)) - entered == {"introspect"}


ROWS = """
### A way

| step | from | file, functions | why |
|---:|---:|---|---|
| 1 |  | [malloc/malloc.c](../src/malloc/malloc.c) `malloc` | a |
| 2 | 1 | [api/owner.h](../src/api/owner.h) `owner_block_free` | b |
"""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("| 3 | 2 | [h](../src/heap/heap.h) `malloc_free_fast` | c |", None),
        ("| 3 | 2 | [h](../src/heap/heep.h) `block_free_fast` | c |", "no such file"),
        ("| 3 | 2 | [h](../src/heap/heap.h) `block_free_at` | c |", "no function block_free_at"),
        ("| 3 | 2 | [h](../src/api/owner.h) `owner_block_free` | c |", "comes twice"),
        ("| 3 | 2 | [h](../src/malloc/malloc.h) `malloc_fast` | c |", "goes up from api"),
        ("| 3 | 3 | [h](../src/heap/heap.h) `malloc_free_fast` | c |", "does not call it"),
        ("| 3 | 1 | [h](../src/heap/heap.h) `block_free_fast` | c |", "calls none of its"),
    ],
)
def test_a_wrong_row_is_found(row: str, message: str | None) -> None:
    (way,) = read_ways(f"{ROWS}{row}\n")
    wrong = wrong_files([way])
    if not wrong or message == "no function block_free_at":
        wrong += wrong_way_down(way, read_floors(TOUR.read_text()))
    if message is None:
        assert wrong == []
    else:
        assert any(message in line for line in wrong), wrong
