# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The call sites of a profile with the largest figures, as a table."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath

from kmem.live.lines import Line
from kmem.live.pprof import Frame, Row

Calls = tuple[str, ...]  # a call site and its callers, as texts

CALLERS = 3  # shown of a site
# Libraries and names that stand between a program and malloc.
LIBRARIES = re.compile(r"(libc|libc\+\+|libc\+\+abi|libstdc\+\+|libgcc_s|libkmem[\w-]*)[.-]")
# What Java and Node.js bring along.
RUNTIMES = re.compile(r"(java|javax|jdk|sun)/.*\.(class|java)$|node:")
NAMES = re.compile(r"(std|__gnu_cxx)::|operator new")


def is_between(frame: Frame, line: Line) -> bool:
    library = PurePosixPath(frame.mapping.path).name if frame.mapping else ""
    return bool(LIBRARIES.match(library) or NAMES.match(line.function))


def text_of(line: Line) -> str:
    if not line.file:
        return line.function
    place = PurePosixPath(line.file).name + (f":{line.number}" if line.number else "")
    return f"{line.function} ({place})"


def is_script(frame: Frame) -> bool:
    """A function in Python, JavaScript or Java: in no file of machine code, but in another."""
    return frame.mapping is None and bool(frame.lines and frame.lines[0].file)


def script_calls(row: Row) -> Calls:
    """The functions in Python, JavaScript or Java, if there are any.

    Those of Java and Node.js themselves are left out up to the first of the program.
    """
    scripts = [line for frame in row.frames if is_script(frame) for line in frame.lines]
    is_own = (not RUNTIMES.match(line.file) for line in scripts)
    begin = next((at for at, own in enumerate(is_own) if own), 0)
    return tuple(text_of(line) for line in scripts[begin:])


def site_of(row: Row) -> Calls:
    """The call site of a stack, and its callers.

    These are the functions in Python, JavaScript or Java if there are any; else those outside of
    the libraries of C and C++. A stack of nothing else is shown as it is.
    """
    if scripts := script_calls(row):
        return scripts
    pairs = [(frame, line) for frame in row.frames for line in frame.lines]
    own = [text_of(line) for frame, line in pairs if not is_between(frame, line)]
    return tuple(own or [text_of(line) for _, line in pairs] or ["unknown"])


def top_sites(rows: Sequence[Row], column: int) -> list[tuple[int, int, Calls]]:
    """Bytes and objects of each site, the largest first; shown with its largest stack's callers.

    @column: of the bytes; the objects are in the column before.
    """
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    largest: dict[str, tuple[int, Calls]] = {}
    for row in rows:
        stack = site_of(row)
        found, size = sums[stack[0]], row.values[column]
        found[0] += size
        found[1] += row.values[column - 1]
        if stack[0] not in largest or size > largest[stack[0]][0]:
            largest[stack[0]] = size, stack
    return sorted(
        ((size, objects, largest[site][1]) for site, (size, objects) in sums.items()),
        key=lambda item: (-item[0], item[2]),
    )
