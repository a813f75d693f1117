# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The explorer's twins of the restartable sequences do what the assembly does.

Every copy of a sequence in the built libraries runs in an emulated processor, and its twin
(percpu/sequences.h) in C, on equal memory: the accesses to memory that others see must be equal,
one after the other, with their values. Each copy is also aborted in front of each of its
instructions, as the kernel does it.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import random
import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import unicorn
from built_otherwise import KINDS, BuildError, build_library, is_missing
from sequences import (
    CPU_FIELD,
    CS_FIELD,
    SEQUENCES,
    SHEAF_OBJECTS,
    SHEAF_SIZE,
    SLOT_POINTERS,
    Library,
    Sequence,
)
from unicorn import arm64_const, x86_const

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "ports"))
from built import PORTS, build, need  # noqa: E402

BUILT = {
    "libkmem": "src/libkmem.so",
    "libkmem-malloc": "src/libkmem-malloc.so",
    "inlined in a program": "tests/unit/test_inlined",
}
AARCH64 = next(port for port in PORTS if port.name == "aarch64")
OTHERWISE = {str(kind): kind for kind in KINDS}
LIBRARIES = [*BUILT, "AArch64's libkmem", "AArch64's libkmem-malloc", *OTHERWISE]
TWINS = ROOT / "build" / "tests" / "explore" / "libtwins.so"

LOADED = 0x10_0000_0000  # where the library lies in the emulated processor's memory
PAGE = 4096
# Offsets in the memory that both run on.
THREAD, WORDS, TABLE, SLOT, SHEAVES, ARRAY, PAIR, OBJECTS, END = (
    0x1000, 0x3000, 0x10000, 0x20000, 0x60000, 0x70000, 0x71000, 0x80000, 0x90000
)  # fmt: skip
AREA, NUMBER = 0x100, 0x180  # from the thread pointer: the rseq area, the slot's number
SHEAF_BYTES, ROOM, OFFSET = 0x1000, 40, 0x150
MARK = int(
    re.search(r"FREED_MARK_NUMBER (-0x\w+)", (ROOT / "src/percpu/freed.h").read_text())[1],  # type: ignore[index]
    16,
)
STATES = 40
STEPS_MAX = 2000  # more than any sequence makes
CALLS = ("call", "syscall", "push", "pop", "bl", "blr", "svc")
NOPS = {"EM_X86_64": b"\x90", "EM_AARCH64": bytes.fromhex("1f2003d5")}
STRANGER = 0x1234_5678_9ABC


class Step(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("bytes", ctypes.c_uint32),
        ("is_store", ctypes.c_uint32),
    )


class Arguments(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("place", "offset", "objects", "count", "slot", "expected", "new_pair")
    )


@dataclass(frozen=True)
class Access:
    """An access to memory, at an offset in the arena."""

    is_store: bool
    at: int
    bytes: int
    value: int

    def __str__(self) -> str:
        verb = "store" if self.is_store else "load"
        return f"{verb} {self.bytes} at {self.at:#x}: {self.value:#x}"


class Twins:
    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(TWINS))
        layout = (ctypes.c_uint64 * 6).in_dll(self.library, "layout")
        self.slot_bytes, self.pairs, self.stopped = layout[:3]
        self.library.run.restype = ctypes.c_uint64
        self.library.run.argtypes = [
            ctypes.c_int,
            ctypes.POINTER(Arguments),
            ctypes.c_uint64,
            ctypes.c_uint64,
        ]

    def run(self, name: str, state: State, base: int) -> tuple[list[Access], int]:
        arguments = Arguments(
            base + TABLE + 8 * state.number,
            OFFSET * 16,
            base + ARRAY,
            state.count,
            state.slot - self.pairs,
            base + PAIR + 16,
            base + PAIR,
        )
        result = self.library.run(
            SEQUENCES.index(name), ctypes.byref(arguments), state.heap_base, state.outside
        )
        count = ctypes.c_uint32.in_dll(self.library, "steps_count").value
        steps = (Step * count).in_dll(self.library, "steps")
        return [
            Access(bool(one.is_store), one.address - base, one.bytes, one.value) for one in steps
        ], result


