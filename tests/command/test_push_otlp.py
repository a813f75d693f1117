# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`kmem push --profiles` sends profiles by OpenTelemetry's protocol; a stand-in for a server reads
them with the classes that OpenTelemetry publishes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesPartialSuccess,
    ExportProfilesServiceRequest,
    ExportProfilesServiceResponse,
)
from test_live import Program
from test_push import LEAK, Sent, Standing, attributes_of, push, standing

from kmem.live.lines import Line
from kmem.live.otlp_profiles import kind_of, request_of
from kmem.live.pprof import Frame, Mapping, Row
from kmem.live.profile_files import TYPES, Profile
from kmem.live.watch import Figures, read_processes

__all__ = ["standing"]

TABLES = ("mapping", "location", "function", "link", "string", "attribute", "stack")
C_FILE = Mapping(0x1000, 0x9000, 0x200, "/srv/shop", build_id="c0ffee", has_lines=True)


@pytest.fixture(scope="module")
def leaking() -> Iterator[Program]:
    with Program(before=LEAK) as running:
        yield running


def message_of(sent: Sent) -> Any:
    assert sent.path == "/v1development/profiles"
    request = ExportProfilesServiceRequest.FromString(sent.parts["message"])
    check_dictionary(request)
    return request


def check_dictionary(request: Any) -> None:
    """What the protocol demands of the tables: an empty entry first, nothing twice or unused."""
    dictionary = request.dictionary
    used: dict[str, set[int]] = {name: {0} for name in TABLES}
    for name in TABLES:
        table = getattr(dictionary, f"{name}_table")
        first = table[0] if name == "string" else table[0].SerializeToString()
        assert not first, name
        entries = [one if name == "string" else one.SerializeToString() for one in table]
        assert len(entries) == len(set(entries)), name

    def use(name: str, *numbers: int) -> None:
        assert all(0 <= at < len(getattr(dictionary, f"{name}_table")) for at in numbers)
        used[name].update(numbers)

    for stack in dictionary.stack_table:
        use("location", *stack.location_indices)
    for location in dictionary.location_table:
        use("mapping", location.mapping_index)
        use("attribute", *location.attribute_indices)
        use("function", *(line.function_index for line in location.lines))
    for mapping in dictionary.mapping_table:
        use("string", mapping.filename_strindex)
        use("attribute", *mapping.attribute_indices)
    for function in dictionary.function_table:
        use("string", function.name_strindex, function.filename_strindex)
    for attribute in dictionary.attribute_table:
        use("string", attribute.key_strindex)
    for profile in profiles_of(request):
        kinds = (profile.sample_type, profile.period_type)
        use("string", *(at for kind in kinds for at in (kind.type_strindex, kind.unit_strindex)))
        stacks = [sample.stack_index for sample in profile.samples]
        assert len(stacks) == len(set(stacks))
        use("stack", *stacks)
    for name in TABLES:
        assert len(used[name]) == len(getattr(dictionary, f"{name}_table")), name


def profiles_of(request: Any) -> Any:
    (resource,) = request.resource_profiles
    (scope,) = resource.scope_profiles
    return scope.profiles


def named_attributes(dictionary: Any, numbers: list[int]) -> dict[str, str]:
    entries = [dictionary.attribute_table[at] for at in numbers]
    return {dictionary.string_table[one.key_strindex]: one.value.string_value for one in entries}


Place = tuple[str, str, int]  # function, file, line


def stacks_of(request: Any, column: str) -> dict[tuple[Place, ...], int]:
    """The values of a figure by stack, innermost first, as a server would show them."""
    dictionary = request.dictionary
    texts = dictionary.string_table
    found = {}
    for profile in profiles_of(request):
        if texts[profile.sample_type.type_strindex] != column:
            continue
        for sample in profile.samples:
            places = []
            for at in dictionary.stack_table[sample.stack_index].location_indices:
                for line in dictionary.location_table[at].lines:
                    function = dictionary.function_table[line.function_index]
                    name, file = texts[function.name_strindex], texts[function.filename_strindex]
                    places.append((name, file, line.line))
            (found[tuple(places)],) = sample.values
    return found


