# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the registries of running processes (docs/decisions/0014-registry.md).

A registry is a file that its process keeps mapped and writes as it works. It describes its own
layout, so only the first words of its head and the description's form are known here.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from kmem.setup import KmemError

MAGIC = b"libkmem\0"
VERSION = 1
START = struct.Struct("<8s4I")  # magic, version, bytes of the head, place and number of the fields
FIELD = np.dtype(
    {
        "names": ["name", "part", "offset", "bytes", "count", "value"],
        "formats": ["S32", "<u2", "<u2", "<u2", "<u2", "<u8"],
        "offsets": [0, 32, 34, 36, 38, 40],
        "itemsize": 48,
    }
)
PARTS = ("head", "request", "cache", "slot", "node", "flag", "stack")
RECORD_HEAD = struct.Struct("<II")  # kind and bytes of a record
RECORD_CACHE, RECORD_SLOT, RECORD_STACK = 1, 2, 3
REQUEST_PENDING, REQUEST_DONE = 1, 2
NUMBERS = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}

Fields = dict[str, int | str]


class RegistryError(KmemError):
    """Why a process's registry cannot be used."""


@dataclass(frozen=True)
class Place:
    """Where a field is in its part."""

    offset: int
    size: int
    count: int
    value: int


@dataclass(frozen=True)
class Cache:
    """A cache's record, its nodes, and the sums over its slots."""

    offset: int
    fields: dict[str, int | str]
    nodes: list[dict[str, int]]
    taken: int
    given: int
    flags: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        value = self.fields[name]
        assert isinstance(value, int)
        return value

    @property
    def name(self) -> str:
        return str(self.fields["name"])

    def total(self, name: str) -> int:
        return sum(node[name] for node in self.nodes)

    @property
    def handed_out(self) -> int:
        """Objects that left the back end and did not come back; never below 0."""
        return max(self.taken - self.given + self.total("refused"), 0)

    @property
    def objects(self) -> int:
        """What the slabs hold; engine slob has no slabs of its own for a cache."""
        if self.fields["engine"] == "slob":
            return self.handed_out
        return max(self.total("objects"), self.handed_out)


