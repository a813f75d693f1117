# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The restartable sequences of a built library: where they are, and which register holds what.

Each sequence has two descriptors in section __rseq_cs, of equal range and with an abort address
each (kmem-sequence.h). A library has a copy of a sequence at each place that it was inlined at,
with other registers; their parts are told by the instructions that use them.
"""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import capstone
from capstone import x86
from elftools.elf.elffile import ELFFile

SEQUENCES = ("pop", "push", "push_marked", "pop_bulk", "push_bulk", "replace")
# Functions of the sources by the sequence that stands in them.
FUNCTIONS = {
    "rseq_pop": "pop",
    "kmem_sequence_pop": "pop",
    "rseq_push": "push",
    "kmem_sequence_push": "push",
    "kmem_sequence_push_short": "push",
    "push_marked": "push_marked",
    "rseq_pop_bulk": "pop_bulk",
    "rseq_push_bulk": "push_bulk",
    "rseq_replace": "replace",
}
DESCRIPTOR = struct.Struct("<IIQQQ")  # version, flags, start, length, abort address
SIGNATURE = struct.pack("<I", 0x53053053)
CS_FIELD, CPU_FIELD = 8, 4  # of a thread's rseq area: rseq_cs, cpu_id
SHEAF_SIZE, SHEAF_OBJECTS, SLOT_POINTERS = 8, 16, -65536


class Library:
    """A built program or library of x86-64."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            elf = ELFFile(file)
            self.segments = [
                (one["p_vaddr"], one.data(), one["p_memsz"]) for one in elf.iter_segments("PT_LOAD")
            ]
            section = elf.get_section_by_name("__rseq_cs")
            self.descriptors_at = section["sh_addr"]
            self.descriptors = bytearray(section.data())
            for one in elf.iter_sections("SHT_RELA"):
                for relocation in one.iter_relocations():
                    at = relocation["r_offset"] - self.descriptors_at
                    if 0 <= at < len(self.descriptors):
                        struct.pack_into("<Q", self.descriptors, at, relocation["r_addend"])
            symbols = elf.get_section_by_name(".symtab")
            self.symbols = {one.name: one["st_value"] for one in symbols.iter_symbols()}
        self.decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self.decoder.detail = True

    def read(self, address: int, size: int) -> bytes:
        for start, content, _ in self.segments:
            if start <= address < start + len(content):
                return bytes(content[address - start :][:size])
        raise AssertionError(f"{self.path}: nothing at {address:#x}")

    def decode(self, start: int, end: int) -> list[capstone.CsInsn]:
        """Instructions that fill the range exactly."""
        instructions = list(self.decoder.disasm(self.read(start, end - start), start))
        assert instructions and instructions[-1].address + instructions[-1].size == end
        return instructions

    def one(self, address: int) -> capstone.CsInsn:
        return next(self.decoder.disasm(self.read(address, 16), address))

    @cached_property
    def sequences(self) -> list[Sequence]:
        pairs = list(DESCRIPTOR.iter_unpack(self.descriptors))
        assert pairs and len(pairs) % 2 == 0
        starts = [start for _, _, start, _, _ in pairs[::2]]
        names = functions_of(self.path, starts)
        found = []
        for number, name in enumerate(names):
            assert name in FUNCTIONS, f"{self.path}: a sequence in {name}, which has no twin"
            first, second = pairs[2 * number : 2 * number + 2]
            at = self.descriptors_at + 2 * number * DESCRIPTOR.size
            found.append(Sequence(self, FUNCTIONS[name], at, first, second))
        return found


def functions_of(path: Path, addresses: list[int]) -> list[str]:
    """The function that each address stands in, inlined or not, by the debug information."""
    words = ["addr2line", "-afie", str(path), *map(hex, addresses)]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [lines.split("\n")[1] for lines in re.split(r"^(?=0x)", text, flags=re.M)[1:]]


def memory_of(instruction: capstone.CsInsn) -> x86.X86OpMem:
    return next(one.mem for one in instruction.operands if one.type == x86.X86_OP_MEM)


@dataclass
class Roles:
    """Registers by what they hold at the start, and operands in memory by what lies there."""

    registers: dict[str, int] = field(default_factory=dict)
    memory: dict[str, x86.X86OpMem] = field(default_factory=dict)


