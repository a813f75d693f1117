# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A flame graph as a page of a single file: zoom, search and inversion, without network."""

import json
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from kmem.live.lines import Line
from kmem.live.pprof import Frame, Row
from kmem.live.sites import is_script

FOLDER = Path(__file__).parent / "flame_page"
Fact = tuple[str, int | str, str]  # a word, a figure, and its unit


def library_of(frame: Frame) -> str:
    """What gives a function its colour: the file of its code, or what made it."""
    if frame.mapping is not None and frame.mapping.path:
        return PurePosixPath(frame.mapping.path).name
    if not is_script(frame):
        return "no file"
    return "Python" if frame.lines[0].file.endswith(".py") else "scripts"


def place_of(line: Line) -> str:
    """File and line of a function's first call that is met; a box may stand for several."""
    return f"{line.file}:{line.number}" if line.file and line.number else line.file


def facts_of(
    rows: Sequence[Row],
    column: int,
    figure: str,
    *,
    signed: bool,
    interval: int,
    time_ns: int,
    duration_ns: int,
) -> list[Fact]:
    values = [row.values[column] for row in rows]
    facts: list[Fact] = [(figure, sum(values), "bytes")]
    if signed:
        facts.append(("grew", sum(max(value, 0) for value in values), "bytes"))
        facts.append(("shrank", sum(min(value, 0) for value in values), "bytes"))
    elif duration_ns > 0:
        rate = round(sum(row.values[1] for row in rows) * 1e9 / duration_ns)
        facts.append(("allocated", rate, "bytes a second"))
    if time_ns > 0:
        begun = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(time_ns / 1e9))
        facts.append(("begun", begun, ""))
    facts.append(("for", f"{duration_ns / 1e9:.1f} s", ""))
    facts.append(("a sample each", interval, "size"))
    facts.append(("stacks", f"{sum(map(bool, values)):,}", ""))
    return facts


def page(
    rows: Sequence[Row],
    column: int,
    *,
    title: str,
    comment: str,
    facts: Sequence[Fact],
    signed: bool,
) -> str:
    """The page; names in it are data and never markup."""
    functions: dict[tuple[str, str], int] = {}  # by name and library
    places: list[str] = []
    libraries: dict[str, int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    for row in rows:
        numbers = []
        for frame in row.frames:
            library = library_of(frame)
            libraries.setdefault(library, len(libraries))
            for line in frame.lines:
                key = line.function, library
                if key not in functions:
                    functions[key] = len(functions)
                    places.append(place_of(line))
                numbers.append(functions[key])
        if row.values[column]:
            stack = tuple(numbers)
            stacks[stack] = stacks.get(stack, 0) + row.values[column]
    data = {
        "title": title,
        "comment": comment,
        "facts": facts,
        "signed": signed,
        "libraries": list(libraries),
        "functions": [
            (name, places[at], libraries[library]) for (name, library), at in functions.items()
        ],
        "stacks": [(value, stack) for stack, value in stacks.items()],
    }
    # Nothing in a name may end the script's element.
    parts = {
        "style": (FOLDER / "page.css").read_text(encoding="utf-8"),
        "script": (FOLDER / "page.js").read_text(encoding="utf-8"),
        "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    whole = (FOLDER / "page.html").read_text(encoding="utf-8")
    before, _, rest = whole.partition("{{style}}")
    middle, _, rest = rest.partition("{{data}}")
    between, _, after = rest.partition("{{script}}")
    return "".join((before, parts["style"], middle, parts["data"], between, parts["script"], after))
