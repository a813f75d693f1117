# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The stacks that a process has sampled, and how much was allocated at each."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kmem.common.text import printable
from kmem.live.lines import Line
from kmem.live.registry.file import RECORD_HEAD, RECORD_NAME, RECORD_STACK, Registry
from kmem.live.registry.layout import RegistryError

FRAMES_MOST = 128  # of a stack; the address 0 stands for the others
PYTHON_MOST = 64  # functions in Python, which stand behind the frames
PYTHON, ENTRY = 1 << 63, 1 << 62  # the marks of such a function, and of one that C code called
NAME_MOST_BYTES = 1024
OBJECTS = 1024  # parts of an object that the process counts in

# Return addresses, innermost first, and then functions in Python, the innermost of these first.
Stack = tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """Samples of a stack. The freed counts are at most as large as the others."""

    samples: int = 0
    objects: float = 0
    size: int = 0
    freed_samples: int = 0
    freed_objects: float = 0
    freed_size: int = 0
    slice_samples: int = 0  # the part of samples, objects and size that came in slices
    slice_objects: float = 0
    slice_size: int = 0

    def since(self, before: "Counts") -> "Counts":
        """The difference to an earlier look at this stack."""
        return Counts(
            self.samples - before.samples,
            self.objects - before.objects,
            self.size - before.size,
            self.freed_samples - before.freed_samples,
            self.freed_objects - before.freed_objects,
            self.freed_size - before.freed_size,
            self.slice_samples - before.slice_samples,
            self.slice_objects - before.slice_objects,
            self.slice_size - before.slice_size,
        )

    @property
    def live_samples(self) -> int:
        return max(self.samples - self.freed_samples, 0)

    @property
    def live_objects(self) -> float:
        return max(self.objects - self.freed_objects, 0)

    @property
    def live_size(self) -> int:
        return max(self.size - self.freed_size, 0)


def read_stacks(registry: Registry) -> dict[Stack, Counts]:
    """All sampled stacks; freed counts are read before allocated counts."""
    found: dict[Stack, Counts] = {}
    copy = registry.copy()
    for at in stack_places(registry, copy):

        def read(name: str, at: int = at) -> int:
            return registry.number("stack", name, at)

        freed = (read("freed_samples"), read("freed_objects") / OBJECTS, read("freed_bytes"))
        all_ = (read("samples"), read("objects") / OBJECTS, read("bytes"))
        slices = (0, 0.0, 0)
        if "slice_samples" in registry.parts["stack"]:
            slices = (
                read("slice_samples"),
                read("slice_objects") / OBJECTS,
                read("slice_bytes"),
            )
        found[stack_at(registry, copy, at)] = Counts(*all_, *freed, *slices)
    return found


def count_samples(registry: Registry) -> int:
    """All samples that were ever taken."""
    return sum(
        registry.number("stack", "samples", at) for at in stack_places(registry, registry.copy())
    )


def stack_places(registry: Registry, copy: bytes) -> Sequence[int]:
    return registry.records(copy)[RECORD_STACK]


def all_stacks(registry: Registry) -> list[Stack]:
    copy = registry.copy()
    return [stack_at(registry, copy, at) for at in stack_places(registry, copy)]


def stack_at(registry: Registry, copy: bytes, at: int) -> Stack:
    """The stack of a record.

    A record with more frames than the field has is longer. Its length is that of the copy, which
    was checked: the process may change its own.
    """
    place = registry.parts["stack"]["frame"]
    _, size = RECORD_HEAD.unpack_from(copy, at)
    frames = registry.number("stack", "frames", at)
    frames = min(frames, (size - place.offset) // 8, FRAMES_MOST + 1 + PYTHON_MOST)
    addresses = registry.content(at + place.offset, 8 * frames)
    if len(addresses) != 8 * frames:
        raise RegistryError(f"{registry.path}: a stack lies behind the end")
    return struct.unpack(f"<{frames}Q", addresses)


def read_names(registry: Registry) -> dict[int, Line]:
    """Functions in Python by their numbers, without lines."""
    found: dict[int, Line] = {}
    if "text" not in registry.parts["name"]:
        return found
    copy = registry.copy()
    offset = registry.parts["name"]["text"].offset
    for at in registry.records(copy)[RECORD_NAME]:
        _, size = RECORD_HEAD.unpack_from(copy, at)
        length = min(registry.number("name", "bytes", at), size - offset, NAME_MOST_BYTES)
        text = copy[at + offset : at + offset + length].decode("utf-8", "replace")
        function, _, file = text.partition("\0")
        found[registry.number("name", "number", at)] = Line(printable(function), printable(file))
    return found


def python_line(frame: int, names: dict[int, Line]) -> Line | None:
    """What a frame with the mark of Python stands for; None if no function had begun."""
    number, line = frame & 0xFFFFFF, frame >> 32 & 0xFFFFFF
    if number == 0 and line == 0:
        return None
    known = names.get(number, Line("[Python]"))
    return Line(known.function, known.file, line)
