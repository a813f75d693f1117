# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kmem symbolize: the places in reports of libkmem as functions, files and lines.

The library prints a frame as PATH+0xOFFSET, with (BuildId: ID) behind it where a report names the
file first (src/machine/code_map.h). Logs may come from other machines and from anybody, so a line
that does not lead to such a file stays as it is.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kmem.common.errors import KmemError, SayOnce
from kmem.live.images import Image, named_by_build, read_image
from kmem.live.lines import Line

LINE_MOST = 16 << 10  # bytes of a line that is looked at
FILES_MOST = 512  # of a log
# A frame ends its line, but in the two lines that open a stack of a debug cache.
OFFSET = re.compile(
    r"\+0x(?P<offset>[0-9a-f]{1,16})(?: \(BuildId: (?P<build>[0-9a-f]{2,64})\))?"
    r"(?P<tail>| age=[0-9]+ cpu=[0-9]+ pid=[0-9]+)$"
)
PATH = re.compile(r"(?:^| )(?=/)")
STEP = re.compile(r"(?:Allocated|Freed) in $")


class Reports:
    """Names places in a log, in the order of its lines."""

    def __init__(self) -> None:
        self.builds: dict[str, str] = {}  # the build that the log named last, by path
        self.images: dict[tuple[str, str], Image] = {}
        self.say_once = SayOnce(FILES_MOST)

    def remark(self, text: str) -> None:
        self.say_once(f"symbolize: {text}")

    def image(self, path: str) -> Image:
        """The file of a path if it is of the log's build; else that build's debug file, if any."""
        build = self.builds.get(path, "")
        key = (path, build)
        if key in self.images:
            return self.images[key]
        if len(self.images) == FILES_MOST:
            self.remark(f"expected at most {FILES_MOST} programs and libraries; others stay")
            return Image()
        # The kernel's mark of a file that was replaced meanwhile, as by an update.
        image = read_image(path.removesuffix(" (deleted)"))
        if build and image.build_id != build:
            found = image.build_id
            image = named_by_build(build)
            if image.names is None and not found:
                self.remark(f"{path}: no program or library here that can be read")
            elif image.names is None:
                self.remark(f"{path}: build {found}, expected {build} as in the report")
        elif image.names is None:
            self.remark(f"{path}: no program or library here that can be read")
        self.images[key] = image
        return image

    def functions(self, path: str, offset: int) -> tuple[Line, ...]:
        """The functions at a return address, the innermost first."""
        image = self.image(path)
        return image.lines_of(offset - 1) if offset else ()

    def named(self, line: str) -> list[str]:
        """The lines in place of one without its end."""
        place = OFFSET.search(line) if "+0x" in line else None
        start = PATH.search(line, 0, place.start()) if place else None
        if place is None or start is None:
            return [line]
        head, path = line[: start.end()], line[start.end() : place.start()]
        if place["build"] and (path in self.builds or len(self.builds) < FILES_MOST):
            self.builds[path] = place["build"]
        lines = self.functions(path, int(place["offset"], 16))
        if STEP.search(head):
            lines = lines[:1]  # its stack follows
        elif place["tail"]:
            return [line]
        return [f"{head}{shown(one)}{place['tail']}" for one in lines] or [line]


def shown(line: Line) -> str:
    if not line.file:
        return line.function
    return f"{line.function} ({line.file}:{line.number})"


def pieces(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file, those that are too long in pieces; whether each is a whole line."""
    is_start = True
    while piece := file.readline(LINE_MOST):
        is_end = piece.endswith(b"\n")
        yield piece, is_start and (is_end or len(piece) < LINE_MOST)
        is_start = is_end


def symbolize(file: BinaryIO, to: BinaryIO) -> None:
    """Copy a log with functions for places. Bytes of any kind go through, each line at once."""
    reports = Reports()
    for piece, is_whole in pieces(file):
        if not is_whole or b"+0x" not in piece:
            to.write(piece)
        else:
            line = piece.removesuffix(b"\n")
            for one in reports.named(line.decode("utf-8", "surrogateescape")):
                to.write(one.encode("utf-8", "surrogateescape") + piece[len(line) :])
        to.flush()


def symbolize_file(path: Path | None) -> None:
    """The log in a file, or on standard input."""
    if path is None or str(path) == "-":
        symbolize(sys.stdin.buffer, sys.stdout.buffer)
        return
    try:
        with path.open("rb") as file:
            symbolize(file, sys.stdout.buffer)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise KmemError(f"symbolize: {path}: {error.strerror}, expected a file to read") from None
