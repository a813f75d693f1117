# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Lists of live objects by stack or place, as tools for kernels and programs print them.

unreferenced object 0xffff888004d2a000 (size 128):     kmemleak: an object, or object (percpu)
  backtrace (crc 8a2b1c9d):
    [<ffffffff81189293>] create_object+0x123/0x2f0     without an address since 6.13
4096 bytes in 2 allocations from stack                 memleak of bcc and libbpf-tools
    0 [<ffffffffad4c370d>] alpha_open+0x13d [alpha]    or alpha_open+0x13d [alpha]
   4096        2 fs/alpha.c:70 [alpha] func:alpha_open     /proc/allocinfo
Direct leak of 7 byte(s) in 1 object(s) allocated from:  LeakSanitizer
    #1 0x43ef81 in main a.c:3
==1== 16 (8 direct, 8 indirect) bytes in 1 blocks are definitely lost in loss record 1 of 2
==1==    by 0x10915E: main (a.c:3)                     memcheck of valgrind
"""

from __future__ import annotations

import re
from itertools import chain

from kmem.common.text import printable
from kmem.explain.heap.profile import (
    ALLOCINFO,
    KMEMLEAK,
    MEMCHECK,
    MEMLEAK,
    SANITIZER,
    HeapProfile,
    Place,
    Stack,
)
from kmem.explain.lines import lines_of
from kmem.explain.table import Unread

# Newer kernels say of what kind an object is, if it is none of slabs: (phys), (percpu).
OBJECT = re.compile(
    r"unreferenced object(?: \(\w{1,16}\))? (0x[0-9a-f]{1,16}) \(size (\d{1,15})\):", re.ASCII
)
COUNTS = re.compile(r"(?:^|\s)(\d{1,15}) bytes in (\d{1,12}) allocations from stack\s*$", re.ASCII)
LEAK = re.compile(
    r"(?:Direct|Indirect) leak of (\d{1,15}) byte\(s\) in (\d{1,12}) object\(s\) allocated from:",
    re.ASCII,
)
# In front of a process may be the time since valgrind's start (--time-stamp=yes).
CLOCK = r"(?:\d\d:[\d:.]{6,20} )?"
# What is lost indirectly has a record of its own.
LOSS = re.compile(
    rf"=={CLOCK}(\d{{1,9}})== "
    r"([\d,]{1,20})(?: \(([\d,]{1,20}) direct, [\d,]{1,20} indirect\))? bytes in"
    r" ([\d,]{1,16}) blocks are [a-z ]{1,40} in loss record",
    re.ASCII,
)
CHECKED = re.compile(rf"=={CLOCK}(\d{{1,9}})== LEAK SUMMARY:", re.ASCII)  # the end of a check
# Other lines of memcheck stand behind a stack.
BEHIND = re.compile(rf"=={CLOCK}\d{{1,9}}==(?! +(?:at|by) 0x)", re.ASCII)
ROUND = re.compile(r"Top \d{1,9} stacks with outstanding allocations:", re.ASCII)
# Begins a stack, also where its numbers cannot be read.
HEAD = re.compile(
    r"unreferenced object\b|allocations from stack|irect leak of"
    r"|blocks are [a-z ]{1,40} in (?:new )?loss record"
)
READING = re.compile(r"allocinfo - version: |Memory allocations:")
# A size may be rounded, as numfmt and out-of-memory reports print it.
PLACE = re.compile(
    r"(?:^|\s)(\d{1,15}(?:\.\d{1,6})?)(?: ?([KMGT])i?B?| B)? +(\d{1,12}) (\S{1,300}:\d{1,7})"
    r" (?:\[(\S{1,80})\] )?func:(\S{1,200})(?: .{0,80})?$",
    re.ASCII,
)
UNITS = " KMGT"
# A call: its address in marks, or a name with its offset; the module stands behind it.
CALL = re.compile(
    r"(?:\[<([0-9a-f]{1,16})>\]\s+(\S{1,300})?"
    r"|(?:^|\s)(?:0x([0-9a-f]{1,16})|(\S{1,300}?\+0x[0-9a-f]{1,8}(?:/0x[0-9a-f]{1,8})?)))"
    r"(\s+\[[^\]]{1,300}\])?\s*$",
    re.ASCII,
)
# Of programs: "#1 0x43ef81 in main a.c:3", and "by 0x10915E: main (a.c:3)" of memcheck.
NAMED = re.compile(
    r"(?:#\d{1,4} 0x([0-9a-f]{1,16}) in|(?:at|by) 0x([0-9A-F]{1,16}):) (\S.{0,400})$", re.ASCII
)
# Functions in front of the caller.
ALLOCATING = re.compile(
    r"(?:create_object|kmemleak_\w+|slab_\w+_hook|(?:__)?do_kmalloc\w*|_?_?kmalloc\w*|kzalloc\w*"
    r"|kmem_cache_\w*alloc\w*|__alloc_pages\w*|alloc_pages\w*|pcpu_alloc\w*|_?_?vmalloc\w*"
    r"|krealloc\w*|(?:__)?kvmalloc\w*|_Zn[wa]\w*|malloc|calloc|realloc|posix_memalign"
    r"|aligned_alloc|__interceptor_\w+|strdup|strndup|operator new(?:\[\])?\(.{1,80}?\))(?:[+ ]|$)",
    re.ASCII,
)
SLABS = "alloc_slab_page"
FORMS = (
    (
        re.compile(rb"allocinfo - version: |\d \S{1,300}:\d{1,7} (?:\[\S{1,80}\] )?func:\w"),
        ALLOCINFO,
    ),
    (re.compile(OBJECT.pattern.encode()), KMEMLEAK),
    (re.compile(rb"\d bytes in \d{1,12} allocations from stack"), MEMLEAK),
    (re.compile(rb"irect leak of \d{1,15} byte\(s\) in \d{1,12} object"), SANITIZER),
    (re.compile(rb"bytes in [\d,]{1,16} blocks are [a-z ]{1,40} in loss record"), MEMCHECK),
)
LOOKED_AT = 65536  # bytes at the beginning
# A report with slabs is a table, whatever it lists besides.
TABLES = (b"slabinfo - version", b"Unreclaimable slab info", b" OBJS ACTIVE ", b"Mem-Info:")
BYTES_MOST = 1 << 60
NO_ADDRESS = 0xFFFFFFFFFFFFFFFF  # the end of a stack


def list_of(content: bytes) -> str:
    """The form of a list, by its beginning; nothing if it is none."""
    head = content[:LOOKED_AT]
    form = next((form for mark, form in FORMS if mark.search(head)), "")
    return "" if form and any(mark in content for mark in TABLES) else form


def without_allocators(places: list[Place]) -> tuple[Place, ...]:
    own = next((at for at, place in enumerate(places) if not ALLOCATING.match(place.name)), 0)
    return tuple(places[own:])


def number_of(text: str) -> int:
    return int(text.replace(",", ""))


def call_of(line: str) -> Place | None:
    if match := NAMED.search(line):
        return Place(int(match[1] or match[2], 16), printable(match[3]))
    match = CALL.search(line)
    if match is None:
        return None
    address = int(match[1] or match[3] or "0", 16)
    if address == NO_ADDRESS:
        return None
    name = (match[2] or match[4] or "").partition("/0x")[0]
    module = (match[5] or "").strip()
    if not name or name.startswith("0x") or module == "[unknown]":
        return Place(address)
    return Place(address, printable(f"{name} {module}" if module not in ("", "[kernel]") else name))


class Lists:
    """Takes lines: heads of stacks, and their calls."""

    def __init__(self, profile: HeapProfile) -> None:
        self.profile = profile
        self.open: Stack | None = None
        self.places: list[Place] = []
        self.bytes = 0
        self.stacks: dict[str, list[Stack]] = {}  # by process, of memcheck; else of ""
        self.process = ""
        self.checked: set[str] = set()  # processes whose records so far are of an earlier check
        self.objects: set[tuple[str, str]] = set()  # of kmemleak, with their sizes
        self.is_next = False  # whether places are those of the next reading

    def unread(self, line: int, reason: str) -> None:
        self.profile.unread.append(Unread(self.profile.file, line, reason))

    def end(self) -> None:
        """The stack has all its calls."""
        stack, self.open = self.open, None
        if stack is not None:
            places = without_allocators(self.places)
            stacks = self.stacks.setdefault(self.process, [])
            stacks.append(Stack(places, stack.objects, stack.bytes, stack.line))
        self.places = []

    def forget(self) -> None:
        """What comes next has all that lives then."""
        self.end()
        self.bytes -= sum(stack.bytes for stack in self.stacks.pop(self.process, []))

    def begin(self, line: int, objects: int, size: int) -> None:
        self.end()
        if not objects and not size:
            return
        if not objects or size < objects:
            self.unread(line, f"{objects:,} objects of {size:,} bytes; expected a byte each")
            return
        if self.bytes + size > BYTES_MOST:
            self.unread(line, f"{size:,} bytes; expected at most {BYTES_MOST:,} in all")
            return
        self.bytes += size
        self.open = Stack((), objects, size, line)

    def place_line(self, line: int, text: str) -> None:
        """A line of /proc/allocinfo. Pages of slabs are counted again at the places of objects."""
        match = PLACE.search(text)
        if match is None:
            if READING.search(text):
                # A sorted reading has its head, too, at an end of its places.
                self.is_next = bool(self.stacks)
            elif " func:" in text:
                self.unread(line, "expected bytes, objects and a place, as 4096 1 a.c:7 func:a")
            return
        size = round(float(match[1]) * 1024 ** UNITS.index(match[2] or " "))
        objects, module = int(match[3]), match[5]
        if match[6] == SLABS:
            self.unread(line, f"{size:,} bytes of slabs, whose objects stand at their own places")
            return
        if self.is_next and size:
            self.forget()
            self.is_next = False
        self.begin(line, objects, size)
        behind = f" [{module}]" if module else ""
        self.places = [Place(0, printable(f"{match[6]} ({match[4]}){behind}"))]
        self.end()

    def begin_object(self, line: int, address: str, size: str) -> None:
        """kmemleak prints an object in each of its lists until somebody frees it."""
        self.end()
        if (address, size) not in self.objects:
            self.objects.add((address, size))
            self.begin(line, 1, int(size))

    def begin_record(self, line: int, process: str, objects: int, size: int) -> None:
        """memcheck looks again at the end of a program that has asked for a check before."""
        self.end()
        self.process = process
        if process in self.checked:
            self.checked.remove(process)
            self.forget()
        self.begin(line, objects, size)

    def stack_line(self, line: int, text: str) -> None:
        if match := OBJECT.search(text):
            self.begin_object(line, match[1], match[2])
        elif match := COUNTS.search(text) or LEAK.search(text):
            self.begin(line, int(match[2]), int(match[1]))
        elif match := LOSS.search(text):
            size = number_of(match[3] or match[2])
            self.begin_record(line, match[1], number_of(match[4]), size)
        elif ROUND.search(text):
            self.forget()
        elif match := CHECKED.search(text):
            self.end()
            self.checked.add(match[1])
        elif HEAD.search(text):
            self.end()
            self.unread(line, "expected objects and bytes of a stack")
        elif BEHIND.search(text):
            self.end()
        elif self.open is not None and (call := call_of(text)):
            self.places.append(call)


def read_list(file: str, content: bytes, form: str) -> HeapProfile:
    found = Lists(HeapProfile(form, file))
    take = found.place_line if form == ALLOCINFO else found.stack_line
    for number, line in zip(*lines_of(content), strict=True):
        # Releases of memleak before 2019 printed a stack as a string of bytes.
        for text in line.split("\\n"):
            take(number, text.removeprefix("\\t\\t").strip().removeprefix("b'").removesuffix("'"))
    found.end()
    found.profile.stacks += chain.from_iterable(found.stacks.values())
    return found.profile
