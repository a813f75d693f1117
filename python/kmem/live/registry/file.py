# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The registry of a running process, opened and checked (docs/decisions/0014-registry.md).

A registry is a file that its process keeps mapped and writes as it works. It describes its own
layout, so only the first words of its head and the description's form are known here.

Root reads registries of other users, who may put anything there, so nothing here waits for them
without limit. This module reads and writes the file and does not map it: if a mapped file is cut
off, the reader gets a signal instead of an error. Words are whole all the same: each lies at a
multiple of its size, and the kernel copies them as a program would copy from a mapping.
"""

import contextlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from kmem.common.text import printable
from kmem.live.registry.layout import (
    ARRAYS,
    HEAD_MOST_BYTES,
    TEXTS,
    RegistryError,
    read_layout,
)
from kmem.live.registry.owner import Owned, check_owner, open_file

PAGE_BYTES = 4096  # the library's pages, whatever the machine's are
RECORD_HEAD = struct.Struct("<II")  # kind and bytes of a record
RECORD_CACHE, RECORD_SLOT, RECORD_STACK, RECORD_NAME, RECORD_SAMPLES, RECORD_THREAD = range(1, 7)
RECORD_PARTS = {
    RECORD_CACHE: "cache",
    RECORD_SLOT: "slot",
    RECORD_STACK: "stack",
    RECORD_NAME: "name",
    RECORD_SAMPLES: "samples",
    RECORD_THREAD: "thread",
}

FILE_MOST_BYTES = 16 << 20  # as many as the library makes
CACHES_MOST = 1 << 12  # the library has 4,095 places for them


class Registry:
    """An open registry."""

    def __init__(self, path: Path, *, writable: bool = False, process: int | None = None) -> None:
        """@process: the owner that is expected; it is checked before any content is used."""
        self.path = path
        self.owned: Owned | None = None
        self.caches_most = CACHES_MOST
        self.caches_found = 0
        self.copied: bytes | None = None  # of which the caches were read last
        self.shown: bytes | None = None  # read in place of the file
        # O_NONBLOCK: a FIFO would wait for its other end.
        flags = os.O_NONBLOCK | os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
        self.file, owner = open_file(path, process, flags)
        try:
            self.status = os.fstat(self.file)
            self.check_file(owner)
            if process is not None:
                self.owned = check_owner(path, process, self.status)
            self.parts, self.forms = read_layout(path, self.content(0, HEAD_MOST_BYTES))
            self.process = self.number("head", "process")
            if self.owned is not None:
                self.check_head(self.owned)
        except BaseException:
            os.close(self.file)
            raise

    def check_file(self, owner: int) -> None:
        if not stat.S_ISREG(self.status.st_mode):
            raise RegistryError(f"{self.path}: not a regular file")
        if self.status.st_uid != owner:
            raise RegistryError(f"{self.path}: not a file of the user whose folder it is in")
        mode = stat.S_IMODE(self.status.st_mode)
        if mode & ~0o644:
            raise RegistryError(f"{self.path}: has mode {mode:o}; expected 600")
        if self.status.st_size > FILE_MOST_BYTES:
            raise RegistryError(f"{self.path}: too long for a registry")

    def check_head(self, owned: Owned) -> None:
        """Check that the head names the process and start time that the system gives."""
        if self.process != owned.inside:
            raise RegistryError(
                f"{self.path}: is of process {self.process}; expected process {owned.inside}"
            )
        self.process = owned.process
        if self.number("head", "start_time") not in (0, owned.started):
            raise RegistryError(f"{self.path}: its process began at another time")

    def close(self) -> None:
        os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def content(self, at: int, size: int) -> bytes:
        """Up to `size` bytes at this place; fewer at the end of the file."""
        if self.shown is not None:
            return self.shown[at : at + size]
        return os.pread(self.file, size, at)

    @contextlib.contextmanager
    def as_of(self, copy: bytes) -> Iterator[None]:
        """Reads are of this copy; it has the head and the records."""
        self.shown = copy
        try:
            yield
        finally:
            self.shown = None

    def read(self, part: str, name: str, base: int = 0) -> int | str:
        place = self.parts[part][name]
        at = base + place.offset
        data = self.content(at, place.size)
        if len(data) != place.size:
            raise RegistryError(f"{self.path}: field {name} lies behind the end")
        if (part, name) in TEXTS:
            return printable(data.split(b"\0")[0].decode("utf-8", "backslashreplace"))
        return int.from_bytes(data, "little")

    def number(self, part: str, name: str, base: int = 0) -> int:
        value = self.read(part, name, base)
        if not isinstance(value, int) or (part, name) in ARRAYS:
            raise RegistryError(f"{self.path}: field {name} is not a number")
        return value

    def write(self, part: str, name: str, base: int, value: int | bytes) -> None:
        place = self.parts[part][name]
        at = base + place.offset
        if isinstance(value, int):
            value = value.to_bytes(max((value.bit_length() + 7) // 8, 1), "little")
        if len(value) > place.size:
            raise RegistryError(f"{self.path}: field {name} of part {part} is too short")
        os.pwrite(self.file, value.ljust(place.size, b"\0"), at)

    def copy(self) -> bytes:
        """The head and the records as they are now.

        Words are whole, but may be of different moments.
        """
        used = min(self.number("head", "used_bytes"), self.status.st_size)
        return self.content(0, used & ~7)

    def records(self, copy: bytes) -> dict[int, list[int]]:
        """The places of the records of each kind."""
        found: dict[int, list[int]] = {kind: [] for kind in RECORD_PARTS}
        at = self.number("head", "head_bytes")
        if at % 64 or at < RECORD_HEAD.size:
            raise RegistryError(f"{self.path}: records at {at}; expected a multiple of 64")
        while at + RECORD_HEAD.size <= len(copy):
            kind, size = RECORD_HEAD.unpack_from(copy, at)
            if size == 0 or size % 64 or at + size > len(copy):
                # The process is making this record: it writes the length first.
                size = 64
            elif kind in found:
                part = RECORD_PARTS[kind]
                if size < self.forms[part].itemsize:
                    raise RegistryError(
                        f"{self.path}: a record of {size} bytes for a {part}; expected at least"
                        f" {self.forms[part].itemsize}"
                    )
                found[kind].append(at)
            at += size
        if len(found[RECORD_CACHE]) > self.caches_most:
            raise RegistryError(f"{self.path}: expected at most {self.caches_most:,} caches")
        return found


def alive(registry: Registry) -> bool:
    """Whether the process that made the registry still uses it (not after exec)."""
    if registry.owned is None:
        raise RegistryError(f"{registry.path}: it is not known whose it is")
    return registry.owned.still_maps(registry.status)
