# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Profiles as OpenTelemetry's protocol has them (OTLP, profiles.proto of v1development).

A message has one dictionary of texts, functions, stacks and attributes, which its profiles share.
Each of the four figures is a profile of its own, because a profile there has a single type. The
first entry of each table is empty: number 0 means that there is none.
"""

import secrets
import socket
from collections.abc import Hashable, MutableSequence
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
    ExportProfilesServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.profiles.v1development import profiles_pb2 as parts
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kmem.common.text import printable
from kmem.live.lines import Line
from kmem.live.pprof import Frame, Mapping, Row
from kmem.live.profile_files import TYPES, Profile
from kmem.live.watch import Figures

SCOPE = "libkmem"
BUILD_ID = "process.executable.build_id.gnu"  # of a mapping
KIND = "profile.frame.type"  # of a location
REASON_MOST = 200  # letters of a server's own words


def unbroken(text: str) -> str:
    """The text without what UTF-8 cannot hold, as of a file's name in another encoding."""
    return text.encode("utf-8", "replace").decode()


def text_value(text: str) -> AnyValue:
    return AnyValue(string_value=unbroken(text))


def resource_of(figures: Figures) -> Resource:
    """A process, by the names that push_metrics.py has, so that a server sees a single one."""
    texts = {
        "host.name": socket.gethostname(),
        "service.name": figures.command,
        "process.executable.name": figures.command,
    }
    attributes = [KeyValue(key=key, value=text_value(text)) for key, text in texts.items()]
    attributes.append(KeyValue(key="process.pid", value=AnyValue(int_value=figures.process)))
    return Resource(attributes=attributes)


JVM_FILES = (".java", ".class", ".kt", ".scala", ".groovy", ".clj")


def kind_of(frame: Frame) -> str:
    """What runs the code of a frame, by the conventions' names; empty if that is not known.

    Functions in Python have no address. Those of Java have the file of their source or class
    (java_methods.py, perf_maps.py).
    """
    if frame.mapping is not None:
        return "native"
    line = frame.lines[0]
    if not line.file:
        return ""
    if line.file.endswith(JVM_FILES):
        return "jvm"
    return "v8js" if frame.address and line.number else "cpython"


class Table:
    """A table of the dictionary, and the number of each thing in it."""

    def __init__(self, entries: MutableSequence[Any], empty: object) -> None:
        self.entries = entries
        self.numbers: dict[Hashable, int] = {}
        entries.append(empty)

    def number(self, key: Hashable, entry: object) -> int:
        """Of the thing with this key, which is appended if it is new."""
        if key not in self.numbers:
            self.numbers[key] = len(self.entries)
            self.entries.append(entry)
        return self.numbers[key]


class Dictionary:
    """Fills the tables of a message."""

    def __init__(self, dictionary: parts.ProfilesDictionary) -> None:
        self.strings = Table(dictionary.string_table, "")
        self.mappings = Table(dictionary.mapping_table, parts.Mapping())
        self.locations = Table(dictionary.location_table, parts.Location())
        self.functions = Table(dictionary.function_table, parts.Function())
        self.attributes = Table(dictionary.attribute_table, parts.KeyValueAndUnit())
        self.stacks = Table(dictionary.stack_table, parts.Stack())
        Table(dictionary.link_table, parts.Link())
        self.known: dict[Frame, int] = {}

    def text(self, text: str) -> int:
        text = unbroken(text)
        return self.strings.number(text, text) if text else 0

    def value_type(self, name: str, unit: str) -> parts.ValueType:
        return parts.ValueType(type_strindex=self.text(name), unit_strindex=self.text(unit))

    def attribute(self, key: str, value: str) -> list[int]:
        """A list for the field of its name, without an entry for an empty value."""
        if not value:
            return []
        entry = parts.KeyValueAndUnit(key_strindex=self.text(key), value=text_value(value))
        return [self.attributes.number((key, value), entry)]

    def mapping(self, mapping: Mapping | None) -> int:
        if mapping is None:
            return 0
        entry = parts.Mapping(
            memory_start=mapping.start,
            memory_limit=mapping.end,
            file_offset=mapping.offset,
            filename_strindex=self.text(mapping.path),
            attribute_indices=self.attribute(BUILD_ID, mapping.build_id),
        )
        return self.mappings.number(mapping, entry)

    def line(self, line: Line) -> parts.Line:
        name, file = self.text(line.function), self.text(line.file)
        function = self.functions.number(
            (name, file), parts.Function(name_strindex=name, filename_strindex=file)
        )
        return parts.Line(function_index=function, line=line.number)

    def location(self, frame: Frame) -> int:
        # Looked up first: an entry takes long to make, and most frames come again and again.
        if frame not in self.known:
            entry = parts.Location(
                mapping_index=self.mapping(frame.mapping),
                address=frame.address,
                lines=[self.line(line) for line in frame.lines],
                attribute_indices=self.attribute(KIND, kind_of(frame)),
            )
            self.known[frame] = self.locations.number(frame, entry)
        return self.known[frame]

    def stack(self, row: Row) -> int:
        numbers = [self.location(frame) for frame in row.frames]
        if not numbers:
            return 0
        return self.stacks.number(tuple(numbers), parts.Stack(location_indices=numbers))


def request_of(figures: Figures, made: Profile) -> ExportProfilesServiceRequest:
    """The message of a process's profile; stacks without a figure are not in its profile."""
    request = ExportProfilesServiceRequest()
    dictionary = Dictionary(request.dictionary)
    of_process = request.resource_profiles.add(resource=resource_of(figures))
    scope = InstrumentationScope(name=SCOPE, version=figures.release)
    of_scope = of_process.scope_profiles.add(scope=scope)
    stacks = [dictionary.stack(row) for row in made.rows]
    for column, (name, unit) in enumerate(TYPES):
        profile = of_scope.profiles.add(
            sample_type=dictionary.value_type(name, unit),
            time_unix_nano=made.time_ns,
            duration_nano=made.duration_ns,
            period_type=dictionary.value_type("space", "bytes"),
            period=made.interval,
            profile_id=secrets.token_bytes(16),
        )
        # A sample is known by its stack, so that a stack has a single sample.
        values: dict[int, int] = {}
        for stack, row in zip(stacks, made.rows, strict=True):
            if row.values[column]:
                values[stack] = values.get(stack, 0) + row.values[column]
        for stack, value in values.items():
            profile.samples.add(stack_index=stack, values=[value])
    return request


def refusal_of(answer: bytes) -> str:
    """Why a server that answered with success did not take a profile; empty if it took it all."""
    try:
        partial = ExportProfilesServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return ""  # such a server says in its own words that it took it
    if not partial.rejected_profiles:
        return ""
    words = printable(partial.error_message)[:REASON_MOST]
    return words or f"rejected {partial.rejected_profiles} profiles"
