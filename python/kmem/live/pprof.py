# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes pprof's format: profile.proto, compressed by gzip.

Only whole numbers, texts and nested messages occur in it, so the encoding is a few lines; fields
are by the numbers of https://github.com/google/pprof/blob/main/proto/profile.proto.
"""

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mapping:
    """A file in the address space of a process."""

    start: int
    end: int
    offset: int
    path: str
    build_id: str = ""
    has_lines: bool = False  # files, lines and inlined functions are known


@dataclass(frozen=True)
class Line:
    """A function, and the place in its source; no file and line 0 if that is not known."""

    function: str
    file: str = ""
    number: int = 0


@dataclass(frozen=True)
class Frame:
    """An address in a call, and what is there; the mapping is None if it is not known.

    The last line is the function itself, and those before it are functions inlined at the address,
    each called by the next.
    """

    address: int
    lines: tuple[Line, ...]
    mapping: Mapping | None


@dataclass(frozen=True)
class Row:
    """A call stack, innermost frame first, and a value for each type."""

    frames: tuple[Frame, ...]
    values: tuple[int, ...]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def block(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def packed(field: int, values: Iterable[int]) -> bytes:
    return block(field, b"".join(map(varint, values)))


class Strings:
    """The table of texts; number 0 is the empty text."""

    def __init__(self) -> None:
        self.numbers = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def encode(self) -> bytes:
        return b"".join(block(6, text.encode("utf-8", "replace")) for text in self.numbers)


def encode(
    rows: Sequence[Row],
    types: Sequence[tuple[str, str]],
    *,
    default_type: str,
    period: int,
    time_ns: int,
    duration_ns: int,
    comment: str,
) -> bytes:
    """A profile's message; each of its values has a type and a unit."""
    strings = Strings()
    locations: dict[Frame, int] = {}
    functions: dict[tuple[str, str], int] = {}
    mappings: dict[Mapping, int] = {}
    out = bytearray()

    def value_type(field: int, name: str, unit: str) -> bytes:
        return block(field, number(1, strings[name]) + number(2, strings[unit]))

    for name, unit in types:
        out += value_type(1, name, unit)
    for row in rows:
        numbers = [locations.setdefault(frame, len(locations) + 1) for frame in row.frames]
        out += block(2, packed(1, numbers) + packed(2, row.values))
    for frame in locations:
        for line in frame.lines:
            functions.setdefault((line.function, line.file), len(functions) + 1)
        if frame.mapping is not None:
            mappings.setdefault(frame.mapping, len(mappings) + 1)
    for mapping, at in mappings.items():
        text = number(1, at) + number(2, mapping.start) + number(3, mapping.end)
        text += number(4, mapping.offset) + number(5, strings[mapping.path])
        text += number(6, strings[mapping.build_id]) + number(7, 1)
        text += b"".join(number(field, mapping.has_lines) for field in (8, 9, 10))
        out += block(3, text)
    for frame, at in locations.items():
        lines = (
            number(1, functions[line.function, line.file]) + number(2, line.number)
            for line in frame.lines
        )
        mapping_number = mappings[frame.mapping] if frame.mapping else 0
        text = number(1, at) + number(2, mapping_number) + number(3, frame.address)
        out += block(4, text + b"".join(block(4, line) for line in lines))
    for (function, file), at in functions.items():
        text = number(1, at) + number(2, strings[function]) + number(3, strings[function])
        out += block(5, text + number(4, strings[file]))
    period_type = value_type(11, "space", "bytes")
    note, default = strings[comment], strings[default_type]
    out += strings.encode()
    out += number(9, time_ns) + number(10, duration_ns) + period_type + number(12, period)
    return bytes(out + number(13, note) + number(14, default))


def write(path: Path, message: bytes) -> None:
    path.write_bytes(gzip.compress(message, mtime=0))
