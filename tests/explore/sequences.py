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
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

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
SIGNATURES = {"EM_X86_64": 0x53053053, "EM_AARCH64": 0xD428BC00}
CS_FIELD, CPU_FIELD = 8, 4  # of a thread's rseq area: rseq_cs, cpu_id
SHEAF_SIZE, SHEAF_OBJECTS, SLOT_POINTERS = 8, 16, -65536


class Library:
    """A built program or library of x86-64 or AArch64."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            elf = ELFFile(file)
            self.machine = str(elf["e_machine"])
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
        self.signature = struct.pack("<I", SIGNATURES[self.machine])
        self.decoder = (
            capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
            if self.machine == "EM_X86_64"
            else capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        )
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
        names = functions_of(self, starts)
        found = []
        for number, name in enumerate(names):
            assert name in FUNCTIONS, f"{self.path}: a sequence in {name}, which has no twin"
            first, second = pairs[2 * number : 2 * number + 2]
            at = self.descriptors_at + 2 * number * DESCRIPTOR.size
            found.append(Sequence(self, FUNCTIONS[name], at, first, second))
        return found


def functions_of(library: Library, addresses: list[int]) -> list[str]:
    """The function that each address stands in, inlined or not, by the debug information."""
    prefix = "" if library.machine == "EM_X86_64" else "aarch64-linux-gnu-"
    words = [f"{prefix}addr2line", "-afie", str(library.path), *map(hex, addresses)]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [lines.split("\n")[1] for lines in re.split(r"^(?=0x)", text, flags=re.M)[1:]]


def memory_of(instruction: capstone.CsInsn) -> x86.X86OpMem:
    # Both processors' kinds of operands have one number.
    return next(one.mem for one in instruction.operands if one.type == x86.X86_OP_MEM)


def registers_of(instruction: capstone.CsInsn) -> list[int]:
    return [one.reg for one in instruction.operands if one.type == x86.X86_OP_REG]


def touches_memory(instruction: capstone.CsInsn) -> bool:
    return any(one.type == x86.X86_OP_MEM for one in instruction.operands)


def stores(instruction: capstone.CsInsn) -> bool:
    """Of moves, loads and stores: a move's target comes first."""
    return instruction.mnemonic.startswith("st") or (
        instruction.mnemonic.startswith("mov") and instruction.operands[0].type == x86.X86_OP_MEM
    )


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
        way = [library.one(self.abort)]
        while way[-1].mnemonic not in ("jmp", "b") and len(way) < 4:
            way.append(library.one(way[-1].address + way[-1].size))
        self.entry = way[-1].operands[0].imm
        if library.machine == "EM_X86_64":
            assert [one.mnemonic for one in way] == ["lea", "jmp"], f"{self}: {way}"
            self.aborted_descriptor = way[1].address + memory_of(way[0]).disp
        else:
            assert [one.mnemonic for one in way] == ["adrp", "add", "b"], f"{self}: {way}"
            self.aborted_descriptor = way[0].operands[1].imm + way[1].operands[2].imm
        self.instructions = library.decode(self.start, self.end)

    def __str__(self) -> str:
        return f"{self.library.path.name}: {self.name} at {self.start:#x}"

    @cached_property
    def roles(self) -> Roles:
        return READERS[self.library.machine](self).roles


class Reader(ABC):
    """Goes through the instructions of a sequence, each of which must be the expected one."""

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.rest = list(sequence.instructions)
        self.roles = Roles()
        store = sequence.library.one(sequence.entry)
        assert store.address + store.size == sequence.start, f"{sequence}: a gap behind the entry"
        self.work = next(one for one in registers_of(store))
        self.register("work", self.work)
        self.register(self.area, memory_of(store).base)
        self.read_slot()
        getattr(self, "read_" + sequence.name)()

    area: ClassVar[str]  # what the register of the entry's store holds

    @abstractmethod
    def read_slot(self) -> None: ...

    def register(self, role: str, register: int) -> None:
        known = self.roles.registers.setdefault(role, register)
        assert register and known == register, f"{self.sequence}: two registers for {role}"

    def find(self, *mnemonics: str, store: bool = False) -> capstone.CsInsn:
        """The next instruction of that name, with its access to memory."""
        while self.rest:
            one = self.rest.pop(0)
            if one.mnemonic in mnemonics and touches_memory(one) and stores(one) == store:
                return one
        raise AssertionError(f"{self.sequence}: no {mnemonics}")

    def between(self, mnemonic: str) -> capstone.CsInsn:
        """The next instruction of that name, between registers."""
        while self.rest:
            one = self.rest.pop(0)
            if one.mnemonic == mnemonic and len(registers_of(one)) == len(one.operands):
                return one
        raise AssertionError(f"{self.sequence}: no {mnemonic}")


