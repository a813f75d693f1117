# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Registries as a hostile user makes them: from a valid one, with anything in it exchanged."""

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kmem.live.registry.file import (
    RECORD_CACHE,
    RECORD_HEAD,
    RECORD_NAME,
    RECORD_PARTS,
    RECORD_SAMPLES,
    RECORD_SLOT,
    RECORD_STACK,
    RECORD_THREAD,
    Registry,
)
from kmem.live.registry.layout import FIELD, PARTS, START, Place

# Records of a template.
KEEP = {
    RECORD_CACHE: 4,
    RECORD_SLOT: 4,
    RECORD_STACK: 2,
    RECORD_NAME: 2,
    RECORD_SAMPLES: 1,
    RECORD_THREAD: 1,
}
# At the borders of what counts, places and sizes may be.
NUMBERS = sorted(
    {(1 << bits) + more for bits in (0, 1, 3, 5, 8, 12, 16, 24, 32, 48, 63) for more in (-1, 0, 1)}
    | {40, 48, 64, 88, 96, 2000, 16384, (1 << 64) - 1}
)
NAMES = (
    *(b"", b"x", b"\xff" * 32, b"birth", b"nodes", b"node", b"number", b"kept", b"zones", b"zone"),
    *(b"requests", b"flags", b"frame", b"frames", b"slow_calls", b"pages_per_slab", b"state"),
    *(b"text", b"bytes", b"sample", b"stack", b"thread", b"time_ms"),
)

Patch = tuple[int, bytes]  # what stands where instead


class Template:
    """A valid registry of few records, and where its parts are."""

    def __init__(self, registry: Registry) -> None:
        copy = registry.copy()
        head_bytes = registry.number("head", "head_bytes")
        content = bytearray(copy[:head_bytes])
        self.records = []
        for kind, places in registry.records(copy).items():
            for at in places[: KEEP[kind]]:
                size = RECORD_HEAD.unpack_from(copy, at)[1]
                self.records.append((kind, len(content)))
                content += copy[at : at + size]
        used = registry.parts["head"]["used_bytes"]
        content[used.offset : used.offset + used.size] = len(content).to_bytes(used.size, "little")
        self.content = bytes(content)
        self.parts = registry.parts
        *_, self.fields_at, self.fields = START.unpack_from(content)

    def row_of(self, part: str, name: str) -> int:
        """Where a field is described."""
        for number in range(self.fields):
            at = self.fields_at + number * FIELD.itemsize
            text, of_part = struct.unpack_from("<32sH", self.content, at)
            if (text.rstrip(b"\0").decode(), of_part) == (name, PARTS.index(part)):
                return at
        raise KeyError(name)

    def number(self, part: str, name: str, value: int, base: int = 0) -> Patch:
        place = self.parts[part][name]
        return base + place.offset, value.to_bytes(place.size, "little")

    def rows(self, *rows: tuple[bytes, int, int, int, int, int]) -> list[Patch]:
        """More fields: name, part, offset, bytes, count, value. Some of the last give way."""
        added = b"".join(struct.pack("<32s4HQ", *row) for row in rows)
        end = self.fields_at + self.fields * FIELD.itemsize
        return [(end, added), (20, (self.fields + len(rows)).to_bytes(4, "little"))]

    def sites(self) -> list[tuple[int, int]]:
        """Places and sizes of all that means something."""
        found = [(at, 4) for at in range(8, START.size, 4)]
        for number in range(self.fields):
            at = self.fields_at + number * FIELD.itemsize
            found += [(at + more, 2) for more in (32, 34, 36, 38)] + [(at + 40, 8)]

        def add(places: dict[str, Place], base: int) -> None:
            found.extend((base + place.offset, place.size) for place in places.values())

        add(self.parts["head"], 0)
        for kind, at in self.records:
            found += [(at, 4), (at + 4, 4)]
            add(self.parts[RECORD_PARTS[kind]], at)
            if kind == RECORD_CACHE:
                add(self.parts["node"], at + self.parts["cache"]["node"].offset)
            if kind == RECORD_SAMPLES:
                add(self.parts["sample"], at + self.parts["samples"]["sample"].offset)
        return found


