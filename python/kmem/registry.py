# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads the registries of running processes (docs/decisions/0014-registry.md).

A registry is a file that its process keeps mapped and writes as it works. It describes its own
layout, so only the first words of its head and the description's form are known here.

Root reads those of other users, who may put there what they like: nothing here waits for them
without limit. The file is read and written, not mapped, as one that is cut off while it is read
would be a signal, not an error. Words are whole all the same: each lies at a multiple of its size,
and the kernel's copy is no other than the one from a mapping.
"""

import contextlib
import fcntl
import os
import re
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from kmem.processes import is_mapped, start_time
from kmem.setup import KmemError

MAGIC = b"libkmem\0"
PAGE_BYTES = 4096  # of the library, whatever the machine's are
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
PARTS = ("head", "request", "cache", "slot", "node", "flag", "zone", "stack")
RECORD_HEAD = struct.Struct("<II")  # kind and bytes of a record
RECORD_CACHE, RECORD_SLOT, RECORD_STACK = 1, 2, 3
REQUEST_PENDING, REQUEST_DONE, REQUEST_TAKEN = 1, 2, 3  # taken: being honoured
NUMBERS = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}
NODES_MOST = 64  # more are no figures of ours
FIELDS_MOST = 4096  # likewise; the library has about a hundred

FILE_MOST_BYTES = 32 << 20  # the library makes 16 MiB; a copy of more is not for the asking
CACHES_MOST = 1 << 14  # the library has 4,095 places for them
LOCK_SECONDS = 5.0  # in which other readers have made their requests

COPIES = 100  # until two in a row have the same records

Offsets = npt.NDArray[np.int64]


class RegistryError(KmemError):
    """Why a process's registry cannot be used."""


Value = TypeVar("Value")


class Fields(dict[str, Value]):
    """Of one part, by name; the registry of another library may lack some."""

    def __init__(self, path: Path, part: str, items: Iterable[tuple[str, Value]] = ()) -> None:
        super().__init__(items)
        self.path = path
        self.part = part

    def __missing__(self, name: str) -> Value:
        raise RegistryError(f"{self.path}: no field {name} in part {self.part}")


@dataclass(frozen=True)
class Place:
    """Where a field is in its part."""

    offset: int
    size: int
    count: int
    value: int


def is_number(place: Place) -> bool:
    return not place.value and place.count == 1 and place.size in NUMBERS


def form_of(places: dict[str, Place]) -> np.dtype[np.void]:
    """A part as whole words, with a column for each of its numbers."""
    numbers = {name: place for name, place in places.items() if is_number(place)}
    end = max((place.offset + place.size for place in numbers.values()), default=0)
    return np.dtype(
        {
            "names": list(numbers),
            "formats": [NUMBERS[place.size] for place in numbers.values()],
            "offsets": [place.offset for place in numbers.values()],
            "itemsize": (end + 7) // 8 * 8,
        }
    )


def sum_by(births: npt.NDArray[np.uint64], numbers: npt.NDArray[np.uint64]) -> dict[int, int]:
    """What the slots of each cache have together."""
    of_caches, place = np.unique(births, return_inverse=True)
    sums = np.zeros(len(of_caches), np.uint64)
    np.add.at(sums, place, numbers)
    return dict(zip(of_caches.tolist(), sums.tolist(), strict=True))


@dataclass(frozen=True)
class Cache:
    """A cache's record, its nodes, and the sums over its slots."""

    offset: int
    fields: Fields[int | str]
    nodes: list[Fields[int]]
    taken: int
    given: int
    slow_calls: int  # that found main empty or full; engine slub
    fast_calls: int  # at least so many that did not
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
    def pages_per_slab(self) -> int:
        """An older library has powers of two only, and says the order."""
        return int(self.fields.get("pages_per_slab", 1 << min(self["order"], 31)))

    @property
    def slab_bytes(self) -> int:
        return self.total("slabs") * self.pages_per_slab * PAGE_BYTES

    @property
    def objects(self) -> int:
        """What the slabs hold; engine slob has no slabs of its own for a cache.

        Slabs and their objects are two words: between the stores to them one is ahead.
        """
        if self.fields["engine"] == "slob":
            return self.handed_out
        return min(self.total("objects"), self.total("slabs") * self["objs_per_slab"])

    @property
    def active(self) -> int:
        """Objects handed out; of a running process the sums are of more than one moment."""
        return min(self.handed_out, self.objects)


@dataclass(frozen=True)
class Heap:
    """Pages of a process's heap and its blocks of whole pages; all in bytes but the counts."""

    base: int
    reserved_bytes: int
    used_bytes: int  # in slabs and large blocks
    free_bytes: int
    free_touched_bytes: int  # of those, not given back to the system since their use
    purged_bytes: int  # given back so far
    large_blocks: int
    large_bytes: int
    huge_blocks: int
    huge_bytes: int
    huge_kept_bytes: int

    @property
    def held_bytes(self) -> int:
        """Of the heap's own pages those that the system has given us, or will at a touch."""
        return self.used_bytes + self.free_touched_bytes


