# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Names of the functions of a process, by its mappings and the symbol tables of its files."""

import bisect
import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kmem.common.processes import MAPS_MOST_BYTES
from kmem.common.text import printable
from kmem.live.pprof import Frame, Mapping
from kmem.live.stacks import FRAMES_MOST

CUT = f"[cut at {FRAMES_MOST} frames]"  # the root of a stack whose outer frames are not known
IMAGE_MOST_BYTES = 1 << 30

Functions = list[tuple[int, int, str]]  # address in the file's own numbers, size, name


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


@dataclass
class Image:
    """An ELF file: where its parts are loaded from, and its functions."""

    parts: list[tuple[int, int, int]] = field(default_factory=list)  # file offset, size, address
    functions: Functions = field(default_factory=list)

    def name_at(self, offset: int) -> str | None:
        """The function at a place in the file."""
        for start, size, address in self.parts:
            if start <= offset < start + size:
                return self.name_of(offset - start + address)
        return None

    def name_of(self, address: int) -> str | None:
        at = bisect.bisect(self.functions, (address, 1 << 64, ""))
        # If several functions begin at or before the address, take the function that covers it.
        for start, size, name in reversed(self.functions[max(at - 8, 0) : at]):
            if start <= address < start + max(size, 1):
                return name
        return None


def read_image(path: Path) -> Image:
    """The image of a file; empty if it is no ELF file, or cannot be read.

    The system does not check section headers, so running programs may have damaged headers or wrong
    offsets. A user may even have made the file to harm its readers. An error of any kind in parsing
    means that there are no names.
    """
    try:
        # O_NONBLOCK: a FIFO would wait for its other end.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > IMAGE_MOST_BYTES:
                return Image()
            elf = ELFFile(file)
            parts = [
                (segment["p_offset"], segment["p_filesz"], segment["p_vaddr"])
                for segment in elf.iter_segments("PT_LOAD")
            ]
            functions = {
                (symbol["st_value"], symbol["st_size"], symbol.name)
                for section in elf.iter_sections()
                if isinstance(section, SymbolTableSection)
                for symbol in section.iter_symbols()
                if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
            }
            return Image(parts, sorted(functions))
    except Exception:
        return Image()


class Symbols:
    """Names the frames of a process, also when it has ended or become another program since.

    The mappings are those of the last look. The files are the files that the process sees, which
    may be in a container.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self.mappings: list[Mapping] = []
        self.starts: list[int] = []
        self.images: dict[str, Image] = {}
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

    def image(self, path: str) -> Image:
        if path not in self.images:
            self.images[path] = (
                Image()
                if self.root is None
                else read_image(Path(f"/proc/self/fd/{self.root}{path}"))
            )
        return self.images[path]

    def frame(self, return_address: int) -> Frame:
        """The name of the call before a return address; 0 stands for frames that were cut off."""
        if return_address == 0:
            return Frame(0, CUT, None)
        address = return_address - 1
        at = bisect.bisect(self.starts, address) - 1
        mapping = self.mappings[at] if at >= 0 else None
        if mapping is None or address >= mapping.end or not mapping.path.startswith("/"):
            return Frame(address, f"0x{address:x}", None)
        offset = address - mapping.start + mapping.offset
        name = self.image(mapping.path).name_at(offset)
        # SVG allows no control characters.
        shown = printable(name or f"[{Path(mapping.path).name}]+0x{offset:x}")
        return Frame(address, shown, mapping)