class X86(Reader):
    area = "rseq"

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

    def beside_slot(self, instruction: capstone.CsInsn) -> None:
        """The pair's offset stands beside the slot, as base or as index."""
        memory = memory_of(instruction)
        self.register("offset", memory.index if memory.base == self.work else memory.base)

    def read_main(self) -> None:
        self.beside_slot(self.find("mov"))

    def read_pop(self) -> None:
        self.read_main()

    def read_push(self) -> None:
        self.read_main()
        self.register("object", registers_of(self.find("mov", store=True))[0])

    def read_push_marked(self) -> None:
        self.read_main()
        self.register("object", memory_of(self.find("mov", store=True)).base)
        self.register("object", registers_of(self.find("mov", store=True))[0])

    def read_pop_bulk(self) -> None:
        self.read_main()
        self.register("count", registers_of(self.between("cmp"))[1])
        self.register("objects", memory_of(self.find("movups", store=True)).base)

    def read_push_bulk(self) -> None:
        self.read_main()
        self.register("count", registers_of(self.between("cmp"))[1])
        self.word("base", self.find("movq"))
        self.register("objects", memory_of(self.find("movups")).base)
        self.word("outside", self.find("test"))

    def read_replace(self) -> None:
        self.register("slot", next(o for o in registers_of(self.rest[0]) if o != self.work))
        self.find("cmp")
        for role in ("main", "spare"):
            compare = self.find("cmp")
            self.beside_slot(compare)
            self.register(role, registers_of(compare)[0])
        self.register("new_pair", memory_of(self.find("movq")).base)


class Aarch64(Reader):
    area = "area"

    def read_slot(self) -> None:
        self.register("area", memory_of(self.find("ldr")).base)
        number = memory_of(self.find("ldr"))
        self.register("thread", number.base)
        self.register("slot_field", number.index)
        self.register("slots", memory_of(self.find("ldr")).base)

    def read_main(self) -> None:
        self.register("offset", memory_of(self.find("ldr")).index)

    def read_pop(self) -> None:
        self.read_main()

    def read_push(self) -> None:
        self.read_main()
        self.register("object", registers_of(self.find("str", store=True))[0])

    def read_push_marked(self) -> None:
        self.read_main()
        mark = self.find("str", store=True)
        self.register("mark", registers_of(mark)[0])
        self.register("object", memory_of(mark).base)
        self.register("object", registers_of(self.find("str", store=True))[0])

    def read_pop_bulk(self) -> None:
        self.read_main()
        self.register("count", registers_of(self.between("cmp"))[1])
        self.register("objects", memory_of(self.find("str", store=True)).base)

    def read_push_bulk(self) -> None:
        self.read_main()
        self.register("count", registers_of(self.between("cmp"))[1])
        self.register("objects", memory_of(self.find("ldr")).base)
        self.register("base", registers_of(self.between("sub"))[2])
        self.register("outside", registers_of(self.between("tst"))[1])

    def read_replace(self) -> None:
        self.register("slot", registers_of(self.between("cmp"))[1])
        self.register("stopped", memory_of(self.find("ldr")).base)
        self.register("pair", memory_of(self.find("ldxp")).base)
        for role in ("main", "spare"):
            self.register(role, registers_of(self.between("cmp"))[1])
        store = self.rest[-1]
        assert store.mnemonic == "stlxp", f"{self.sequence}: {store}"
        self.register("pair", memory_of(store).base)
        for role, one in zip(("new_main", "new_spare"), registers_of(store)[1:3], strict=True):
            self.register(role, one)


READERS = {"EM_X86_64": X86, "EM_AARCH64": Aarch64}
