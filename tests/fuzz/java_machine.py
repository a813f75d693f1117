# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A made-up memory of a Java virtual machine, with the tables that its library exports.

It has a compiled method with two others inlined, a native method and the interpreter, in the layout
of OpenJDK 17 or of 25.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from kmem.live.java_methods import Memory, Unreadable

BEGIN = 0x10000
SEGMENT_SHIFT = 6
FIELDS = {
    "Abstract_VM_Version": ("_vm_major_version",),
    "CodeCache": ("_heaps",),
    "CodeHeap": ("_memory", "_segmap", "_log2_segment_size"),
    "ConstMethod": ("_constants", "_constMethod_size", "_code_size", "_name_index"),
    "ConstantPool": ("_pool_holder", "_source_file_name_index"),
    "GrowableArray<int>": ("_data",),
    "GrowableArrayBase": ("_len",),
    "Klass": ("_name",),
    "Method": ("_constMethod",),
    "PcDesc": ("_pc_offset", "_scope_decode_offset"),
    "Symbol": ("_length", "_body[0]"),
    "VirtualSpace": ("_low", "_high"),
}
OLDER = {
    "CodeBlob": ("_name", "_code_begin", "_code_end"),
    "CompiledMethod": ("_method", "_scopes_data_begin"),
    "nmethod": ("_metadata_offset", "_scopes_pcs_offset", "_dependencies_offset"),
}
NEWER = {
    "CodeBlob": (
        *("_name", "_code_offset", "_data_offset"),
        *("_mutable_data", "_mutable_data_size", "_relocation_size"),
    ),
    "nmethod": (
        *("_method", "_immutable_data", "_immutable_data_size"),
        *("_scopes_pcs_offset", "_scopes_data_offset"),
    ),
}
# In words of eight bytes, one for each field and some for both of a block's classes.
SIZES = {"HeapBlock": 2, "PcDesc": 2, "ConstantPool": 3, "ConstMethod": 6}
BLOB_WORDS = 16


