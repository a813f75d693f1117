# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Heap profiles as text, of jemalloc, of tcmalloc and of Go.

heap_v2/524288                                   jemalloc: bytes from a sample to the next
  t*: 28106: 56637512 [0: 0]                     all objects, then those of each thread
@ 0x55d0 0x55e4                                  a stack
  t*: 13: 6688 [0: 0]                            its objects and bytes
heap profile: 3: 300 [ 5: 500] @ heapprofile     tcmalloc; heap_v2/BYTES if it takes samples,
     1: 100 [ 2: 200] @ 0x55d0 0x55e4            and heap/BYTES of Go, which writes them twice
#  0x55d0  main.work+0x12  /src/work.go:7        Go: a call of the stack in the line before
MAPPED_LIBRARIES:                                the rest is as /proc/PID/maps
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kmem.common.text import printable
from kmem.explain.heap.profile import GO, JEMALLOC, TCMALLOC, HeapProfile, Mapping, Place, Stack
from kmem.explain.table import Unread

NUMBER = r"(\d{1,18})"
COUNTS = rf"{NUMBER}: *{NUMBER} \[ *\d{{1,18}}: *\d{{1,18}}\]"
JEMALLOC_HEAD = re.compile(rf"heap_v2/{NUMBER}\s*", re.ASCII)
HEAD = re.compile(rf"heap profile: *{COUNTS} *@ *(\w{{1,20}})(?:/{NUMBER})?\s*", re.ASCII)
THREADS = re.compile(rf"t(\*|\d{{1,18}}): *{COUNTS}", re.ASCII)
LINE = re.compile(rf"{COUNTS} *@((?: 0x[0-9a-f]{{1,16}})*)\s*", re.ASCII)
CALLS = re.compile(r"@((?: 0x[0-9a-f]{1,16})*)", re.ASCII)
NAMED = re.compile(r"#\s+0x([0-9a-f]{1,16})\s+(\S+?)(?:\+0x[0-9a-f]+)?(?:\s+(\S.*))?", re.ASCII)
MAPPED = re.compile(
    rf"([0-9a-f]{{1,16}})-([0-9a-f]{{1,16}}) \S{{4}} ([0-9a-f]{{1,16}}) \S+ {NUMBER}\s+(\S.*)",
    re.ASCII,
)
END = "MAPPED_LIBRARIES:"
BYTES_MOST = 1 << 60  # of a profile
LINE_MOST = 20_000  # letters: a stack of a thousand calls


def is_text(content: bytes) -> bool:
    return content.startswith((b"heap_v2/", b"heap profile:"))


def places_of(addresses: str) -> tuple[Place, ...]:
    return tuple(Place(int(word, 16)) for word in addresses.split())


class Reader:
    """Takes the lines of a profile, of which the head is known."""

    def __init__(self, profile: HeapProfile) -> None:
        self.profile = profile
        self.places: tuple[Place, ...] | None = None  # of jemalloc's stack before
        self.named: list[Place] = []
        self.is_open = False  # whether names belong to the last stack
        self.bytes = 0

    def unread(self, line: int, reason: str) -> None:
        self.profile.unread.append(Unread(self.profile.file, line, reason))

    def add(self, line: int, places: tuple[Place, ...], objects: int, size: int) -> None:
        self.end_names()
        self.is_open = False
        if not objects and not size:
            return
        if not objects or size < objects:
            self.unread(line, f"{objects:,} objects of {size:,} bytes; expected a byte each")
            return
        self.bytes += size
        if self.bytes > BYTES_MOST:
            self.bytes -= size
            self.unread(line, f"{size:,} bytes; expected at most {BYTES_MOST:,} in all")
            return
        self.profile.stacks.append(Stack(places, objects, size, line))
        self.is_open = True

    def end_names(self) -> None:
        """Names that stand behind a stack take the place of its addresses."""
        if self.named and self.is_open:
            last = self.profile.stacks[-1]
            self.profile.stacks[-1] = replace(last, places=tuple(self.named))
        self.named = []

    def jemalloc_line(self, line: int, text: str) -> None:
        if match := CALLS.fullmatch(text):
            self.places = places_of(match[1])
        elif match := THREADS.fullmatch(text):
            if match[1] != "*":
                return  # a thread's part
            objects, size = int(match[2]), int(match[3])
            if self.places is None:
                self.profile.printed = objects, size
            else:
                self.add(line, self.places, objects, size)
        else:
            self.unread(line, "expected a stack, as @ 0x1234, or its counts, as t*: 1: 64 [0: 0]")

    def other_line(self, line: int, text: str) -> None:
        if match := LINE.fullmatch(text):
            self.add(line, places_of(match[3]), int(match[1]), int(match[2]))
        elif match := NAMED.fullmatch(text):
            name = printable(match[2]) + (f" ({printable(match[3])})" if match[3] else "")
            self.named.append(Place(int(match[1], 16), name))
        elif not text.startswith("#"):
            self.unread(line, "expected objects, bytes and a stack, as 1: 64 [1: 64] @ 0x1234")

    def take(self, lines: Sequence[str]) -> None:
        one = self.jemalloc_line if self.profile.form == JEMALLOC else self.other_line
        for number, line in enumerate(lines, 2):
            text = line.strip()
            if text.startswith(END):
                self.end_names()
                self.profile.mappings = mappings_of(lines[number - 1 :])
                return
            # Go prints figures of its memory in the end.
            if text.startswith("# runtime.MemStats"):
                break
            if len(text) > LINE_MOST:
                self.unread(number, f"{len(text):,} letters; expected at most {LINE_MOST:,}")
            elif text:
                one(number, text)
        self.end_names()
        if self.profile.form != GO:
            self.unread(len(lines) + 1, f"no {END} behind the stacks: the file may be cut off")


def mappings_of(lines: Sequence[str]) -> list[Mapping]:
    found = []
    for line in lines:
        if len(line) <= LINE_MOST and (match := MAPPED.fullmatch(line.strip())):
            start, end, offset = (int(match[number], 16) for number in (1, 2, 3))
            found.append(Mapping(start, end, offset, int(match[4]), printable(match[5])))
    return sorted(found, key=lambda one: one.start)


def head_of(file: str, line: str) -> HeapProfile | str:
    """What the first line says; or why it says nothing."""
    if match := JEMALLOC_HEAD.fullmatch(line):
        return HeapProfile(JEMALLOC, file, int(match[1]))
    match = HEAD.fullmatch(line)
    if match is None:
        return "a head without objects, bytes and the kind of profile"
    printed = int(match[1]), int(match[2])
    kind, interval = match[3], int(match[4] or 0)
    if kind == "heapprofile":
        return HeapProfile(TCMALLOC, file, 0, printed=printed)
    if kind in ("heap_v2", "heapz_v2") and interval:
        return HeapProfile(TCMALLOC, file, interval, printed=printed)
    if kind == "heap" and interval >= 2:
        return HeapProfile(GO, file, interval // 2, printed=printed)
    return f"a profile of kind {kind}{f'/{interval}' if match[4] else ''}"


def read_text(file: str, content: bytes) -> HeapProfile | str:
    """The profile; or why its first line is of none."""
    lines = content.decode("utf-8", "replace").splitlines()
    found = head_of(file, lines[0][:LINE_MOST])
    if isinstance(found, HeapProfile):
        Reader(found).take(lines[1:])
    return found