@pytest.fixture(scope="module")
def twins() -> Twins:
    return Twins()


@pytest.fixture(scope="module")
def arena() -> Iterator[tuple[mmap.mmap, int]]:
    memory = mmap.mmap(-1, END)
    yield memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


@dataclass
class State:
    """What a sequence finds."""

    number: int  # of the slot
    size: int
    capacity: int
    count: int
    heap_base: int
    outside: int
    content: bytes  # of the arena
    object: int
    slot: int  # that replace expects the thread on
    expected: tuple[int, int]


def make_state(draw: random.Random, name: str, twins: Twins, base: int) -> State:
    content = bytearray(END)

    def put(at: int, form: str, *values: int) -> None:
        struct.pack_into("<" + form, content, at, *values)

    capacity = draw.randint(1, ROOM - 1)
    size = draw.choice([0, capacity, draw.randint(0, capacity), draw.randint(0, capacity)])
    number = draw.randrange(8)
    # A slot's pairs begin in the middle of a page or with it; others' places have another slot.
    main, spare = (base + SHEAVES + one * SHEAF_BYTES for one in (0, 1))
    pairs = SLOT + twins.pairs
    put(TABLE + 8 * number, "Q", base + pairs)
    put(pairs + OFFSET * 16, "QQ", main, spare | draw.getrandbits(1))
    stopped = draw.random() < 0.2
    put(SLOT + twins.stopped, "I", stopped)
    places = [base + OBJECTS + 64 * one for one in range(ROOM * 2)]
    draw.shuffle(places)
    for at, one in ((SHEAVES, size), (SHEAVES + SHEAF_BYTES, 3)):
        put(at + SHEAF_SIZE, "II", one, capacity)
        put(at + SHEAF_OBJECTS, f"{one}Q", *places[:one])
    count = draw.randint(1, ROOM)
    array = places[ROOM:][:count]
    if name == "push_bulk" and draw.random() < 0.5:
        array[draw.randrange(count)] = draw.choice([0, STRANGER])
    one = draw.choice([array[0], places[size - 1]]) if size else array[0]
    if name in ("push", "push_marked"):
        array[0] = one
    if name != "pop_bulk":
        put(ARRAY, f"{len(array)}Q", *array)
    put(THREAD + AREA + CPU_FIELD, "i", draw.randrange(4))
    put(THREAD + NUMBER, "I", number)
    found = struct.unpack_from("<QQ", content, pairs + OFFSET * 16)
    expected = draw.choice([found, found, found, (found[0], 8), (8, found[1])])
    put(PAIR, "QQ", base + SHEAVES + 2 * SHEAF_BYTES, base + SHEAVES + 3 * SHEAF_BYTES)
    put(PAIR + 16, "QQ", *expected)
    slot = base + pairs + draw.choice([0, 0, 0, 16])
    put(WORDS, "QQQ", NUMBER, base + OBJECTS, ~0xFFFF & (1 << 64) - 1)
    return State(
        number, size, capacity, count, base + OBJECTS, ~0xFFFF & (1 << 64) - 1,
        bytes(content), one, slot, (expected[0], expected[1]),
    )  # fmt: skip