class Picture(Memory):
    """Memory that is a part of this program."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def close(self) -> None:
        pass

    def read(self, address: int, size: int) -> bytes:
        if size < 0 or not BEGIN <= address <= BEGIN + len(self.content) - size:
            raise Unreadable
        return self.content[address - BEGIN : address - BEGIN + size]


def packed(number: int, base: int) -> bytes:
    """A number as HotSpot writes it: the last byte is below 192, unless there are five."""
    content, low = b"", 192 - base
    while number >= low and len(content) < 4:
        number -= low
        content += bytes([base + low + number % 64])
        number //= 64
    return content + bytes([base + number])


def steps(lines: list[tuple[int, int]], base: int) -> bytes:
    """A table of bytecodes and lines."""
    content, bytecode, line = b"", 0, 0
    for at, number in lines:
        more, down = at - bytecode, number - line
        if 0 <= more < 31 and 0 <= down < 8 and (more or down):
            content += bytes([more << 3 | down])
        else:
            signed = (2 * one if one >= 0 else -2 * one - 1 for one in (more, down))
            content += b"\xff" + b"".join(packed(one, base) for one in signed)
        bytecode, line = at, number
    return content + b"\0"


@dataclass
class Machine:
    """The memory while it is made, and the addresses that a reader looks for."""

    is_newer: bool
    content: bytearray = field(default_factory=bytearray)
    structs: int = 0
    types: int = 0
    calls: dict[str, int] = field(default_factory=dict)  # return addresses

    @property
    def base(self) -> int:
        return int(self.is_newer)

    @property
    def fields(self) -> dict[str, tuple[str, ...]]:
        flags = "_flags._flags" if self.is_newer else "_flags"
        found = FIELDS | (NEWER if self.is_newer else OLDER)
        return found | {"ConstMethod": (*FIELDS["ConstMethod"], flags)}

    def put(self, content: bytes) -> int:
        """At a place of eight bytes, which it returns."""
        self.content += bytes(-len(self.content) % 8)
        at = BEGIN + len(self.content)
        self.content += content
        return at

    def words(self, *values: int) -> int:
        return self.put(struct.pack(f"<{len(values)}Q", *values))

    def write(self, at: int, kind: str, **values: int) -> int:
        """Into the fields of a structure."""
        for name, value in values.items():
            place = at - BEGIN + self.offset(kind, name)
            struct.pack_into("<Q", self.content, place, value)
        return at

    def made(self, kind: str, **values: int) -> int:
        return self.write(self.words(*[0] * BLOB_WORDS), kind, **values)

    def offset(self, kind: str, name: str) -> int:
        names = self.fields[kind]
        if kind == "Symbol":
            return (0, 2)[names.index(name)]
        if kind == "PcDesc":
            return 4 * names.index(name)
        # A compiled method's fields lie behind those of its block.
        behind = len(self.fields["CodeBlob"]) if kind in ("CompiledMethod", "nmethod") else 0
        if kind == "nmethod" and not self.is_newer:
            behind += len(OLDER["CompiledMethod"])
        # Only as many bytes of a word are read as the field has.
        return 8 * (behind + names.index(name))

    def text(self, text: str) -> int:
        return self.put(text.encode() + b"\0")

    def symbol(self, text: str) -> int:
        return self.put(struct.pack("<H", len(text.encode())) + text.encode())

    def method(self, owner: str, name: str, source: str, lines: list[tuple[int, int]]) -> int:
        klass = self.made("Klass", _name=self.symbol(owner))
        names = [self.symbol(text) for text in (name, source)]
        pool = self.write(self.words(0, 0, 0, 0, *names), "ConstantPool", _pool_holder=klass)
        own = self.words(*[0] * SIZES["ConstMethod"])
        code, table = bytes(40), steps(lines, self.base)
        self.content += code + table + bytes(-len(table) % 8)
        values = {"_constants": pool, "_code_size": len(code), "_name_index": 1}
        self.write(own, "ConstMethod", **values, **{self.fields["ConstMethod"][-1]: bool(lines)})
        size = (BEGIN + len(self.content) - own) // 8
        self.write(own, "ConstMethod", _constMethod_size=size)
        self.write(pool, "ConstantPool", _source_file_name_index=2 if source else 0)
        return self.made("Method", _constMethod=own)

    def block(self, name: str, fill: Callable[[int], None]) -> int:
        """A block of the code cache, of a few segments; returns its first instruction."""
        self.content += bytes(-len(self.content) % (1 << SEGMENT_SHIFT))
        self.words(*[0] * SIZES["HeapBlock"])
        blob = self.words(*[0] * BLOB_WORDS)
        begin = self.put(bytes(256))
        text = self.text(name)
        self.write(blob, "CodeBlob", _name=text)
        if self.is_newer:
            self.write(blob, "CodeBlob", _code_offset=begin - blob, _data_offset=text - blob)
        else:
            self.write(blob, "CodeBlob", _code_begin=begin, _code_end=text)
        fill(blob)
        return begin

    def records(self, blob: int, method: int, calls: bytes, scopes: bytes, data: bytes) -> None:
        """The tables of a compiled method, the metadata in front of the scopes."""
        if self.is_newer:
            metadata = self.put(bytes(24) + data)
            tables = self.put(bytes(8) + calls + scopes)
            self.write(blob, "CodeBlob", _mutable_data=metadata, _relocation_size=24)
            self.write(blob, "CodeBlob", _mutable_data_size=24 + len(data))
            self.write(blob, "nmethod", _method=method, _immutable_data=tables)
            self.write(blob, "nmethod", _immutable_data_size=8 + len(calls) + len(scopes))
            self.write(blob, "nmethod", _scopes_pcs_offset=8, _scopes_data_offset=8 + len(calls))
        else:
            at = self.put(data + scopes + bytes(-len(scopes) % 8) + calls)
            behind = at + len(data) + len(scopes) + -len(scopes) % 8
            self.write(blob, "CompiledMethod", _method=method, _scopes_data_begin=at + len(data))
            self.write(blob, "nmethod", _metadata_offset=at - blob)
            self.write(blob, "nmethod", _scopes_pcs_offset=behind - blob)
            self.write(blob, "nmethod", _dependencies_offset=behind + len(calls) - blob)

    def make(self) -> Machine:
        remember = self.method("shop/Cart", "remember", "Cart.java", [(0, 12), (7, 13), (9, 11)])
        put = self.method("java/util/ArrayList", "add", "ArrayList.java", [(0, 900), (20, 400)])
        serve = self.method("shop/Page$$Lambda+0x00007f00", "serve", "", [(0, 5), (33, 600)])
        # A scope is its caller's place, the number of its method, and the bytecode plus 1.
        scopes, places = b"\0", []
        for number, bytecode in ((3, 34), (1, 8), (2, 3)):
            caller = places[-1] if places else 0
            places.append(len(scopes))
            scopes += b"".join(packed(one, self.base) for one in (caller, number, bytecode + 1))
        calls = ((-1, 0), (16, places[0]), (40, places[2]), (48, places[1]), (1 << 30, 0))
        table = b"".join(struct.pack("<iiii", *call, 0, 0) for call in calls)
        methods = struct.pack("<QQQ", remember, put, serve)
        self.content += bytes(-len(self.content) % (1 << SEGMENT_SHIFT))
        low = BEGIN + len(self.content)
        interpreter = self.block("Interpreter", lambda _: None)
        code = self.block("nmethod", lambda blob: self.records(blob, serve, table, scopes, methods))
        native = self.method("java/io/File", "open0", "File.java", [])
        nothing = self.block(
            "native nmethod",
            lambda blob: self.records(blob, native, struct.pack("<iiii", 16, 0, 0, 0), b"\0", b""),
        )
        self.content += bytes(-len(self.content) % (1 << SEGMENT_SHIFT))
        high = BEGIN + len(self.content)
        # Each segment says how many to go back, at most three at once here; the last one is free.
        begins = [
            (one - 8 * (BLOB_WORDS + SIZES["HeapBlock"]) - low) >> SEGMENT_SHIFT
            for one in (interpreter, code, nothing)
        ]
        segments = bytearray()
        for at in range((high - low) >> SEGMENT_SHIFT):
            segments.append(min(at - max(one for one in begins if one <= at), 3))
        segments[-1] = 0xFF
        memory = self.made("VirtualSpace", _low=low, _high=high)
        # One structure lies in the other: its fields are words of it.
        heap = self.words(*[0] * BLOB_WORDS)
        self.finish(heap, memory, self.put(bytes(segments)))
        self.calls = {
            "outer": code + 16,
            "inlined": code + 40,
            "one": code + 48,
            "between": code + 41,
            "behind": code + 200,
            "native": nothing + 16,
            "interpreter": interpreter + 100,
            "free": high - 1,
            "elsewhere": low - 8,
        }
        return self

    def finish(self, heap: int, memory: int, segments: int) -> None:
        """The code cache's list, and the exported tables."""
        low, high = struct.unpack_from("<QQ", self.content, memory - BEGIN)
        struct.pack_into("<8Q", self.content, heap - BEGIN, low, high, 0, 0, segments, 0, 0, 0)
        place = {"_memory": 0, "_segmap": 32, "_log2_segment_size": 64}
        struct.pack_into("<Q", self.content, heap - BEGIN + 64, SEGMENT_SHIFT)
        array = self.words(1, self.words(heap))
        statics = {
            "_heaps": self.words(array),
            "_vm_major_version": self.words(25 if self.is_newer else 17),
        }
        entries = b""
        for kind, names in self.fields.items():
            for name in names:
                offset = place[name] if kind == "CodeHeap" else self.offset(kind, name)
                if kind == "GrowableArray<int>":
                    offset = 8
                entry = (self.text(kind), self.text(name), 0, name in statics, 0, offset)
                entries += struct.pack("<QQQiiQQ", *entry, statics.get(name, 0))
        self.structs = self.words(self.put(entries + bytes(48)))
        entries = b"".join(
            struct.pack("<QQiiiiQ", self.text(kind), 0, 0, 0, 0, 0, 8 * size)
            for kind, size in SIZES.items()
        )
        self.types = self.words(self.put(entries + bytes(40)))
        # Texts are read in whole pages.
        self.content += bytes(-len(self.content) % 4096)


def make(*, is_newer: bool) -> Machine:
    return Machine(is_newer).make()
