# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names of machine code that a program made while it ran, from its /tmp/perf-PID.map.

Compilers of Java, JavaScript and others write a line for each function, "START SIZE NAME" with
hexadecimal numbers, when they are asked to. The address of a function that was thrown away may be
used by a later line.
"""

import bisect
import contextlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from kmem.common.text import printable
from kmem.live.lines import Line
from kmem.live.registry.owner import number_inside, user_of

MAP_MOST_BYTES = 256 << 20
NAME_MOST = 4096  # letters


def parse(text: str) -> dict[int, tuple[int, str]]:
    """Size and name by address; other lines are left out."""
    found = {}
    for line in text.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3:
            with contextlib.suppress(ValueError):
                found[int(words[0], 16)] = (int(words[1], 16), printable(words[2])[:NAME_MOST])
    return found


# As Node.js has it, "JS:*order /srv/shop.js:4:14": a kind, how it was compiled, place, column.
JAVASCRIPT = re.compile(
    r"(?:JS|LazyCompile|Function|Eval|Script):[~^+*]?(\S*) (.+?):(\d+)(?::\d+)?"
)
# As OpenJDK has it, "void shop.Cart$Item.put(int, java.lang.String)"; a class that was made at run
# time has a number, as in "shop.Cart$$Lambda$14/0x0000000800c03000.run()".
JAVA = re.compile(r"(?:[\w.$\[\]]+ )?([\w.$]+?)(?:[/+]0x[0-9a-f]+)?\.([\w$]+|<\w+>)\(.*\)")
CPYTHON = re.compile(r"py::(.+?):(/.*|<.*>)")  # with -X perf


def made_line(name: str) -> Line:
    """A name of a map, with file and line if it tells them.

    A function in JavaScript has many names, as it is compiled anew; it is one function here.
    """
    if found := JAVASCRIPT.fullmatch(name):
        return Line(found[1] or "(anonymous)", found[2], int(found[3]))
    if found := CPYTHON.fullmatch(name):
        return Line(found[1], found[2])
    if found := JAVA.fullmatch(name):
        # The source's name is not known, but the class has a file of this name.
        return Line(f"{found[1]}.{found[2]}", found[1].replace(".", "/") + ".class")
    return Line(name)


class PerfMap:
    """The file of a process; it is read when a name is wanted, which may be after its end."""

    def __init__(self, process: int) -> None:
        self.user, self.number = user_of(process), number_inside(process)
        self.functions: dict[int, tuple[int, str]] | None = None
        self.starts: list[int] = []

    def read(self, roots: Sequence[Path]) -> dict[int, tuple[int, str]]:
        """The functions of the file in /tmp, where any user may have put it for another user."""
        if not roots:
            return {}
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(roots[0] / "tmp" / f"perf-{self.number}.map", flags)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_uid not in (self.user, 0):
                    return {}
                return parse(file.read(MAP_MOST_BYTES).decode("utf-8", "replace"))
        except OSError:
            return {}

    def name(self, roots: Sequence[Path], address: int) -> str | None:
        """The function at an address; the file is in the first of the roots."""
        if self.functions is None:
            self.functions = self.read(roots)
            self.starts = sorted(self.functions)
        at = bisect.bisect(self.starts, address) - 1
        if at < 0:
            return None
        size, name = self.functions[self.starts[at]]
        return name if address < self.starts[at] + size else None