class Registry:
    """One registry, mapped."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self.path = path
        self.file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_NOFOLLOW)
        try:
            self.status = os.fstat(self.file)
            if self.status.st_size < START.size:
                raise RegistryError(f"{path}: too short for a registry")
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self.memory = mmap.mmap(self.file, self.status.st_size, access=access)
            self.read_layout()
        except ValueError as error:
            os.close(self.file)
            raise RegistryError(f"{path}: {error}") from None
        except BaseException:
            os.close(self.file)
            raise

    def close(self) -> None:
        self.memory.close()
        os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_layout(self) -> None:
        magic, version, head_bytes, offset, count = START.unpack_from(self.memory)
        if magic != MAGIC or version == 0:
            raise RegistryError(f"{self.path}: not a registry, or one that is being made")
        if version > VERSION:
            raise RegistryError(
                f"{self.path}: version {version}; this command knows up to {VERSION}"
            )
        if offset + count * FIELD.itemsize > min(head_bytes, len(self.memory)):
            raise RegistryError(f"{self.path}: the description of its fields is cut off")
        rows: npt.NDArray[np.void] = np.frombuffer(
            self.memory[offset : offset + count * FIELD.itemsize], FIELD
        )
        self.parts: dict[str, dict[str, Place]] = {part: {} for part in PARTS}
        for row in rows:
            if row["part"] < len(PARTS):
                place = Place(*(int(row[name]) for name in ("offset", "bytes", "count", "value")))
                name = bytes(row["name"]).decode("ascii", "replace")
                self.parts[PARTS[row["part"]]][name] = place

    def read(self, part: str, name: str, base: int = 0) -> int | str:
        try:
            place = self.parts[part][name]
            at = base + place.offset
            data = self.memory[at : at + place.size]
            if len(data) != place.size:
                raise RegistryError(f"{self.path}: field {name} lies behind the end")
            if place.value:
                return data.split(b"\0")[0].decode("utf-8", "backslashreplace")
            return int(np.frombuffer(data, NUMBERS[place.size])[0])
        except KeyError:
            raise RegistryError(f"{self.path}: no field {name} in part {part}") from None

    def number(self, part: str, name: str, base: int = 0) -> int:
        value = self.read(part, name, base)
        if not isinstance(value, int):
            raise RegistryError(f"{self.path}: field {name} is not a number")
        return value

    def write(self, part: str, name: str, base: int, value: int | bytes) -> None:
        place = self.parts[part][name]
        at = base + place.offset
        if isinstance(value, bytes):
            value = value.ljust(place.size, b"\0")
        else:
            value = value.to_bytes(place.size, "little")
        self.memory[at : at + place.size] = value

    def records(self) -> Iterator[tuple[int, int]]:
        """Kind and place of each record that is in use."""
        at = self.number("head", "head_bytes")
        end = min(self.number("head", "used_bytes"), len(self.memory))
        while at + RECORD_HEAD.size <= end:
            kind, size = RECORD_HEAD.unpack_from(self.memory, at)
            if size == 0 or size % 64 or at + size > end:
                # One that is being made just now; it gets its length first.
                size = 64
            elif kind in (RECORD_CACHE, RECORD_SLOT, RECORD_STACK):
                yield kind, at
            at += size

    def caches(self) -> list[Cache]:
        """All caches, newest first. Given is read before taken, so it is never the larger."""
        records = list(self.records())
        slots = [at for kind, at in records if kind == RECORD_SLOT]
        given: dict[int, int] = {}
        taken: dict[int, int] = {}
        births = {at: self.number("slot", "birth", at) for at in slots}
        for sums, name in ((given, "given"), (taken, "taken")):
            for at in slots:
                sums[births[at]] = sums.get(births[at], 0) + self.number("slot", name, at)
        caches = [self.cache(at, given, taken) for kind, at in records if kind == RECORD_CACHE]
        return sorted(caches, key=lambda cache: cache["birth"], reverse=True)

    def cache(self, at: int, given: dict[int, int], taken: dict[int, int]) -> Cache:
        own_given = self.number("cache", "given", at)
        fields = {
            name: self.read("cache", name, at) for name in self.parts["cache"] if name != "node"
        }
        node = self.parts["cache"]["node"]
        count = self.number("cache", "nodes", at)
        nodes = [
            {
                name: self.number("node", name, at + node.offset + number * node.size)
                for name in self.parts["node"]
            }
            for number in range(min(count, 64))
        ]
        birth = self.number("cache", "birth", at)
        bits = self.number("cache", "flags", at)
        return Cache(
            offset=at,
            fields=fields,
            nodes=nodes,
            taken=taken.get(birth, 0) + self.number("cache", "taken", at),
            given=given.get(birth, 0) + own_given,
            flags={
                name: int(bits & place.value != 0) for name, place in self.parts["flag"].items()
            },
        )

    # Requests: under a lock of the file, so that of two readers one waits.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def requests(self) -> Iterator[int]:
        place = self.parts["head"]["requests"]
        for number in range(place.count):
            yield place.offset + number * place.size

    def pending(self, birth: int, attribute: str) -> int | None:
        """Where the request is that was made last and is not honoured yet."""
        found = [
            at
            for at in self.requests()
            if self.number("request", "state", at) == REQUEST_PENDING
            and self.number("request", "birth", at) == birth
            and self.read("request", "attribute", at) == attribute
        ]
        return max(found, key=lambda at: self.number("request", "number", at), default=None)

    def ask(self, birth: int, attribute: str, value: str = "") -> tuple[int, int]:
        """Adds a request, in place of one for the same that waits; its place and number."""
        if len(value) >= self.parts["request"]["value"].size:
            raise RegistryError(f"{value}: too long for a value")
        with self.locked():
            number = 1 + max(self.number("request", "number", at) for at in self.requests())
            at = self.pending(birth, attribute)
            if at is None:
                idle = (
                    at
                    for at in self.requests()
                    if self.number("request", "state", at) != REQUEST_PENDING
                )
                at = min(idle, key=lambda at: self.number("request", "number", at), default=None)
            if at is None:
                raise RegistryError(
                    f"{self.parts['head']['requests'].count} requests wait for process"
                    f" {self.number('head', 'process')}; expected room for one more"
                )
            self.write("request", "state", at, 0)
            self.write("request", "number", at, number)
            self.write("request", "birth", at, birth)
            self.write("request", "attribute", at, attribute.encode())
            self.write("request", "value", at, value.encode())
            self.write("request", "state", at, REQUEST_PENDING)
            asked = self.number("head", "asked") + 1
            self.write("head", "asked", 0, asked & 0xFFFFFFFF)
        return at, number

    def wait(self, request: tuple[int, int], seconds: float) -> tuple[int, int] | None:
        """Error and result of a request, None if it is not honoured in that time."""
        at, number = request
        deadline = time.monotonic() + seconds
        while self.number("request", "number", at) == number:
            if self.number("request", "state", at) == REQUEST_DONE:
                return self.number("request", "error", at), self.number("request", "result", at)
            if time.monotonic() >= deadline or not alive(self):
                return None
            time.sleep(0.01)
        return None


def start_time(process: int) -> int | None:
    """When the process began, in clock ticks since boot; None if there is none."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def is_mapped(process: int, status: os.stat_result) -> bool | None:
    """Whether the process maps the file; None if it cannot be known."""
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    try:
        with Path(f"/proc/{process}/maps").open(encoding="utf-8", errors="replace") as maps:
            for line in maps:
                words = line.split(maxsplit=5)
                if words[3:5] == [device, str(status.st_ino)]:
                    return True
        return False
    except OSError as error:
        return False if error.errno in (errno.ENOENT, errno.ESRCH) else None


