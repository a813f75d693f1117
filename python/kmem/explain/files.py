# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The files of `kmem explain`: text, a folder as /sys/kernel/slab, a tar of it, packed or not."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import tarfile
import zlib
from bz2 import BZ2Decompressor
from collections.abc import Iterator, Mapping, Sequence
from lzma import LZMADecompressor
from pathlib import Path

from kmem.common.errors import KmemError
from kmem.common.streams import Streams
from kmem.explain.items import Attribute
from kmem.explain.lines import lines_of
from kmem.explain.reader import CUT_OUT, NO_FORM, Collector, share_memory
from kmem.explain.table import Reading
from kmem.explain.without_caches import AROUND_REASONS
from kmem.traces.attribute_tree import PARSERS

MOST_BYTES = 256 << 20  # of a file
MOST_ATTRIBUTE_BYTES = 1 << 20
TEXTS = ("slabinfo", "meminfo", "slab")  # files of /proc that a tar may have beside attributes
EXPECTED = (
    "expected a slab table, as of /proc/slabinfo, slabtop, crash's kmem -s or /sys/kernel/slab"
)
DAMAGED = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


def read_text(collector: Collector, content: bytes) -> None:
    numbers, lines = lines_of(content)
    collector.take_lines(lines, numbers)


def take_attribute(collector: Collector, place: str, cache: str, name: str, content: bytes) -> None:
    """An attribute in a file of its own; faults name that file."""
    collector.file = place
    text = content[:MOST_ATTRIBUTE_BYTES].decode("utf-8", "replace").strip()
    collector.take_attribute(1, Attribute(cache, name, text))


def best_name(name: str, aliases: Sequence[str]) -> str:
    """Of a cache that names share, whose own begins with a colon: kmalloc's name, or the first."""
    kmalloc = [alias for alias in aliases if alias.startswith("kmalloc")]
    return next(iter([*kmalloc, *aliases]), name) if name.startswith(":") else name


def aliases_of(folder: Path) -> dict[str, list[str]]:
    """Links to caches, by the name of the cache."""
    found: dict[str, list[str]] = {}
    for place in sorted(folder.iterdir()):
        if place.is_symlink():
            found.setdefault(place.readlink().name, []).append(place.name)
    return found


def read_caches(collector: Collector, folder: Path) -> None:
    """A folder for each cache, with a file for each attribute."""
    aliases = aliases_of(folder)
    for place in sorted(folder.iterdir()):
        if place.is_symlink() or not place.is_dir():
            continue
        name = best_name(place.name, aliases.get(place.name, []))
        # Before 5.9 those that memory groups have of it, NAME(ID:GROUP).
        if (place / "cgroup").is_dir():
            read_caches(collector, place / "cgroup")
        for file in sorted(place.iterdir()):
            # A file that only root may read, or only write, is left out.
            if file.name in PARSERS and file.is_file():
                try:
                    content = file.read_bytes()
                except OSError as error:
                    collector.refused = collector.refused or f"{file}: {error.strerror}"
                    continue
                take_attribute(collector, str(file), name, file.name, content)


def read_folder(collector: Collector, folder: Path) -> None:
    """/sys/kernel/slab, or a folder that has it and files of /proc, as of sosreport."""
    inner = folder / "sys" / "kernel" / "slab"
    read_caches(collector, inner if inner.is_dir() else folder)
    for name in ("slabinfo", "meminfo", "spl/kmem/slab"):
        file = folder / "proc" / name
        if file.is_file():
            collector.file = str(file)
            read_text(collector, load(file))
    collector.file = str(folder)


