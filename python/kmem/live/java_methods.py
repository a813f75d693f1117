# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Methods of Java in compiled code, with those inlined into them and their lines, from outside.

OpenJDK's library exports tables of its own structures for debuggers that read a running machine
(gHotSpotVMStructs and gHotSpotVMTypes, in its vmStructs.hpp). By them an address in the code cache
leads to the compiled method that it is in, and a return address to the record of its call: the
methods that the compiler put into each other there, and the bytecode that each had got to. The
methods' own tables tell the lines. Nothing runs in the program for it.

The memory is another user's, who may change it at any time or have made it up. So each length has a
bound, each search an end, and whatever does not fit together means that there is no name.
"""

from __future__ import annotations

import bisect
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from kmem.common.text import printable
from kmem.live.images import addresses_of
from kmem.live.java_maps import LIBRARY
from kmem.live.lines import Line
from kmem.live.pprof import Mapping

STRUCTS, TYPES = "gHotSpotVMStructs", "gHotSpotVMTypes"
# Type, field, type of the field, whether it is static, its offset, its address; name, type above,
# three words of flags, size. Both tables end with a name of 0.
STRUCT_ENTRY, TYPE_ENTRY = struct.Struct("<QQQiiQQ"), struct.Struct("<QQiiiiQ")
ENTRIES_MOST = 1 << 14
PAGE = 4096
HEAPS_MOST = 16
TABLE_MOST = 4 << 20  # bytes of a table of a compiled method
NAME_MOST = 1000  # letters
HOPS_MOST = 1 << 12
INLINED_MOST = 256
FREE = 0xFF  # in a map of segments
HAS_LINES = 1  # of the flags of a ConstMethod
FIRST_BASE_1 = 20  # the release from which no byte of a packed number is 0
PARTS = re.compile(r"[/+]0x[0-9a-f]+$")  # of the name of a class that was made at run time
METHODS = ("nmethod", "native nmethod")  # names of blocks


class Unreadable(Exception):
    """There is no such memory, or it does not hold what belongs there."""


class Memory:
    """The memory of a process; that of the program which runs in it now, also after an exec."""

    def __init__(self, process: int) -> None:
        try:
            self.file = os.open(f"/proc/{process}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable from error

    def close(self) -> None:
        os.close(self.file)

    def read(self, address: int, size: int) -> bytes:
        if not 0 < address < 1 << 63 or not 0 <= size <= TABLE_MOST:
            raise Unreadable
        try:
            content = os.pread(self.file, size, address)
        except (OSError, OverflowError) as error:
            raise Unreadable from error
        if len(content) != size:
            raise Unreadable
        return content

    def number(self, address: int, form: str) -> int:
        (number,) = struct.unpack(f"<{form}", self.read(address, struct.calcsize(form)))
        return int(number)

    def text(self, address: int) -> str:
        """A text that ends with a zero."""
        content = b""
        while b"\0" not in content and len(content) < NAME_MOST:
            at = address + len(content)
            content += self.read(at, min(NAME_MOST, PAGE - at % PAGE))
        return content.partition(b"\0")[0].decode("utf-8", "replace")


class Layout:
    """Where the fields of the machine's structures are, by its tables."""

    def __init__(self, memory: Memory, structs: int, types: int) -> None:
        self.memory = memory
        self.places: dict[tuple[str, str], int] = {}  # offsets; addresses of static fields
        self.sizes: dict[str, int] = {}
        for entry in self.entries(structs, STRUCT_ENTRY):
            kind, name, _, is_static, _, offset, address = entry
            place = address if is_static else offset
            self.places[memory.text(kind), memory.text(name)] = place
        for entry in self.entries(types, TYPE_ENTRY):
            self.sizes[memory.text(entry[0])] = entry[-1]

    def entries(self, table: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
        at = self.memory.number(table, "Q")
        for _ in range(ENTRIES_MOST):
            entry = form.unpack(self.memory.read(at, form.size))
            if not entry[0]:
                return
            yield entry
            at += form.size

    def has(self, kind: str, field: str) -> bool:
        return (kind, field) in self.places

    def place(self, kind: str, field: str) -> int:
        try:
            return self.places[kind, field]
        except KeyError:
            raise Unreadable from None

    def size(self, kind: str) -> int:
        try:
            return self.sizes[kind]
        except KeyError:
            raise Unreadable from None

    def get(self, base: int, kind: str, field: str, form: str = "Q") -> int:
        return self.memory.number(base + self.place(kind, field), form)


def read_packed(content: bytes, at: int, base: int) -> tuple[int, int]:
    """A number of one to five bytes, all but the last of them 192 or more; and what is behind it.

    Each byte counts 64 times the one before. @base: what a byte of value 0 is written as.
    """
    number = 0
    for shift in range(0, 30, 6):
        if at >= len(content) or content[at] < base:
            raise Unreadable
        number += (content[at] - base) << shift
        at += 1
        if content[at - 1] < 192:
            break
    return number & 0xFFFFFFFF, at


def signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def read_lines(content: bytes, base: int) -> list[tuple[int, int]]:
    """A method's table: first bytecode and line. Small steps of both are in a byte."""
    found, bytecode, line, at = [], 0, 0, 0
    while at < len(content) and content[at]:
        step = content[at]
        at += 1
        if step == 0xFF:
            more, at = read_packed(content, at, base)
            lines, at = read_packed(content, at, base)
            bytecode, line = bytecode + signed(more), line + signed(lines)
        else:
            bytecode, line = bytecode + (step >> 3), line + (step & 7)
        found.append((bytecode, line))
    return found


@dataclass
class Method:
    function: str
    file: str
    lines: Sequence[tuple[int, int]]

    def line_at(self, bytecode: int) -> Line:
        """The last line that begins before a bytecode; the entry counts as the first bytecode."""
        before = [one for one in self.lines if one[0] <= max(bytecode, 0)]
        return Line(self.function, self.file, max(before, default=(0, 0))[1])

    def line(self) -> Line:
        return Line(self.function, self.file)


@dataclass
class Code:
    """A block of the code cache. Offsets are counted from its first instruction."""

    begin: int
    end: int
    name: str
    method: int = 0  # 0: none
    offsets: Sequence[int] = ()  # of calls, rising
    scopes: Sequence[int] = ()  # where a call's record begins in the data
    data: bytes = b""
    metadata: bytes = b""


class Machine:
    """A running machine, from its layout to the methods at an address."""

    def __init__(self, memory: Memory, structs: int, types: int) -> None:
        self.memory = memory
        self.layout = layout = Layout(memory, structs, types)
        major = memory.number(layout.place("Abstract_VM_Version", "_vm_major_version"), "i")
        self.base = int(major >= FIRST_BASE_1)
        self.heaps = list(self.read_heaps())
        self.codes: dict[int, Code] = {}
        self.methods: dict[int, Method] = {}
        self.found: dict[int, tuple[Line, ...]] = {}
        # Later ones have tables outside of the code cache, and no class between block and method.
        self.is_newer = layout.has("CodeBlob", "_mutable_data")
        self.of_method = "nmethod" if layout.has("nmethod", "_method") else "CompiledMethod"

    def close(self) -> None:
        self.memory.close()

    def read_heaps(self) -> Iterator[tuple[int, int, int, int]]:
        """Begin, end, map of segments and logarithm of a segment's size of each part."""
        get, number = self.layout.get, self.memory.number
        array = number(self.layout.place("CodeCache", "_heaps"), "Q")
        data = get(array, "GrowableArray<int>", "_data")
        count = get(array, "GrowableArrayBase", "_len", "i")
        for at in range(min(max(count, 0), HEAPS_MOST)):
            heap = number(data + 8 * at, "Q")
            memory, segments = (
                heap + self.layout.place("CodeHeap", name) for name in ("_memory", "_segmap")
            )
            shift = get(heap, "CodeHeap", "_log2_segment_size", "i")
            if not 0 < shift < 32:
                raise Unreadable
            low, high = (get(memory, "VirtualSpace", name) for name in ("_low", "_high"))
            yield low, high, get(segments, "VirtualSpace", "_low"), shift

    def block_at(self, address: int) -> int | None:
        """The block that an address is in; each segment of it says how far to go back."""
        for low, high, segments, shift in self.heaps:
            if not low <= address < high:
                continue
            at = (address - low) >> shift
            for _ in range(HOPS_MOST):
                back = self.memory.number(segments + at, "B")
                if back == FREE or back > at:
                    return None
                if not back:
                    block = low + (at << shift)
                    return block + self.layout.size("HeapBlock")
                at -= back
        return None

    def code_at(self, address: int) -> Code | None:
        block = self.block_at(address)
        if block is None:
            return None
        if block not in self.codes:
            self.codes[block] = self.read_code(block)
        code = self.codes[block]
        return code if code.begin <= address <= code.end else None

    def read_code(self, block: int) -> Code:
        get = partial(self.layout.get, block)
        if self.is_newer:
            begin = block + get("CodeBlob", "_code_offset", "i")
            end = block + get("CodeBlob", "_data_offset", "i")
        else:
            begin, end = get("CodeBlob", "_code_begin"), get("CodeBlob", "_code_end")
        code = Code(begin, end, printable(self.memory.text(get("CodeBlob", "_name"))))
        if code.name not in METHODS:
            return code
        code.method = get(self.of_method, "_method")
        if self.is_newer:
            tables = get("nmethod", "_immutable_data")
            calls = tables + get("nmethod", "_scopes_pcs_offset", "i")
            calls_end = scopes = tables + get("nmethod", "_scopes_data_offset", "i")
            scopes_end = tables + get("nmethod", "_immutable_data_size", "i")
            mutable = get("CodeBlob", "_mutable_data")
            metadata = mutable + get("CodeBlob", "_relocation_size", "i")
            metadata_end = mutable + get("CodeBlob", "_mutable_data_size", "i")
        else:
            calls = scopes_end = block + get("nmethod", "_scopes_pcs_offset", "i")
            calls_end = block + get("nmethod", "_dependencies_offset", "i")
            scopes = metadata_end = get("CompiledMethod", "_scopes_data_begin")
            metadata = block + get("nmethod", "_metadata_offset", "i")
        size = self.layout.size("PcDesc")
        offset, scope = (
            self.layout.place("PcDesc", name) for name in ("_pc_offset", "_scope_decode_offset")
        )
        table = self.memory.read(calls, calls_end - calls)
        if not max(offset, scope) + 4 <= size <= PAGE:
            raise Unreadable
        rows = range(0, len(table) - size + 1, size)
        code.offsets = [struct.unpack_from("<i", table, at + offset)[0] for at in rows]
        code.scopes = [struct.unpack_from("<i", table, at + scope)[0] for at in rows]
        code.data = self.memory.read(scopes, scopes_end - scopes)
        code.metadata = self.memory.read(metadata, metadata_end - metadata)
        return code

    def scopes_of(self, code: Code, address: int) -> Iterator[tuple[int, int]]:
        """Method and bytecode of a call that returns to an address, the innermost first."""
        at = bisect.bisect_left(code.offsets, address - code.begin)
        scope = code.scopes[at] if at < len(code.scopes) else 0
        for _ in range(INLINED_MOST):
            if scope <= 0:
                return
            caller, at = read_packed(code.data, scope, self.base)
            number, at = read_packed(code.data, at, self.base)
            bytecode, at = read_packed(code.data, at, self.base)
            if number:
                if 8 * number > len(code.metadata):
                    raise Unreadable
                yield struct.unpack_from("<Q", code.metadata, 8 * (number - 1))[0], bytecode - 1
            # A caller is written before the methods inlined into it.
            if caller >= scope:
                return
            scope = caller

    def symbol(self, address: int) -> str:
        length = self.layout.get(address, "Symbol", "_length", "H")
        content = self.memory.read(address + self.layout.place("Symbol", "_body[0]"), length)
        return printable(content.decode("utf-8", "replace"))[:NAME_MOST]

    def method(self, address: int) -> Method:
        if address not in self.methods:
            self.methods[address] = self.read_method(address)
        return self.methods[address]

    def read_method(self, address: int) -> Method:
        get, memory = self.layout.get, self.memory
        own = get(address, "Method", "_constMethod")
        pool = get(own, "ConstMethod", "_constants")
        entries = pool + self.layout.size("ConstantPool")

        def entry(index: int) -> str:
            return self.symbol(memory.number(entries + 8 * index, "Q"))

        holder = get(pool, "ConstantPool", "_pool_holder")
        owner = PARTS.sub("", self.symbol(get(holder, "Klass", "_name")))
        name = entry(get(own, "ConstMethod", "_name_index", "H"))
        source = get(pool, "ConstantPool", "_source_file_name_index", "H")
        # Without the source's name the class has a file of this name.
        file = owner + ".class"
        if source:
            file = str(PurePosixPath(owner).parent / entry(source))
        # The table of lines is behind the bytecodes, and those behind the structure.
        flags = "_flags" if self.layout.has("ConstMethod", "_flags") else "_flags._flags"
        lines: list[tuple[int, int]] = []
        if get(own, "ConstMethod", flags, "B") & HAS_LINES:
            skipped = self.layout.size("ConstMethod") + get(own, "ConstMethod", "_code_size", "H")
            whole = 8 * get(own, "ConstMethod", "_constMethod_size", "i")
            lines = read_lines(memory.read(own + skipped, whole - skipped), self.base)
        return Method(f"{owner.replace('/', '.')}.{name}", file, lines)

    def lines_at(self, return_address: int) -> tuple[Line, ...]:
        """The methods that a return address is in, the innermost first; none outside of the cache.

        Code that is no method's, as the interpreter's, has the machine's name for it. A name stays
        when the code goes.
        """
        if lines := self.found.get(return_address):
            return lines
        try:
            lines = self.find(return_address)
        except Unreadable:
            return ()
        if lines:
            self.found[return_address] = lines
        return lines

    def look_again(self) -> None:
        """Other code may be where some was, and other methods where their classes were."""
        self.codes.clear()
        self.methods.clear()

    def find(self, return_address: int) -> tuple[Line, ...]:
        # The call is in front of it, and may end the block.
        code = self.code_at(return_address - 1)
        if code is None:
            return ()
        if not code.method:
            return (Line(code.name),)
        outer = self.method(code.method)
        try:
            scopes = list(self.scopes_of(code, return_address))
            lines = [self.method(method).line_at(bytecode) for method, bytecode in scopes]
        except Unreadable:
            lines = []
        # A native method has no records.
        return tuple(lines) or (outer.line(),)


def open_machine(
    process: int, mappings: Sequence[Mapping], roots: Sequence[Path]
) -> Machine | None:
    """The machine of a process; None if there is none that can be read."""
    library = next(
        (one for one in mappings if PurePosixPath(one.path).name == LIBRARY and not one.offset),
        None,
    )
    if library is None:
        return None
    places = addresses_of((STRUCTS, TYPES), library.path, roots)
    if len(places) != 2:
        return None
    memory = None
    try:
        memory = Memory(process)
        return Machine(memory, *(library.start + places[name] for name in (STRUCTS, TYPES)))
    except Unreadable:
        if memory is not None:
            memory.close()
        return None
