# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads and writes pprof's format: profile.proto, compressed by gzip.

Fields are by the names and numbers of https://github.com/google/pprof/blob/main/proto/profile.proto.
"""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kmem.common.errors import KmemError
from kmem.common.text import printable
from kmem.live.lines import Line

FILE_MOST_BYTES = 1 << 28  # of a profile that is read, also before it was compressed

# The fields that are used here: a name, its number, and the type; "*" for many of them.
MESSAGES = {
    "Profile": "sample_type 1 *ValueType, sample 2 *Sample, mapping 3 *Mapping,"
    " location 4 *Location, function 5 *Function, string_table 6 *string, time_nanos 9 int64,"
    " duration_nanos 10 int64, period_type 11 ValueType, period 12 int64, comment 13 *int64,"
    " default_sample_type 14 int64",
    "ValueType": "type 1 int64, unit 2 int64",
    "Sample": "location_id 1 *uint64, value 2 *int64",
    "Mapping": "id 1 uint64, memory_start 2 uint64, memory_limit 3 uint64, file_offset 4 uint64,"
    " filename 5 int64, build_id 6 int64, has_functions 7 bool, has_filenames 8 bool,"
    " has_line_numbers 9 bool, has_inline_frames 10 bool",
    "Location": "id 1 uint64, mapping_id 2 uint64, address 3 uint64, line 4 *Line",
    "Line": "function_id 1 uint64, line 2 int64",
    "Function": "id 1 uint64, name 2 int64, system_name 3 int64, filename 4 int64",
}


def profile_class() -> Any:
    """The message's class, which the protobuf library makes of the table above."""
    kinds = descriptor_pb2.FieldDescriptorProto
    package = "kmem.pprof"
    file = descriptor_pb2.FileDescriptorProto(
        name="kmem/profile.proto", package=package, syntax="proto3"
    )
    for message, fields in MESSAGES.items():
        made = file.message_type.add(name=message)
        for words in map(str.split, fields.split(",")):
            name, number, kind = words
            many, kind = kind.startswith("*"), kind.lstrip("*")
            field = made.field.add(name=name, number=int(number))
            field.label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
            if kind in MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Profile"))


PROFILE = profile_class()


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


@dataclass(frozen=True)
class Saved:
    """A profile from a file."""

    rows: list[Row]
    types: list[tuple[str, str]]
    period: int
    time_ns: int
    duration_ns: int
    comment: str
    program: str = ""  # the path of the first mapping, which is the program's


class Strings:
    """The table of texts; number 0 is the empty text."""

    def __init__(self) -> None:
        self.numbers = {"": 0}

    def __getitem__(self, text: str) -> int:
        text = text.encode("utf-8", "replace").decode()
        return self.numbers.setdefault(text, len(self.numbers))


def encode(
    rows: Sequence[Row],
    types: Sequence[tuple[str, str]],
    *,
    default_type: str,
    period: int,
    time_ns: int,
    duration_ns: int,
    comment: str,
    program: str = "",
) -> bytes:
    """A profile's message; each of its values has a type and a unit.

    @program: the path of the program among the mappings. pprof takes the first mapping for it.
    """
    strings = Strings()
    locations: dict[Frame, int] = {}
    functions: dict[tuple[str, str], int] = {}
    out = PROFILE(time_nanos=time_ns, duration_nanos=duration_ns, period=period)
    for name, unit in types:
        out.sample_type.add(type=strings[name], unit=strings[unit])
    for row in rows:
        numbers = [locations.setdefault(frame, len(locations) + 1) for frame in row.frames]
        out.sample.add(location_id=numbers, value=row.values)
    found = dict.fromkeys(frame.mapping for frame in locations if frame.mapping is not None)
    ordered = sorted(found, key=lambda mapping: mapping.path != program)
    mappings = {mapping: number for number, mapping in enumerate(ordered, 1)}
    for frame, at in locations.items():
        place = out.location.add(id=at, address=frame.address)
        if frame.mapping is not None:
            place.mapping_id = mappings[frame.mapping]
        for line in frame.lines:
            function = functions.setdefault((line.function, line.file), len(functions) + 1)
            place.line.add(function_id=function, line=line.number)
    for mapping, at in mappings.items():
        out.mapping.add(
            id=at,
            memory_start=mapping.start,
            memory_limit=mapping.end,
            file_offset=mapping.offset,
            filename=strings[mapping.path],
            build_id=strings[mapping.build_id],
            has_functions=True,
            has_filenames=mapping.has_lines,
            has_line_numbers=mapping.has_lines,
            has_inline_frames=mapping.has_lines,
        )
    for (name, file), at in functions.items():
        number = strings[name]
        out.function.add(id=at, name=number, system_name=number, filename=strings[file])
    out.period_type.type, out.period_type.unit = strings["space"], strings["bytes"]
    out.comment.append(strings[comment])
    out.default_sample_type = strings[default_type]
    out.string_table.extend(strings.numbers)
    return bytes(out.SerializeToString(deterministic=True))