class Processor:
    """An emulated processor with a library in its memory, and the arena at its real address."""

    def __init__(self, library: Library, twins: Twins, base: int) -> None:
        self.base, self.twins = base, twins
        self.is_x86 = library.machine == "EM_X86_64"
        self.machine: Any = (
            unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
            if self.is_x86
            else unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        )
        self.named = named(x86_const, "UC_X86_REG_") if self.is_x86 else AARCH64_REGISTERS
        top = max(start + size for start, _, size in library.segments)
        self.machine.mem_map(LOADED, (top // PAGE + 2) * PAGE)
        for start, content, _ in library.segments:
            self.machine.mem_write(LOADED + start, bytes(content))
        self.machine.mem_map(base, END)
        kinds = unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE
        self.machine.hook_add(kinds, self.note)
        self.machine.hook_add(unicorn.UC_HOOK_CODE, self.step)
        self.accesses: list[tuple[int, Access]] = []
        self.addresses: list[int] = []
        self.inside: Callable[[int], bool] = lambda address: True
        self.left = False
        self.limit = STEPS_MAX

    def note(self, machine: Any, kind: int, at: int, size: int, value: int, _: object) -> None:
        is_store = kind == unicorn.UC_MEM_WRITE
        if not is_store:
            value = int.from_bytes(machine.mem_read(at, size), "little")
        assert size <= 8, f"an access of {size} bytes came in one"
        access = Access(is_store, at - self.base, size, value & (1 << 8 * size) - 1)
        self.accesses.append((self.addresses[-1], access))

    def step(self, machine: Any, address: int, size: int, _: object) -> None:
        if len(self.addresses) == self.limit:
            machine.emu_stop()
        elif self.inside(address - LOADED):
            self.addresses.append(address - LOADED)
        else:
            self.left = True
            machine.emu_stop()

    def load(self, sequence: Sequence, state: State) -> None:
        """Registers and memory at the sequence's entry."""
        machine, base = self.machine, self.base
        machine.mem_write(base, state.content)
        for name in X86_REGISTERS if self.is_x86 else AARCH64_REGISTERS:
            machine.reg_write(self.named[name], 0xDEAD_0000_0000_0000 + self.named[name])
        if self.is_x86:
            for number in range(6):
                machine.reg_write(self.named[f"xmm{number}"], 0xDEAD << 112 | 0xBEEF << 48)
            machine.reg_write(x86_const.UC_X86_REG_FS_BASE, base + THREAD)
        values = {
            "work": LOADED + sequence.descriptor,
            "rseq": AREA,
            "slot_field": NUMBER,
            "map": base + TABLE - SLOT_POINTERS,
            "offset": OFFSET * 16,
            "object": state.object,
            "objects": base + ARRAY,
            "count": state.count,
            "slot": state.slot,
            "main": state.expected[0],
            "spare": state.expected[1],
            "new_pair": base + PAIR,
            # AArch64 has some of these in registers of their own, some ready computed.
            "area": base + THREAD + AREA,
            "thread": base + THREAD,
            "slots": base + TABLE,
            "mark": MARK & (1 << 64) - 1,
            "base": state.heap_base,
            "outside": state.outside,
            "stopped": state.slot - self.twins.pairs + self.twins.stopped,
            "pair": state.slot + OFFSET * 16,
            "new_main": struct.unpack_from("<Q", state.content, PAIR)[0],
            "new_spare": struct.unpack_from("<Q", state.content, PAIR + 8)[0],
        }
        for role, register in sequence.roles.registers.items():
            machine.reg_write(self.named[register_name(sequence, register)], values[role])
        words = {"slot_field": NUMBER, "base": state.heap_base, "outside": state.outside}
        for role, memory in sequence.roles.memory.items():
            self.put_word(sequence, memory, words[role])

    def put_word(self, sequence: Sequence, memory: Any, value: int) -> None:
        """A word of the library's data, relative to the instruction or to a register."""
        name = register_name(sequence, memory.base)
        if name == "rip":
            at = next(
                LOADED + one.address + one.size + memory.disp
                for one in sequence.instructions
                if any(
                    part.type == 3 and part.mem.base == memory.base and part.mem.disp == memory.disp
                    for part in one.operands
                )
            )
        else:
            at = self.base + WORDS + 0x400 + memory.disp
            self.machine.reg_write(self.named[name], self.base + WORDS + 0x400)
        self.machine.mem_write(at, struct.pack("<Q", value))

    def run(self, sequence: Sequence, start: int, instructions: int = 0) -> None:
        """Until the sequence is left, has committed, or has made that many instructions."""
        self.left = False
        cold = {sequence.abort, sequence.last_abort}
        self.inside = lambda address: (
            sequence.entry <= address < sequence.end
            or any(one <= address < one + 16 for one in cold)
        )
        self.addresses.clear()
        self.accesses.clear()
        self.limit = instructions or STEPS_MAX
        self.machine.emu_start(LOADED + start, LOADED + sequence.end)

    @property
    def committed(self) -> bool:
        return not self.left

    def memory(self) -> bytes:
        return bytes(self.machine.mem_read(self.base, END))


def named(constants: Any, prefix: str) -> dict[str, int]:
    return {
        name[len(prefix) :].lower(): number
        for name, number in vars(constants).items()
        if name.startswith(prefix)
    }


X86_REGISTERS = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", *(f"r{n}" for n in range(8, 16))]
AARCH64_REGISTERS = {
    name: number
    for name, number in named(arm64_const, "UC_ARM64_REG_").items()
    if re.fullmatch(r"x\d+|lr|fp", name)
}


def register_name(sequence: Sequence, register: int) -> str:
    return str(sequence.instructions[0].reg_name(register))


def seen_by_others(sequence: Sequence, processor: Processor, state: State) -> list[Access]:
    """The accesses to slots and sheaves; all others must be of the thread's own."""
    name, last = sequence.name, sequence.instructions[-1].address
    seen = []
    for where, one in processor.accesses:
        if TABLE <= one.at < ARRAY:
            # A commit may read the words that it changes.
            if where != last or one.is_store:
                seen.append(one)
        elif ARRAY <= one.at < PAIR:
            assert one.is_store == (name == "pop_bulk"), f"{name}: {one}"
        elif OBJECTS <= one.at < END:
            mark = Access(True, one.at, 8, MARK & (1 << 64) - 1)
            assert name == "push_marked" and one == mark, f"{name}: {one}"
        elif THREAD <= one.at < WORDS:
            allowed = THREAD + AREA + CS_FIELD if one.is_store else None
            assert not one.is_store or one.at == allowed, f"{name}: {one}"
        else:
            assert not one.is_store, f"{name}: {one}"
    # An empty sheaf has its size where its newest object would be, which is no address.
    if name == "push" and state.size == 0:
        size = Access(False, SHEAVES + SHEAF_SIZE, 8, state.capacity << 32)
        seen = [one for one in seen if one != size]
    return seen


def library_or_skip(name: str) -> Library:
    if not TWINS.exists():
        pytest.skip(f"{TWINS} is not built")
    if name not in BUILT:
        return Library(build(need(AARCH64)) / f"{name.split()[1]}.so")
    if platform.machine() != "x86_64":
        pytest.skip("the host's libraries are read on x86-64 only")
    return Library(ROOT / "build" / BUILT[name])


def built_otherwise_or_skip(name: str, folder: Path) -> Library:
    kind = OTHERWISE[name]
    if not TWINS.exists():
        pytest.skip(f"{TWINS} is not built")
    if platform.machine() != "x86_64":
        pytest.skip("the host's libraries are read on x86-64 only")
    if is_missing(kind):
        pytest.skip(f"{kind.compiler} is not installed")
    try:
        library = Library(build_library(ROOT / "build", kind, folder))
    except BuildError as error:
        pytest.fail(f"{name}: {error}")
    assert {one.name for one in library.sequences} == set(SEQUENCES)
    return library


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    if request.param in OTHERWISE:
        return built_otherwise_or_skip(request.param, tmp_path_factory.mktemp("sequences"))
    return library_or_skip(request.param)


def succeeded(name: str, result: int) -> bool:
    return result == 0 if name == "push" else result != 0


def compare(
    processor: Processor, sequence: Sequence, state: State, twins: Twins, memory: mmap.mmap
) -> None:
    """Runs both; fails if they differ."""
    memory[:] = state.content
    expected, result = twins.run(sequence.name, state, processor.base)
    processor.load(sequence, state)
    processor.run(sequence, sequence.entry)
    made = seen_by_others(sequence, processor, state)
    # AArch64 loads both words of the pair before it compares the first.
    if sequence.name == "replace" and not processor.is_x86 and made[:-1] == expected:
        del made[-1]
    if made != expected:
        raise AssertionError(f"{sequence}: " + "\n".join(map(str, made)))
    assert processor.committed == succeeded(sequence.name, result), sequence
    check_memory(sequence, state, processor, bytes(memory))
    if processor.committed:
        check_commit(sequence, processor)


def test_equal_steps(library: Library, twins: Twins, arena: tuple[mmap.mmap, int]) -> None:
    memory, base = arena
    processor = Processor(library, twins, base)
    ways: set[tuple[str, bool]] = set()
    for sequence in library.sequences:
        draw = random.Random(sequence.name)
        for _ in range(STATES):
            state = make_state(draw, sequence.name, twins, base)
            compare(processor, sequence, state, twins, memory)
            ways.add((sequence.name, processor.committed))
    assert ways == {(one.name, way) for one in library.sequences for way in (False, True)}


@pytest.mark.parametrize("machine", ["libkmem-malloc", "AArch64's libkmem-malloc"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_each_instruction_is_compared(
    name: str, machine: str, twins: Twins, arena: tuple[mmap.mmap, int]
) -> None:
    """With any instruction of a sequence left out, it is another than its twin."""
    memory, base = arena
    library = library_or_skip(machine)
    processor = Processor(library, twins, base)
    sequence = next(one for one in library.sequences if one.name == name)
    unneeded = []
    for instruction in sequence.instructions:
        place, size = LOADED + instruction.address, instruction.size
        nop = NOPS[library.machine]
        processor.machine.mem_write(place, nop * (size // len(nop)))
        processor.machine.ctl_remove_cache(place, place + size)
        try:
            draw = random.Random(name)
            for _ in range(10 * STATES):
                state = make_state(draw, name, twins, base)
                compare(processor, sequence, state, twins, memory)
            leave_unregistered(processor, sequence, state)
        except (AssertionError, unicorn.UcError):
            pass
        else:
            unneeded.append(str(instruction))
        processor.machine.mem_write(place, bytes(instruction.bytes))
        processor.machine.ctl_remove_cache(place, place + size)
    assert unneeded == []


def check_equal(sequence: Sequence, content: bytes | bytearray, expected: bytes) -> None:
    """But for the page of the library's words. Not by assert: pytest is slow to show bytes."""
    for first, end in ((0, WORDS), (WORDS + PAGE, END)):
        if content[first:end] != expected[first:end]:
            at = next(at for at in range(first, end) if content[at] != expected[at])
            raise AssertionError(f"{sequence}: {content[at]} at {at:#x}; expected {expected[at]}")


def check_memory(sequence: Sequence, state: State, processor: Processor, twin: bytes) -> None:
    """All memory is as the twin left it, but for the thread's area and the mark."""
    content = bytearray(processor.memory())
    area = THREAD + AREA + CS_FIELD
    content[area : area + 8] = bytes(8)
    if sequence.name == "push_marked":
        at = state.object - processor.base
        mark = struct.pack("<q", MARK)
        assert not processor.committed or content[at : at + 8] == mark, sequence
        content[at : at + 8] = bytes(8)
    check_equal(sequence, content, twin)


def check_commit(sequence: Sequence, processor: Processor) -> None:
    """The last instruction commits, alone: what is stored before it, nobody reads."""
    last = sequence.instructions[-1].address
    stores = [(where, one) for where, one in processor.accesses if one.is_store]
    commits = [one for where, one in stores if where == last]
    assert commits, f"{sequence} ends without a store"
    if sequence.name == "replace":
        whole = sequence.instructions[-1].mnemonic
        assert whole in ("movaps", "stlxp"), f"{sequence}: {whole}"
    else:
        assert [(one.at, one.bytes) for one in commits] == [(SHEAVES + SHEAF_SIZE, 4)]


def check_nothing_changed(sequence: Sequence, state: State, found: bytes, base: int) -> None:
    """But for words that are the thread's own, or above the sheaf's size."""
    content = bytearray(found)
    own = [(THREAD + AREA + CS_FIELD, 8)]
    if sequence.name == "pop_bulk":
        own.append((ARRAY, ROOM * 8))
    if sequence.name in ("push", "push_marked", "push_bulk"):
        own.append((SHEAVES + SHEAF_OBJECTS + 8 * state.size, (ROOM + 1) * 8))
    if sequence.name == "push_marked":
        own.append((state.object - base, 8))
    for at, size in own:
        content[at : at + size] = state.content[at : at + size]
    check_equal(sequence, content, state.content)


def test_aborts(library: Library, twins: Twins, arena: tuple[mmap.mmap, int]) -> None:
    """Aborted once, a sequence does all the same; aborted twice, it leaves with nothing done."""
    _, base = arena
    processor = Processor(library, twins, base)
    for sequence in library.sequences:
        draw = random.Random(sequence.name)
        while True:
            state = make_state(draw, sequence.name, twins, base)
            processor.load(sequence, state)
            processor.run(sequence, sequence.entry)
            # The longest ways are those that commit; a few objects are enough.
            if processor.committed and state.count < 20:
                break
        done, steps = processor.memory(), len(processor.addresses)
        for count in range(2, steps):  # the first instruction is in front of the sequence
            processor.load(sequence, state)
            processor.run(sequence, sequence.entry, count)
            named = struct.unpack_from("<Q", processor.memory(), THREAD + AREA + CS_FIELD)[0]
            assert named == LOADED + sequence.descriptor, sequence
            check_nothing_changed(sequence, state, processor.memory(), base)
            clear(processor)
            processor.run(sequence, sequence.abort)
            assert processor.committed, sequence
            again = bytearray(processor.memory())
            named = struct.unpack_from("<Q", again, THREAD + AREA + CS_FIELD)[0]
            assert named == LOADED + sequence.aborted_descriptor, sequence
            at = THREAD + AREA + CS_FIELD
            again[at : at + 8] = done[at : at + 8]
            check_equal(sequence, again, done)
        processor.load(sequence, state)
        processor.run(sequence, sequence.entry, steps - 1)
        clear(processor)
        processor.run(sequence, sequence.last_abort)
        assert not processor.committed, sequence
        check_nothing_changed(sequence, state, processor.memory(), base)


def clear(processor: Processor) -> None:
    """As the kernel does at an abort."""
    at = processor.base + THREAD + AREA + CS_FIELD
    processor.machine.mem_write(at, bytes(8))


def leave_unregistered(processor: Processor, sequence: Sequence, state: State) -> None:
    """A thread without a registered area must leave before it reads a slot."""
    processor.load(sequence, state)
    at = processor.base + THREAD + AREA + CPU_FIELD
    processor.machine.mem_write(at, struct.pack("<i", -1))
    processor.run(sequence, sequence.entry)
    assert not processor.committed, sequence
    assert seen_by_others(sequence, processor, state) == [], sequence


def test_without_registration(library: Library, twins: Twins, arena: tuple[mmap.mmap, int]) -> None:
    _, base = arena
    processor = Processor(library, twins, base)
    for sequence in library.sequences:
        state = make_state(random.Random(1), sequence.name, twins, base)
        leave_unregistered(processor, sequence, state)


def test_form(library: Library) -> None:
    """What the kernel and debuggers ask of sequences (rseq(2))."""
    for sequence in library.sequences:
        for one in (sequence.abort, sequence.last_abort):
            assert library.read(one - 4, 4) == library.signature, sequence
            assert not sequence.start <= one < sequence.end, sequence
        assert sequence.aborted_descriptor == sequence.descriptor + 32, sequence
        for instruction in sequence.instructions:
            assert instruction.mnemonic not in CALLS, instruction
    assert {one.name for one in library.sequences} <= set(SEQUENCES)


def test_each_sequence_is_there() -> None:
    library = library_or_skip("libkmem-malloc")
    assert {one.name for one in library.sequences} == set(SEQUENCES)
