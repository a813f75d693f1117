# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names of the functions of a process, by its mappings and the files that they are of."""

import bisect
import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kmem.common.processes import MAPS_MOST_BYTES
from kmem.common.text import printable
from kmem.live.images import Image, read_image
from kmem.live.perf_maps import PerfMap
from kmem.live.pprof import Frame, Line, Mapping
from kmem.live.stacks import FRAMES_MOST

CUT = f"[cut at {FRAMES_MOST} frames]"  # the root of a stack whose outer frames are not known


def read_mappings(process: int) -> list[Mapping]:
    """Mappings of files, by address; none if they may not be read."""
    found = []
    try:
        with Path(f"/proc/{process}/maps").open("rb") as maps:
            text = maps.read(MAPS_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    for line in text.split("\n"):
        words = line.split(maxsplit=5)
        if len(words) == 6:
            start, end = (int(word, 16) for word in words[0].split("-"))
            found.append(Mapping(start, end, int(words[2], 16), words[5]))
    return found


class Symbols:
    """Names the frames of a process, also when it has ended or become another program since.

    The mappings are those of the last look. The files are the files that the process sees, which
    may be in a container; their debug files may be outside of it too.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self.mappings: list[Mapping] = []
        self.starts: list[int] = []
        self.images: dict[str, Image] = {}
        self.perf_map = PerfMap(process)
        self.root: int | None = None
        with contextlib.suppress(OSError):
            self.root = os.open(f"/proc/{process}/root", os.O_PATH)

    def close(self) -> None:
        if self.root is not None:
            os.close(self.root)
            self.root = None

    def look(self, is_the_same: Callable[[], bool]) -> bool:
        """Read the mappings as they are now; False if the program has ended or changed."""
        mappings = read_mappings(self.process)
        if not is_the_same():
            return False
        if mappings:
            self.mappings = mappings
            self.starts = [mapping.start for mapping in mappings]
        return True

    def roots(self) -> list[Path]:
        """The process's own file system, then the command's."""
        return [] if self.root is None else [Path(f"/proc/self/fd/{self.root}"), Path("/")]

    def image(self, path: str) -> Image:
        if path not in self.images:
            self.images[path] = read_image(path, self.roots())
        return self.images[path]

    def frame(self, return_address: int) -> Frame:
        """The name of the call before a return address; 0 stands for frames that were cut off."""
        if return_address == 0:
            return Frame(0, (Line(CUT),), None)
        address = return_address - 1
        at = bisect.bisect(self.starts, address) - 1
        mapping = self.mappings[at] if at >= 0 else None
        lines: tuple[Line, ...] = ()
        if mapping is None or address >= mapping.end or not mapping.path.startswith("/"):
            mapping, shown = None, f"0x{address:x}"
        else:
            offset = address - mapping.start + mapping.offset
            image = self.image(mapping.path)
            lines = image.lines_at(offset)
            mapping = replace(mapping, build_id=image.build_id, has_lines=image.has_lines)
            # SVG allows no control characters.
            shown = printable(f"[{Path(mapping.path).name}]+0x{offset:x}")
        if not lines:
            # Code that the program made may also be in a file without a name, as of memfd_create.
            name = self.perf_map.name(self.roots()[:1], address)
            lines = (Line(name or shown),)
        return Frame(address, lines, mapping)