class Sequence:
    def __init__(
        self,
        library: Library,
        name: str,
        descriptor: int,
        first: tuple[int, ...],
        second: tuple[int, ...],
    ) -> None:
        self.library, self.name, self.descriptor = library, name, descriptor
        version, flags, self.start, length, self.abort = first
        assert (version, flags) == (0, 0)
        assert second[:4] == first[:4], f"{self}: two descriptors with other ranges"
        self.end = self.start + length
        self.last_abort = second[4]
        # Behind an abort the first way goes on with the store of the other descriptor.
        load = library.one(self.abort)
        jump = library.one(self.abort + load.size)
        assert load.mnemonic == "lea" and jump.mnemonic == "jmp", f"{self}: {load}, {jump}"
        self.aborted_descriptor = load.address + load.size + memory_of(load).disp
        self.entry = jump.operands[0].imm
        self.instructions = library.decode(self.start, self.end)

    def __str__(self) -> str:
        return f"{self.library.path.name}: {self.name} at {self.start:#x}"

    @cached_property
    def roles(self) -> Roles:
        return Reader(self).roles


class Reader:
    """Goes through the instructions of a sequence, each of which must be the expected one."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.rest = list(sequence.instructions)
        self.roles = Roles()
        store = sequence.library.one(sequence.entry)
        assert store.address + store.size == sequence.start, f"{sequence}: a gap behind the entry"
        self.work = store.operands[1].reg
        self.register("work", self.work)
        self.register("rseq", memory_of(store).base)
        self.read_slot()
        getattr(self, "read_" + sequence.name)()

    def register(self, role: str, register: int) -> None:
        known = self.roles.registers.setdefault(role, register)
        assert register and known == register, f"{self.sequence}: two registers for {role}"

    def find(self, *mnemonics: str, store: bool = False) -> capstone.CsInsn:
        """The next instruction of that name, with its access to memory."""
        while self.rest:
            one = self.rest.pop(0)
            if one.mnemonic in mnemonics and any(
                operand.type == x86.X86_OP_MEM
                and bool(operand.access & capstone.CS_AC_WRITE) == store
                for operand in one.operands
            ):
                return one
        raise AssertionError(f"{self.sequence}: no {mnemonics}")

    def word(self, role: str, instruction: capstone.CsInsn) -> None:
        """An operand that the compiler may have put into memory."""
        self.roles.memory[role] = memory_of(instruction)

    def read_slot(self) -> None:
        cpu = self.find("cmp")
        self.register("rseq", memory_of(cpu).base)
        number = self.find("mov")
        if memory_of(number).segment != x86.X86_REG_FS:
            self.word("slot_field", number)
            number = self.find("mov")
        else:
            self.register("slot_field", memory_of(number).base)
        self.register("map", memory_of(self.find("mov")).base)

    def read_main(self) -> None:
        """The pair's offset stands beside the slot, as base or as index."""
        memory = memory_of(self.find("mov"))
        self.register("offset", memory.index if memory.base == self.work else memory.base)

    def read_pop(self) -> None:
        self.read_main()

    def read_push(self) -> None:
        self.read_main()
        self.find("cmp")
        store = self.find("mov", store=True)
        self.register("object", store.operands[1].reg)

    def read_push_marked(self) -> None:
        self.read_main()
        self.register("object", memory_of(self.find("mov", store=True)).base)
        self.register("object", self.find("mov", store=True).operands[1].reg)

    def read_bulk(self, copies_to: str) -> None:
        self.read_main()
        compare = next(
            one
            for one in self.rest
            if one.mnemonic == "cmp" and all(part.type == x86.X86_OP_REG for part in one.operands)
        )
        self.register("count", compare.operands[1].reg)
        copy = [one for one in self.rest if one.mnemonic == "movups"]
        self.register("objects", memory_of(copy[copies_to == "array"]).base)

    def read_pop_bulk(self) -> None:
        self.read_bulk("array")

    def read_push_bulk(self) -> None:
        self.read_bulk("sheaf")
        self.word("base", next(one for one in self.rest if one.mnemonic == "movq"))
        self.word("outside", self.find("test"))

    def read_replace(self) -> None:
        slot = self.rest[0]
        self.register("slot", next(one.reg for one in slot.operands if one.reg != self.work))
        self.find("cmp")
        for role in ("main", "spare"):
            compare = self.find("cmp")
            memory = memory_of(compare)
            self.register("offset", memory.index if memory.base == self.work else memory.base)
            self.register(role, next(o.reg for o in compare.operands if o.type == x86.X86_OP_REG))
        self.register("new_pair", memory_of(self.find("movq")).base)