def test_what_is_sent(standing: Standing, leaking: Program) -> None:
    words = ("--process", leaking.pid, "--seconds", 2, "--interval", 4096, "--rounds", 2)
    done = push("--profiles", standing.url + "/", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 profiles sent\n", "")
    first, second = (message_of(sent) for sent in standing.sent)
    figures = next(one for one in read_processes([]) if one.process == leaking.pid)
    (resource,) = first.resource_profiles
    attributes = attributes_of(resource.resource)
    assert attributes["process.pid"] == leaking.pid
    assert attributes["service.name"] == attributes["process.executable.name"] == figures.command
    assert attributes["host.name"]
    scope = resource.scope_profiles[0].scope
    assert (scope.name, scope.version) == ("libkmem", figures.release)
    profiles = profiles_of(first)
    texts = first.dictionary.string_table
    kinds = [(one.sample_type.type_strindex, one.sample_type.unit_strindex) for one in profiles]
    assert [(texts[kind], texts[unit]) for kind, unit in kinds] == TYPES
    assert {one.period for one in profiles} == {4096}
    assert len({one.profile_id for one in (*profiles, *profiles_of(second))}) == 2 * len(TYPES)
    # The second begins where the first ended.
    end = profiles[0].time_unix_nano + profiles[0].duration_nano
    assert profiles[0].duration_nano >= 2e9 and profiles_of(second)[0].time_unix_nano >= end
    # Each byte that was allocated is kept by the same line.
    for column in ("alloc_space", "inuse_space"):
        of_line = {
            stack: value
            for stack, value in stacks_of(first, column).items()
            if any(function == "forgotten" for function, _, _ in stack)
        }
        assert sum(of_line.values()) > 1 << 20
    kept = [sum(stacks_of(one, "inuse_space").values()) for one in (first, second)]
    assert kept[0] < kept[1]
    frames = [
        named_attributes(first.dictionary, one.attribute_indices).get("profile.frame.type")
        for one in first.dictionary.location_table[1:]
    ]
    assert {"cpython", "native"} <= set(frames)
    builds = [
        named_attributes(first.dictionary, one.attribute_indices)
        for one in first.dictionary.mapping_table[1:]
    ]
    assert any("process.executable.build_id.gnu" in one for one in builds)


FIGURES = Figures(7, 1, "shop", "0.1", [], None, 0, 0)


def made_of(*rows: Row) -> Profile:
    return Profile(list(rows), "process 7", 4096, 5_000_000_000, 60_000_000_000, "")


def test_frames_and_values() -> None:
    """Inlined functions, code without a file, equal stacks, and figures that are nothing."""
    inlined = Frame(0x1100, (Line("put", "shop.c", 7), Line("serve", "shop.c", 90)), C_FILE)
    script = Frame(0x7F00, (Line("render", "/srv/page.js", 3),), None)
    python = Frame(0, (Line("main", "/srv/shop.py", 4),), None)
    cut = Frame(0, (Line("[cut at 128 frames]"),), None)
    rows = [
        Row((inlined, script), (1, 10, 0, 0)),
        Row((inlined, script), (2, 20, 3, 30)),
        Row((inlined, python, cut), (0, 0, 4, 40)),
    ]
    request = request_of(FIGURES, made_of(*rows))
    check_dictionary(request)
    twice = (("put", "shop.c", 7), ("serve", "shop.c", 90), ("render", "/srv/page.js", 3))
    other = (*twice[:2], ("main", "/srv/shop.py", 4), ("[cut at 128 frames]", "", 0))
    assert stacks_of(request, "alloc_objects") == {twice: 3}
    assert stacks_of(request, "alloc_space") == {twice: 30}
    assert stacks_of(request, "inuse_objects") == {twice: 3, other: 4}
    assert stacks_of(request, "inuse_space") == {twice: 30, other: 40}
    mapping = request.dictionary.mapping_table[1]
    assert (mapping.memory_start, mapping.memory_limit, mapping.file_offset) == (
        0x1000,
        0x9000,
        0x200,
    )
    assert named_attributes(request.dictionary, mapping.attribute_indices) == {
        "process.executable.build_id.gnu": "c0ffee"
    }
    assert [kind_of(frame) for frame in (inlined, script, python, cut)] == [
        "native",
        "v8js",
        "cpython",
        "",
    ]


def test_nothing_sampled_and_names_that_are_no_text() -> None:
    check_dictionary(request_of(FIGURES, made_of()))
    odd = Frame(0x40, (Line("caf\udce9"),), None)
    request = request_of(FIGURES, made_of(Row((odd,), (1, 1, 1, 1))))
    assert list(stacks_of(request, "inuse_space")) == [(("caf?", "", 0),)]


def test_failures_and_a_token(standing: Standing, leaking: Program, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    standing.statuses = [503]
    words = ("--process", leaking.pid, "--seconds", 1, "--rounds", 1, "--token-file", file)
    done = push("--profiles", standing.url, *words)
    assert (done.returncode, done.stdout) == (1, "0 profiles sent\n")
    assert "503 Service Unavailable; profiles are lost until it takes them" in done.stderr
    assert [sent.token for sent in standing.sent] == ["Bearer 0123456789abcdef"]


def test_a_refusal_within_success(standing: Standing, leaking: Program) -> None:
    """A server may answer 200 and say in the body that it took none of it."""
    refused = ExportProfilesPartialSuccess(rejected_profiles=4, error_message="too\nmany")
    standing.reply = ExportProfilesServiceResponse(partial_success=refused).SerializeToString()
    words = ("--process", leaking.pid, "--seconds", 1, "--rounds", 1)
    done = push("--profiles", standing.url, *words)
    assert (done.returncode, done.stdout) == (1, "0 profiles sent\n")
    assert done.stderr == (
        f"kmem: push: {standing.url}: too?many; profiles are lost until it takes them\n"
    )


def test_two_servers(standing: Standing, leaking: Program) -> None:
    """Both have the profile; what one refuses, the other still gets."""
    words = ("--process", leaking.pid, "--seconds", 1, "--rounds", 1)
    done = push(standing.url, "--profiles", standing.url, *words)
    assert (done.stdout, done.stderr) == ("2 profiles sent\n", "")
    assert [sent.path for sent in standing.sent] == ["/ingest", "/v1development/profiles"]
    standing.sent.clear()
    standing.statuses = [500]
    done = push(standing.url, "--profiles", standing.url, *words)
    assert done.stdout == "1 profiles sent\n" and done.stderr.count("\n") == 1
    assert [sent.path for sent in standing.sent] == ["/ingest", "/v1development/profiles"]