def read_tar(collector: Collector, file: Path, content: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = archive.getmembers()
        aliases: dict[str, list[str]] = {}
        for member in members:
            if member.issym():
                aliases.setdefault(Path(member.linkname).name, []).append(Path(member.name).name)
        for member in members:
            path = Path(member.name)
            opened = archive.extractfile(member) if member.isreg() else None
            if opened is None:
                continue
            place = f"{file}:{member.name}"
            if path.name in PARSERS and len(path.parts) > 1:
                name = best_name(path.parts[-2], aliases.get(path.parts[-2], []))
                take_attribute(collector, place, name, path.name, opened.read())
            elif path.name in TEXTS:
                collector.file = place
                read_text(collector, opened.read())
    collector.file = str(file)


def unpacked(content: bytes) -> bytes:
    """What gzip, bzip2 or xz packed; other bytes as they are."""
    most, stream = MOST_BYTES + 1, io.BytesIO(content)
    result = content
    if content.startswith(b"\x1f\x8b"):
        with gzip.GzipFile(fileobj=stream) as gzip_file:
            result = gzip_file.read(most)
    elif content.startswith(b"BZh"):
        result = io.BufferedReader(Streams(stream, BZ2Decompressor)).read(most)
    elif content.startswith(b"\xfd7zXZ\x00"):
        result = io.BufferedReader(Streams(stream, LZMADecompressor)).read(most)
    if len(result) == most:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB in it")
    return result


def read_content(collector: Collector, file: Path, content: bytes) -> None:
    try:
        content = unpacked(content)
        if content[257:262] == b"ustar":
            read_tar(collector, file, content)
        else:
            read_text(collector, content)
    except EOFError:
        collector.unread(0, "is cut off; expected a whole file")
    except DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        collector.unread(0, f"a packed file that cannot be read to its end: {reason[:200]}")


def load(file: Path) -> bytes:
    try:
        if file == Path("-"):
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        # It may be the name of a program.
        wanted = "expected a file, or a process id (kmem ps lists them)"
        raise KmemError(f"explain: {file}: {error.strerror}; {wanted}") from None
    except OSError as error:
        raise KmemError(f"explain: {file}: {error.strerror}") from None


def read_file(
    collector: Collector, file: Path, contents: Mapping[Path, bytes]
) -> Iterator[dict[str, int]]:
    """Yields /proc/meminfo if the file has nothing else."""
    before = len(collector.reading.tables)
    collector.begin_file(str(file))
    if file.is_dir():
        try:
            read_folder(collector, file)
        except OSError as error:
            raise KmemError(f"explain: {file}: {error.strerror}") from None
    else:
        content = contents[file] if file in contents else load(file)
        if len(content) > MOST_BYTES:
            raise KmemError(f"explain: {file}: expected at most {MOST_BYTES >> 20} MiB")
        read_content(collector, file, content)
    collector.end_file()
    if len(collector.reading.tables) > before:
        return
    if not collector.memories:
        raise KmemError(f"explain: {file}: {nothing_found(collector)}")
    yield from collector.memories


def nothing_found(collector: Collector) -> str:
    """The first line that nobody could read, if any of those whose reason says what it is."""
    faults = [fault for fault in collector.reading.unread if fault.file == collector.file]
    dull = (NO_FORM, CUT_OUT)
    faults.sort(key=lambda fault: (fault.reason in dull, fault.reason in AROUND_REASONS))
    is_told = bool(faults) and faults[0].reason not in (*dull, *AROUND_REASONS)
    if "unreclaimable_pages" in collector.totals and not is_told:
        return (
            "only the sums of an out-of-memory report; expected its caches, below"
            ' "Unreclaimable slab info:", which kernels print since 4.15'
        )
    if not is_told and (collector.totals or (collector.table and collector.table.printed)):
        return f"only the sums of a report; expected the rows of its caches; {EXPECTED}"
    if not faults and collector.comments:
        return f"only comments in it, lines that begin with #; {EXPECTED}"
    if not faults and collector.refused:
        # /sys/kernel/slab is root's.
        return f"no attribute of a cache could be read, the first is {collector.refused}"
    if not faults:
        what = "no folder of a cache" if Path(collector.file).is_dir() else "nothing"
        return f"{what} in it; {EXPECTED}"
    reason = faults[0].reason
    # Such a reason says what to read in its place.
    is_whole = "; expected " in reason or "; kmem import " in reason
    # Of a packed file no line was seen.
    place = f"line {faults[0].line}: " if faults[0].line else ""
    return f"{place}{reason}{'' if is_whole else f'; {EXPECTED}'}"


def read_files(files: Sequence[Path], contents: Mapping[Path, bytes] | None = None) -> Reading:
    """The tables of files; `contents` has those that were read already."""
    reading = Reading()
    collector = Collector(reading)
    memories = [memory for file in files for memory in read_file(collector, file, contents or {})]
    if not reading.tables:
        raise KmemError(f"explain: {files[0]}: /proc/meminfo alone; {EXPECTED}")
    share_memory(reading, iter(memories))
    return reading
