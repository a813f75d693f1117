# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Functions, files and lines of an ELF file, also from the debug file that belongs to it.

Any user may have made the files to harm their readers, and running programs may have damaged
section headers, which the system does not check. An error of any kind in parsing means that there
are no names.
"""

import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import cxxfilt
from elftools.elf.elffile import ELFFile
from symbolic.debuginfo import Archive
from symbolic.symcache import SymCache

from kmem.common.text import printable
from kmem.live.lines import Line

IMAGE_MOST_BYTES = 1 << 30
NAME_MOST = 4096  # letters of a linked name that is made plain
DEBUG_FOLDER = PurePosixPath("/usr/lib/debug")


@lru_cache(maxsize=1 << 16)
def plain(name: str) -> str:
    """A name of C++ or older Rust as in the source; other names as they are."""
    if len(name) > NAME_MOST:
        return name[:NAME_MOST]
    try:
        return str(cxxfilt.demangle(name))
    except (cxxfilt.Error, UnicodeError):
        return name


@dataclass
class Image:
    """An ELF file: where its parts are loaded from, and what its addresses belong to."""

    # Offset in the file, size, address behind that of the first part.
    parts: list[tuple[int, int, int]] = field(default_factory=list)
    names: SymCache | None = None
    build_id: str = ""
    has_lines: bool = False

    def lines_at(self, offset: int) -> tuple[Line, ...]:
        """The functions at a place in the file: those inlined there first, then the outer one."""
        for start, size, address in self.parts:
            if start <= offset < start + size:
                return self.lines_of(offset - start + address)
        return ()

    def lines_of(self, address: int) -> tuple[Line, ...]:
        """Likewise at an address, counted from the first part's, as the file is loaded."""
        parts = self.parts  # of a debug file alone they are not known
        is_inside = any(start <= address < start + size for _, size, start in parts) or not parts
        if self.names is None or not is_inside:
            return ()
        try:
            found = self.names.lookup(address)
        except Exception:
            return ()
        return tuple(
            Line(printable(plain(one.symbol)), printable(one.full_path or ""), one.line)
            for one in found
            if one.symbol
        )


def read_file(path: Path) -> bytes:
    """The content of a regular file; nothing if it is none, too large, or cannot be read."""
    try:
        # O_NONBLOCK: a FIFO would wait for its other end.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > IMAGE_MOST_BYTES:
                return b""
            return file.read(IMAGE_MOST_BYTES)
    except (OSError, ValueError):
        return b""


def debug_link(elf: ELFFile) -> tuple[str, int] | None:
    """Name and checksum of the file that `objcopy --add-gnu-debuglink` wrote down."""
    section = elf.get_section_by_name(".gnu_debuglink")
    if section is None:
        return None
    name, _, rest = section.data().partition(b"\0")
    if len(rest) < 4 or b"/" in name or not name:
        return None
    return os.fsdecode(name), int.from_bytes(rest[-4:], "little" if elf.little_endian else "big")


def debug_places(path: str, build_id: str, link: str | None) -> Iterator[PurePosixPath]:
    """Where debuggers look for the debug file of a program."""
    if len(build_id) > 2:
        yield DEBUG_FOLDER / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    if link is not None:
        folder = PurePosixPath(path).parent
        yield folder / link
        yield folder / ".debug" / link
        yield DEBUG_FOLDER / folder.relative_to("/") / link


def debug_names(
    roots: Sequence[Path], path: str, build_id: str, link: tuple[str, int] | None
) -> SymCache | None:
    """The names in the debug file of a program, if one belongs to it."""
    for place in debug_places(path, build_id, link[0] if link else None):
        for root in roots:
            content = read_file(root / place.relative_to("/"))
            if not content:
                continue
            try:
                (found,) = Archive.from_bytes(content).iter_objects()
                if build_id:
                    belongs = found.code_id == build_id
                else:
                    belongs = link is not None and zlib.crc32(content) == link[1]
                if belongs and "debug" in found.features:
                    return found.make_symcache()
            except Exception:
                continue
    return None


def named_by_build(build_id: str) -> Image:
    """The image of a program that is not here itself, by the debug file of its build."""
    names = debug_names([Path("/")], "/", build_id, None)
    return Image(names=names, build_id=build_id, has_lines=names is not None)


def read_image(
    path: str, roots: Sequence[Path] = (Path("/"),), elsewhere: Path | None = None
) -> Image:
    """The image of a file in the first of the roots; empty if it is no ELF file.

    Debug files are looked for in all roots. The parser keeps pointers into the content, which
    therefore lives until it is done.

    @elsewhere: where the file is read if it is not at its path.
    """
    if not path.startswith("/") or not roots:
        return Image()
    content = read_file(elsewhere or roots[0] / path.lstrip("/"))
    try:
        elf = ELFFile(BytesIO(content))
        segments = list(elf.iter_segments("PT_LOAD"))
        # The parser counts addresses from the first segment's, which is not 0 in a program that is
        # linked for a fixed place.
        base = segments[0]["p_vaddr"]
        parts = [
            (segment["p_offset"], segment["p_filesz"], segment["p_vaddr"] - base)
            for segment in segments
        ]
        (found,) = Archive.from_bytes(content).iter_objects()
        build_id = found.code_id or ""
        names, has_lines = None, "debug" in found.features
        if not has_lines:
            names = debug_names(roots, path, build_id, debug_link(elf))
            has_lines = names is not None
        return Image(parts, names or found.make_symcache(), build_id, has_lines)
    except Exception:
        return Image()


def addresses_of(names: Sequence[str], path: str, roots: Sequence[Path]) -> dict[str, int]:
    """Where data that a file exports lies, counted from its first part's address."""
    if not path.startswith("/") or not roots:
        return {}
    try:
        elf = ELFFile(BytesIO(read_file(roots[0] / path.lstrip("/"))))
        table: Any = elf.get_section_by_name(".gnu.hash")
        base = next(elf.iter_segments("PT_LOAD"))["p_vaddr"]
        found = {name: table.get_symbol(name) for name in names}
        return {name: one["st_value"] - base for name, one in found.items() if one is not None}
    except Exception:
        return {}


def place_of(name: str, path: str, roots: Sequence[Path], elsewhere: Path | None = None) -> range:
    """Where a function lies in a file that exports it; empty if the file does not.

    @elsewhere: as of read_image
    """
    if not path.startswith("/") or not roots:
        return range(0)
    try:
        elf = ELFFile(BytesIO(read_file(elsewhere or roots[0] / path.lstrip("/"))))
        table: Any = elf.get_section_by_name(".gnu.hash")
        symbol = table.get_symbol(name)
        for segment in elf.iter_segments("PT_LOAD") if symbol else ():
            offset = symbol["st_value"] - segment["p_vaddr"]
            if symbol["st_shndx"] != "SHN_UNDEF" and 0 <= offset < segment["p_filesz"]:
                start = segment["p_offset"] + offset
                return range(start, start + symbol["st_size"])
    except Exception:
        pass
    return range(0)