def alive(registry: Registry) -> bool:
    """Whether the process that made the registry still uses it (not after exec)."""
    process = registry.number("head", "process")
    started = start_time(process)
    if started is None or registry.number("head", "start_time") not in (0, started):
        return False
    return is_mapped(process, registry.status) is not False


def own_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def directories() -> list[Path]:
    """Where registries may be: for root, those of all users."""
    user = os.geteuid()
    if user != 0:
        return [Path(f"/dev/shm/kmem-{user}"), Path(f"/run/user/{user}/kmem")]
    return [
        *sorted(Path("/dev/shm").glob("kmem-*")),
        *sorted(Path("/run/user").glob("*/kmem")),
    ]


def trusted(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    name = directory.parent.name if directory.name == "kmem" else directory.name[len("kmem-") :]
    return (
        directory.is_dir()
        and not directory.is_symlink()
        and name == str(status.st_uid)
        and status.st_mode & 0o077 == 0
    )


def files() -> Iterator[tuple[Path, int]]:
    """Files with the name of a registry of this pid namespace, and the process in it."""
    for directory in filter(trusted, directories()):
        try:
            names = sorted(path.name for path in directory.iterdir())
        except OSError:
            continue
        for name in names:
            namespace, _, process = name.partition(".")
            if namespace == str(own_namespace()) and process.isdecimal():
                yield directory / name, int(process)


def sweep(path: Path, process: int) -> bool:
    """Removes the file of a process that has ended, or is another program now."""
    try:
        status = path.lstat()
        mapped = is_mapped(process, status)
        # One without mapping may be in the making: its process has begun a moment ago.
        young = time.time() - status.st_ctime < 5 and start_time(process) is not None
        if mapped is False and not young:
            path.unlink()
            return True
    except OSError:
        pass
    return False


def open_process(process: int, *, writable: bool = False) -> Registry:
    """The registry of a process; RegistryError says in one line why there is none."""
    found = [path for path, number in files() if number == process]
    for path in found:
        try:
            registry = Registry(path, writable=writable)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RegistryError(f"process {process}: {path}: {error.strerror}") from None
        if alive(registry):
            return registry
        registry.close()
        sweep(path, process)
    raise RegistryError(why_not(process))


def why_not(process: int) -> str:
    try:
        user = Path(f"/proc/{process}").stat().st_uid
    except OSError:
        return f"process {process}: there is none"
    if os.geteuid() not in (0, user):
        return f"process {process} belongs to user {user}; expected one of your own"
    if process not in on_libkmem():
        return f"process {process} does not run on libkmem"
    return (
        f"process {process} runs on libkmem but has no registry: it has hardly used its heap yet,"
        " has option registry=off, or could not make the file"
    )


@dataclass(frozen=True)
class Process:
    process: int
    command: str
    registry: Registry


def processes() -> Iterator[Process]:
    """Every process that can be seen; stale files are removed on the way."""
    for path, process in files():
        try:
            registry = Registry(path)
        except (OSError, RegistryError):
            sweep(path, process)
            continue
        with registry:
            if not alive(registry):
                sweep(path, process)
                continue
            yield Process(process, command(process), registry)


def on_libkmem() -> set[int]:
    """Processes that have the library loaded, as far as one may look."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if "/libkmem" in maps.read_text(encoding="utf-8", errors="replace"):
                found.add(int(maps.parent.name))
        except OSError:
            continue
    return found


def command(process: int) -> str:
    try:
        text = Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="backslashreplace")
        return text.rstrip("\n")
    except OSError:
        return "?"