def patched(content: bytes, patches: list[Patch]) -> bytes:
    whole = bytearray(content)
    for at, data in patches:
        whole[at : at + len(data)] = data
    return bytes(whole)


def mutated(template: Template, sites: list[tuple[int, int]], chance: random.Random) -> bytes:
    """One to six things exchanged, as those would who know the format."""
    content = bytearray(template.content)

    def number_at() -> None:
        at, size = chance.choice(sites)
        value = chance.choice(NUMBERS) if chance.random() < 0.8 else chance.getrandbits(64)
        content[at : at + min(size, 8)] = (value % (1 << 64)).to_bytes(8, "little")[: min(size, 8)]

    def any_byte() -> None:
        content[chance.randrange(len(content))] = chance.randrange(256)

    def row_at() -> int:
        return template.fields_at + chance.randrange(template.fields) * FIELD.itemsize

    def name() -> None:
        at = row_at()
        content[at : at + 32] = chance.choice(NAMES).ljust(32, b"\0")

    def row_over_row() -> None:
        to, source = row_at(), row_at()
        content[to : to + FIELD.itemsize] = content[source : source + FIELD.itemsize]

    def record_over_record() -> None:
        (_, to), (_, source) = chance.choice(template.records), chance.choice(template.records)
        size = min(len(content) - max(to, source), 64 * chance.randrange(1, 9))
        content[to : to + size] = content[source : source + size]

    def cut() -> None:
        del content[chance.randrange(len(content)) :]
        content.extend(bytes(len(template.content) - len(content)))

    def fewer_fields() -> None:
        content[20:24] = chance.randrange(template.fields + 1).to_bytes(4, "little")

    kinds: list[Callable[[], None]] = [
        *[number_at] * 12, any_byte, any_byte, name, row_over_row, record_over_record, fewer_fields,
    ]  # fmt: skip
    if chance.random() < 0.02:
        kinds = [cut]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        chance.choice(kinds)()
    return bytes(content)


# The hostile user's program: as whom, from which content, under which names.
PLANT = r"""
import json, mmap, os, sys, time
told = json.loads(sys.argv[1])
folder = f"/dev/shm/kmem-{told['user']}"
content = bytearray(open(told["content"], "rb").read())
os.makedirs(folder, mode=0o700, exist_ok=True)
os.chown(folder, told["user"], told["user"])
os.setgid(told["user"])
os.setuid(told["user"])
namespace = os.stat("/proc/self/ns/pid").st_ino
start = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
for name, number in (("process", os.getpid()), ("start_time", start)):
    at, size = told["places"][name]
    content[at:at + size] = number.to_bytes(size, "little")
for at, data in told["patches"]:
    content[at:at + len(data) // 2] = bytes.fromhex(data)
path = f"{folder}/{namespace}.{told['pid'] or os.getpid()}"
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(file, content)
kept = mmap.mmap(file, 0)
for number in range(told["links"]):
    os.link(path, f"{folder}/{namespace}.{900000000 + number}" if number else f"{folder}/other")
print(os.getpid(), path, flush=True)
time.sleep(600)
"""


class Planted:
    """A process of another user, that maps what it says is its registry."""

    def __init__(
        self,
        template: Template,
        scratch: Path,
        patches: list[Patch],
        *,
        user: int,
        pid: int = 0,
        links: int = 0,
        content: bytes | None = None,
    ) -> None:
        scratch.write_bytes(template.content if content is None else content)
        places = {
            name: (template.parts["head"][name].offset, template.parts["head"][name].size)
            for name in ("process", "start_time")
        }
        told = {
            "user": user, "pid": pid, "links": links, "content": str(scratch), "places": places,
            "patches": [(at, data.hex()) for at, data in patches],
        }  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PLANT, json.dumps(told)],
            stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert self.popen.stdout is not None
        words = self.popen.stdout.readline().split()
        assert len(words) == 2, "the hostile program did not start"
        self.pid, self.path = int(words[0]), Path(words[1])

    def __enter__(self) -> "Planted":
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.communicate()


if __name__ == "__main__":
    sys.exit("this is a part of test_hostile.py")