def compressed(message: bytes) -> bytes:
    return gzip.compress(message, mtime=0)


def unpacked(path: Path) -> bytes:
    """The message in a file; any user may have made it to fill the reader's memory."""
    try:
        # O_NONBLOCK: a FIFO would wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise KmemError(f"{path}: expected a file")
            content = file.read(FILE_MOST_BYTES + 1)
    except OSError as error:
        raise KmemError(f"{path}: {error.strerror}") from None
    try:
        # All of its streams, as gzip itself unpacks them: a later one is a part of the profile, or
        # another profile.
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as streams:
            message = streams.read(FILE_MOST_BYTES + 1)
    except EOFError:
        raise KmemError(f"{path}: is cut off; expected a whole file") from None
    except (OSError, zlib.error):
        raise KmemError(f"{path}: expected a profile, compressed by gzip") from None
    if len(message) > FILE_MOST_BYTES or len(content) > FILE_MOST_BYTES:
        raise KmemError(f"{path}: expected at most {FILE_MOST_BYTES >> 20} MiB")
    if not content:
        raise KmemError(f"{path}: is cut off; expected a whole file")
    return message


def read(path: Path) -> Saved:
    """The profile of a file, also of another program; its texts are printable."""
    return parse(unpacked(path), path)


def parse(message: bytes, path: Path) -> Saved:
    """The profile of a message; `path` is for errors."""
    profile = PROFILE()
    try:
        profile.ParseFromString(message)
        texts = [printable(text) for text in profile.string_table]
        mappings = {
            one.id: Mapping(
                one.memory_start,
                one.memory_limit,
                one.file_offset,
                texts[one.filename],
                texts[one.build_id],
                one.has_line_numbers,
            )
            for one in profile.mapping
        }
        functions = {one.id: Line(texts[one.name], texts[one.filename]) for one in profile.function}
        frames = {
            one.id: Frame(
                one.address,
                tuple(replace(functions[each.function_id], number=each.line) for each in one.line)
                or (Line(f"0x{one.address:x}"),),
                mappings[one.mapping_id] if one.mapping_id else None,
            )
            for one in profile.location
        }
        types = [(texts[one.type], texts[one.unit]) for one in profile.sample_type]
        rows = []
        for one in profile.sample:
            if len(one.value) != len(types):
                raise IndexError
            rows.append(Row(tuple(frames[at] for at in one.location_id), tuple(one.value)))
        comment = "; ".join(texts[at] for at in profile.comment)
        program = texts[profile.mapping[0].filename] if profile.mapping else ""
    except (DecodeError, IndexError, KeyError):
        # Each profile has the empty text once, and messages behind each other are one message.
        if sum(not text for text in profile.string_table) > 1:
            raise KmemError(f"{path}: has several profiles in it; expected one") from None
        raise KmemError(f"{path}: expected a profile in pprof's format") from None
    return Saved(
        rows, types, profile.period, profile.time_nanos, profile.duration_nanos, comment, program
    )