class Registry:
    """One registry, open."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self.path = path
        # O_NONBLOCK: a FIFO would wait for its other end.
        flags = os.O_NOFOLLOW | os.O_NONBLOCK
        self.file = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | flags)
        try:
            self.status = os.fstat(self.file)
            if not stat.S_ISREG(self.status.st_mode):
                raise RegistryError(f"{path}: not a regular file")
            if self.status.st_uid != path.parent.lstat().st_uid:
                raise RegistryError(f"{path}: not a file of the user whose folder it is in")
            if self.status.st_size > FILE_MOST_BYTES:
                raise RegistryError(f"{path}: too long for a registry")
            self.read_layout()
        except BaseException:
            os.close(self.file)
            raise

    def close(self) -> None:
        os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def content(self, at: int, size: int) -> bytes:
        """What stands there; less than `size` bytes behind the end."""
        return os.pread(self.file, size, at)

    def read_layout(self) -> None:
        start = self.content(0, START.size)
        if len(start) < START.size:
            raise RegistryError(f"{self.path}: too short for a registry")
        magic, version, head_bytes, offset, count = START.unpack(start)
        if magic != MAGIC or version == 0:
            raise RegistryError(f"{self.path}: not a registry, or one that is being made")
        if version > VERSION:
            raise RegistryError(
                f"{self.path}: version {version}; this command knows up to {VERSION}"
            )
        if count > FIELDS_MOST:
            raise RegistryError(f"{self.path}: {count} fields; expected at most {FIELDS_MOST}")
        length = count * FIELD.itemsize
        description = b""
        if offset + length <= min(head_bytes, self.status.st_size):
            description = self.content(offset, length)
        if len(description) != length:
            raise RegistryError(f"{self.path}: the description of its fields is cut off")
        rows: npt.NDArray[np.void] = np.frombuffer(description, FIELD)
        self.parts: dict[str, Fields[Place]] = {part: Fields(self.path, part) for part in PARTS}
        for row in rows:
            if row["part"] < len(PARTS):
                place = Place(*(int(row[name]) for name in ("offset", "bytes", "count", "value")))
                name = bytes(row["name"]).decode("ascii", "replace")
                self.parts[PARTS[row["part"]]][name] = place
        self.forms = {part: form_of(places) for part, places in self.parts.items()}

    def read(self, part: str, name: str, base: int = 0) -> int | str:
        place = self.parts[part][name]
        at = base + place.offset
        data = self.content(at, place.size)
        if len(data) != place.size:
            raise RegistryError(f"{self.path}: field {name} lies behind the end")
        if place.value:
            return printable(data.split(b"\0")[0].decode("utf-8", "backslashreplace"))
        return int.from_bytes(data, "little")

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
        os.pwrite(self.file, value, at)

    def copy(self) -> bytes:
        """The head and the records as they are now, each word whole, but not all of one moment."""
        used = min(self.number("head", "used_bytes"), self.status.st_size)
        return self.content(0, used & ~7)

    def records(self, copy: bytes) -> dict[int, list[int]]:
        """Where the records of each kind are."""
        found: dict[int, list[int]] = {RECORD_CACHE: [], RECORD_SLOT: [], RECORD_STACK: []}
        at = self.number("head", "head_bytes")
        if at % 64:
            raise RegistryError(f"{self.path}: records at {at}; expected a multiple of 64")
        while at + RECORD_HEAD.size <= len(copy):
            kind, size = RECORD_HEAD.unpack_from(copy, at)
            if size == 0 or size % 64 or at + size > len(copy):
                # One that is being made just now; it gets its length first.
                size = 64
            elif kind in found:
                found[kind].append(at)
            at += size
        if len(found[RECORD_CACHE]) > CACHES_MOST:
            raise RegistryError(f"{self.path}: expected at most {CACHES_MOST:,} caches")
        return found

    def numbers(self, copy: bytes, part: str, bases: Offsets) -> npt.NDArray[np.void]:
        """All numbers of the parts at these places, a row each with a column for each field."""
        form = self.forms[part]
        if not form.names:
            raise RegistryError(f"{self.path}: no fields in part {part}")
        if bases.size and (int(bases.max()) + form.itemsize > len(copy) or (bases % 8).any()):
            raise RegistryError(f"{self.path}: a {part} lies behind the end")
        if bases.size * form.itemsize > len(copy):
            raise RegistryError(f"{self.path}: one {part} lies in another")
        words = np.frombuffer(copy, "<u8", len(copy) // 8)
        of_part = np.arange(form.itemsize // 8)
        rows: npt.NDArray[np.void] = words[bases[:, np.newaxis] // 8 + of_part].view(form)
        return rows[:, 0]

    def column(self, rows: npt.NDArray[np.void], part: str, name: str) -> npt.NDArray[np.uint64]:
        assert rows.dtype.names is not None
        if name not in rows.dtype.names:
            raise RegistryError(f"{self.path}: no field {name} in part {part}")
        return rows[name].astype(np.uint64)

    def dictionaries(self, copy: bytes, part: str, bases: Offsets) -> list[Fields[int]]:
        """The same, a dictionary for each part."""
        rows = self.numbers(copy, part, bases)
        names = rows.dtype.names or ()
        return [Fields(self.path, part, zip(names, row, strict=True)) for row in rows.tolist()]

    def text(self, copy: bytes, name: str, base: int) -> str:
        place = self.parts["cache"][name]
        text = copy[base + place.offset : base + place.offset + place.size].split(b"\0")[0]
        return text.decode("utf-8", "backslashreplace")

    def with_texts(self, copy: bytes, row: Fields[int], base: int) -> Fields[int | str]:
        fields = Fields[int | str](self.path, "cache", row.items())
        fields["name"] = self.text(copy, "name", base)  # as it is: one asks for a cache by it
        fields["engine"] = printable(self.text(copy, "engine", base))
        return fields

    def caches(self) -> list[Cache]:
        """All caches, newest first.

        What was given is of an earlier copy than what was taken, so it is never the larger.
        """
        for _ in range(COPIES):
            earlier, copy = self.copy(), self.copy()
            records = self.records(copy)
            slots = np.array(records[RECORD_SLOT], np.int64)
            rows = self.numbers(copy, "slot", slots)
            births = self.column(rows, "slot", "birth")
            # A record of another cache since; rare, and those that come are at the end.
            if len(earlier) == len(copy):
                earlier_rows = self.numbers(earlier, "slot", slots)
                if np.array_equal(births, self.column(earlier_rows, "slot", "birth")):
                    break
        else:
            raise RegistryError(f"{self.path}: caches come and go too fast to be read")
        given = sum_by(births, self.column(earlier_rows, "slot", "given"))
        taken = sum_by(births, self.column(rows, "slot", "taken"))
        # An older library has no counts of calls.
        counts_calls = "slow_calls" in self.parts["slot"]
        slow_calls, fast_calls = (
            sum_by(births, self.column(rows, "slot", name)) if counts_calls else {}
            for name in ("slow_calls", "fast_calls")
        )
        places = np.array(records[RECORD_CACHE], np.int64)
        own_given = self.column(self.numbers(earlier, "cache", places), "cache", "given").tolist()
        caches = self.dictionaries(copy, "cache", places)
        nodes = self.nodes(copy, places, [row["nodes"] for row in caches])
        found = [
            Cache(
                offset=at,
                fields=self.with_texts(copy, row, at),
                nodes=nodes[number],
                taken=taken.get(row["birth"], 0) + row["taken"],
                given=given.get(row["birth"], 0) + own_given[number],
                slow_calls=slow_calls.get(row["birth"], 0),
                fast_calls=fast_calls.get(row["birth"], 0),
                flags={
                    name: row["flags"] & place.value != 0
                    for name, place in self.parts["flag"].items()
                },
            )
            for number, (at, row) in enumerate(zip(records[RECORD_CACHE], caches, strict=True))
        ]
        return sorted(found, key=lambda cache: cache["birth"], reverse=True)

    def nodes(self, copy: bytes, places: Offsets, counts: Sequence[int]) -> list[list[Fields[int]]]:
        """For each cache the figures of its nodes."""
        node = self.parts["cache"]["node"]
        found: list[list[Fields[int]]] = [[] for _ in counts]
        for number in range(min(max(counts, default=0), NODES_MOST)):
            having = [cache for cache, count in enumerate(counts) if count > number]
            bases = places[having] + node.offset + number * node.size
            for cache, row in zip(having, self.dictionaries(copy, "node", bases), strict=True):
                found[cache].append(row)
        return found

    def heap(self) -> Heap | None:
        """None where the library is older than these figures."""
        if "kept" not in self.parts["head"]:
            return None
        place = self.parts["head"]["zone"]
        count = min(self.number("head", "zones"), place.count, NODES_MOST)
        zones = [place.offset + zone * place.size for zone in range(count)]

        def total(name: str) -> int:
            return sum(self.number("zone", name, zone) for zone in zones)

        # To their zones they are in use. Behind each word are zeros.
        words = self.parts["head"]["kept"]
        kept = [self.number("head", "kept", cell * words.size) for cell in range(words.count)]
        kept_bytes = PAGE_BYTES * sum(word >> 32 for word in kept)
        free_bytes = PAGE_BYTES * total("free_pages") + kept_bytes
        return Heap(
            base=self.number("head", "heap_base"),
            reserved_bytes=self.number("head", "heap_reserved_bytes"),
            used_bytes=max(PAGE_BYTES * total("used_pages") - kept_bytes, 0),
            free_bytes=free_bytes,
            free_touched_bytes=min(
                PAGE_BYTES * total("free_touched_pages") + kept_bytes, free_bytes
            ),
            purged_bytes=PAGE_BYTES * total("purged_pages"),
            large_blocks=max(total("large_blocks") - sum(word != 0 for word in kept), 0),
            large_bytes=max(PAGE_BYTES * total("large_pages") - kept_bytes, 0),
            huge_blocks=self.number("head", "huge_blocks"),
            huge_bytes=self.number("head", "huge_bytes"),
            huge_kept_bytes=self.number("head", "huge_kept_bytes"),
        )

    # Requests: under a lock of the file, so that of two readers one waits.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise RegistryError(
                        f"{self.path}: another process keeps the file locked; expected it to be"
                        f" free within {LOCK_SECONDS:g} s; nothing was asked"
                    ) from None
            # Short: those that come back at once must not always be there first.
            time.sleep(0.001)
        try:
            yield
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def requests(self) -> Iterator[int]:
        place = self.parts["head"]["requests"]
        for number in range(place.count):
            yield place.offset + number * place.size

    def waiting(
        self, birth: int, attribute: str, states: Sequence[int] = (REQUEST_PENDING, REQUEST_TAKEN)
    ) -> int | None:
        """Where the request is that was made last and is not honoured yet."""
        found = [
            at
            for at in self.requests()
            if self.number("request", "state", at) in states
            and self.number("request", "birth", at) == birth
            and self.read("request", "attribute", at) == attribute
        ]
        return max(found, key=lambda at: self.number("request", "number", at), default=None)

    def ask(self, birth: int, attribute: str, value: str = "") -> tuple[int, int]:
        """Adds a request; its place and number.

        One for another value that waits makes room. One for the same is joined: whoever made it
        waits for its number.
        """
        if len(value) >= self.parts["request"]["value"].size:
            raise RegistryError(f"{value}: too long for a value")
        with self.locked():
            at = self.waiting(birth, attribute, [REQUEST_PENDING])
            if at is None or self.read("request", "value", at) != value:
                at = self.add(at, birth, attribute, value)
            number = self.number("request", "number", at)
            asked = self.number("head", "asked") + 1
            self.write("head", "asked", 0, asked & 0xFFFFFFFF)
        return at, number

    def add(self, at: int | None, birth: int, attribute: str, value: str) -> int:
        """Writes a request in the place of one that waits, or of the oldest that does not."""
        if at is None:
            idle = (
                at
                for at in self.requests()
                if self.number("request", "state", at) not in (REQUEST_PENDING, REQUEST_TAKEN)
            )
            at = min(idle, key=lambda at: self.number("request", "number", at), default=None)
        if at is None:
            raise RegistryError(
                f"{self.parts['head']['requests'].count} requests wait for process"
                f" {self.number('head', 'process')}; expected room for one more"
            )
        number = 1 + max(self.number("request", "number", at) for at in self.requests())
        self.write("request", "state", at, 0)
        self.write("request", "number", at, number)
        self.write("request", "birth", at, birth)
        self.write("request", "attribute", at, attribute.encode())
        self.write("request", "value", at, value.encode())
        self.write("request", "state", at, REQUEST_PENDING)
        return at

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
    refusal = None
    for path in found:
        try:
            registry = Registry(path, writable=writable)
        except FileNotFoundError:
            continue
        except OSError as error:
            refusal = f"process {process}: {path}: {error.strerror}"
            continue
        except RegistryError as error:
            # Another user may have put it there; the process's own may come yet.
            refusal = str(error)
            continue
        if alive(registry):
            return registry
        registry.close()
        sweep(path, process)
    raise RegistryError(refusal or why_not(process))


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
            try:
                if not alive(registry):
                    sweep(path, process)
                    continue
            except RegistryError:
                continue
            yield Process(process, command(process), registry)


# As its files are called; folders and other files may have the name too.
LIBRARY_FILE = re.compile(r"/libkmem(-malloc|-urcu)?\.so[^/\n]*$", re.MULTILINE)


def on_libkmem() -> set[int]:
    """Processes that have the library loaded, as far as one may look."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if LIBRARY_FILE.search(maps.read_text(encoding="utf-8", errors="replace")):
                found.add(int(maps.parent.name))
        except OSError:
            continue
    return found


def printable(text: str) -> str:
    """Without what moves a terminal's cursor: what a process calls itself may be anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def command(process: int) -> str:
    try:
        text = Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="backslashreplace")
        return printable(text.removesuffix("\n"))
    except OSError:
        return "?"
