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
import errno
import fcntl
import os
import re
import stat
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from kmem.common.processes import MAPS_MOST_BYTES, is_mapped, start_time
from kmem.common.text import printable
from kmem.live.registry.layout import (
    ARRAYS,
    HEAD_MOST_BYTES,
    TEXTS,
    Fields,
    RegistryError,
    UnfinishedError,
    form_of,
    read_places,
)
from kmem.live.registry.owner import (
    Owned,
    StaleError,
    check_owner,
    files,
    folders_of,
    opened,
    user_of,
    why_not_trusted,
)

PAGE_BYTES = 4096  # of the library, whatever the machine's are
RECORD_HEAD = struct.Struct("<II")  # kind and bytes of a record
RECORD_CACHE, RECORD_SLOT, RECORD_STACK = 1, 2, 3
RECORD_PARTS = {RECORD_CACHE: "cache", RECORD_SLOT: "slot", RECORD_STACK: "stack"}
REQUEST_PENDING, REQUEST_DONE, REQUEST_TAKEN = 1, 2, 3  # taken: being honoured

FILE_MOST_BYTES = 16 << 20  # as many as the library makes
CACHES_MOST = 1 << 12  # the library has 4,095 places for them
NODES_MOST = 8  # as many as the library has
LOCK_SECONDS = 5.0  # in which other readers have made their requests

COPIES = 100  # until two in a row have the same records
COPY_SECONDS = 1.0  # of this thread's work, likewise

# What all processes of one user but the reader's own may have of one look at all.
USER_SECONDS = 2.0  # of this thread's work
USER_CACHES_MOST = 1 << 15
USER_LINES = 3  # that say what is wrong; the rest is counted

Offsets = npt.NDArray[np.int64]

Value = TypeVar("Value")


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

    def __init__(self, path: Path, *, writable: bool = False, process: int | None = None) -> None:
        """@process: whose it has to be; that is settled before anything in it is read."""
        self.path = path
        self.owned: Owned | None = None
        self.caches_most = CACHES_MOST
        self.caches_found = 0
        # O_NONBLOCK: a FIFO would wait for its other end.
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with opened(path.parent) as folder:
            if process is not None and (reason := why_not_trusted(path.parent, folder)):
                raise RegistryError(reason)
            flags |= os.O_RDWR if writable else os.O_RDONLY
            self.file = os.open(path.name, flags, dir_fd=folder)
            owner = os.fstat(folder).st_uid
        try:
            self.status = os.fstat(self.file)
            self.check_file(owner)
            if process is not None:
                self.owned = check_owner(path, process, self.status)
            self.parts = read_places(path, self.content(0, HEAD_MOST_BYTES))
            self.forms = {part: form_of(places, part) for part, places in self.parts.items()}
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
        """What it says of its process is what the system says."""
        if self.process != owned.process:
            raise RegistryError(
                f"{self.path}: is of process {self.process}; expected process {owned.process}"
            )
        if self.number("head", "start_time") not in (0, owned.started):
            raise RegistryError(f"{self.path}: its process began at another time")

    def close(self) -> None:
        os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def content(self, at: int, size: int) -> bytes:
        """What stands there; less than `size` bytes behind the end."""
        return os.pread(self.file, size, at)

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
        """The head and the records as they are now, each word whole, but not all of one moment."""
        used = min(self.number("head", "used_bytes"), self.status.st_size)
        return self.content(0, used & ~7)

    def records(self, copy: bytes) -> dict[int, list[int]]:
        """Where the records of each kind are."""
        found: dict[int, list[int]] = {RECORD_CACHE: [], RECORD_SLOT: [], RECORD_STACK: []}
        at = self.number("head", "head_bytes")
        if at % 64 or at < RECORD_HEAD.size:
            raise RegistryError(f"{self.path}: records at {at}; expected a multiple of 64")
        while at + RECORD_HEAD.size <= len(copy):
            kind, size = RECORD_HEAD.unpack_from(copy, at)
            if size == 0 or size % 64 or at + size > len(copy):
                # One that is being made just now; it gets its length first.
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

    def numbers(self, copy: bytes, part: str, bases: Offsets) -> npt.NDArray[np.void]:
        """All numbers of the parts at these places, a row each with a column for each field."""
        form = self.forms[part]
        if not form.names:
            raise RegistryError(f"{self.path}: no fields in part {part}")
        if bases.size and int(bases.max()) + form.itemsize > len(copy):
            raise RegistryError(f"{self.path}: a {part} lies behind the end")
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
        deadline = time.thread_time() + COPY_SECONDS
        for _ in range(COPIES):
            if time.thread_time() > deadline:
                raise RegistryError(f"{self.path}: takes too long to be read")
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
        self.caches_found = len(caches)
        if len({row["birth"] for row in caches}) != len(caches):
            raise RegistryError(f"{self.path}: two caches of one birth")
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
        most = max(counts, default=0)
        if most > NODES_MOST:
            raise RegistryError(f"{self.path}: {most} nodes; expected at most {NODES_MOST}")
        for at, count in zip(places.tolist(), counts, strict=True):
            if node.offset + count * node.size > RECORD_HEAD.unpack_from(copy, at)[1]:
                raise RegistryError(f"{self.path}: {count} nodes lie behind the end of a cache")
        found: list[list[Fields[int]]] = [[] for _ in counts]
        for number in range(most):
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
        count = min(self.number("head", "zones"), place.count)
        zones = [place.offset + zone * place.size for zone in range(count)]

        def total(name: str) -> int:
            return sum(self.number("zone", name, zone) for zone in zones)

        # To their zones they are in use. Each word has a cache line.
        words = self.parts["head"]["kept"]
        line = self.content(words.offset, words.size * words.count)
        kept = [
            int.from_bytes(line[at : at + 8], "little") for at in range(0, len(line), words.size)
        ]
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
            # It may have ended, or have another file, since this one was opened.
            if not alive(self):
                raise RegistryError(f"process {self.process} has ended, or is another program now")
            at = self.waiting(birth, attribute, [REQUEST_PENDING])
            if at is None or self.read("request", "value", at) != value:
                at = self.add(at, birth, attribute, value)
            number = self.number("request", "number", at)
            asked = self.number("head", "asked") + 1
            self.write("head", "asked", 0, asked % (1 << 8 * self.parts["head"]["asked"].size))
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
                f" {self.process}; expected room for one more"
            )
        numbers = [self.number("request", "number", at) for at in self.requests()]
        number = 1 + max(numbers)
        if number >= 1 << 8 * self.parts["request"]["number"].size:
            raise RegistryError(f"{self.path}: the numbers of its requests are used up")
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
    if registry.owned is None:
        raise RegistryError(f"{registry.path}: it is not known whose it is")
    return registry.owned.still_maps(registry.status)


def sweep(path: Path, process: int) -> bool:
    """Removes the file of a process that has ended, or is another program now."""
    try:
        # By descriptor: its user may put a link in the folder's place.
        with opened(path.parent) as folder:
            if why_not_trusted(path.parent, folder):
                return False
            status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            mapped = is_mapped(process, status)
            # One without mapping may be in the making: its process has begun a moment ago.
            young = time.time() - status.st_ctime < 5 and start_time(process) is not None
            if mapped is False and not young:
                os.unlink(path.name, dir_fd=folder)
                return True
    except OSError:
        pass
    return False


def open_process(process: int, *, writable: bool = False) -> Registry:
    """The registry of a process; RegistryError says in one line why there is none."""
    refusal = None
    for path in [path for path, number in files() if number == process]:
        try:
            return Registry(path, writable=writable, process=process)
        except FileNotFoundError:
            continue
        except OSError as error:
            refusal = f"process {process}: {path}: {error.strerror}"
        except StaleError:
            sweep(path, process)
        except RegistryError as error:
            # The next one may be the process's own.
            if not sweep(path, process):
                refusal = str(error)
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
    return why_no_folder(process) or (
        f"process {process} runs on libkmem but has no registry: it has hardly used its heap yet,"
        " has option registry=off, or could not make the file"
    )


def why_no_folder(process: int) -> str | None:
    """Where somebody else's folder has the name of one for this process."""
    user = user_of(process)
    for folder in folders_of(user) if user is not None else []:
        try:
            with opened(folder) as descriptor:
                reason = why_not_trusted(folder, descriptor)
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = f"{folder}: {error.strerror}"
        if reason:
            return f"process {process} runs on libkmem but has no registry: {reason}"
    return None


@dataclass
class Spent:
    """What was spent on the processes of one user in one look, and what was wrong with them."""

    seconds: float = 0.0
    caches: int = 0
    refusals: list[str] = field(default_factory=list)


# This reader has no room for more files or memory: no fault of the file that it comes to first.
OUR_OWN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def read_each(read: Callable[[Registry], Value], refusals: list[str]) -> list[Value]:
    """What `read` makes of the registry of every process that can be seen.

    A process whose registry cannot be read is left out, with a line in `refusals`; so are those of
    another user for whom too much has been spent. Stale files are removed on the way. OSError only
    for want of descriptors.
    """
    found = []
    users: dict[Path, Spent] = defaultdict(Spent)
    for path, process in files():
        spent = users[path.parent]
        foreign = path.parent not in folders_of(os.geteuid())
        begun = time.thread_time()
        try:
            if foreign and spent.seconds > USER_SECONDS:
                raise RegistryError(f"{path}: not read; others of its user took too long")
            with Registry(path, process=process) as registry:
                if foreign:
                    registry.caches_most = min(CACHES_MOST, USER_CACHES_MOST - spent.caches)
                found.append(read(registry))
                spent.caches += registry.caches_found
        except (FileNotFoundError, UnfinishedError):
            continue
        except StaleError:
            sweep(path, process)
        except RegistryError as error:
            # What is wrong with it does not matter if nobody uses it.
            if not sweep(path, process):
                spent.refusals.append(str(error))
        except OSError as error:
            if error.errno in OUR_OWN:
                raise
            spent.refusals.append(f"{path}: {error.strerror}")
        finally:
            spent.seconds += time.thread_time() - begun
    for folder, spent in users.items():
        refusals += spent.refusals[:USER_LINES]
        more = len(spent.refusals) - USER_LINES
        if more > 0:
            refusals.append(f"{folder}: {more} more of this user's registries could not be read")
    return found


# As its files are called; folders and other files may have the name too.
LIBRARY_FILE = re.compile(rb"/libkmem(-malloc|-urcu)?\.so[^/\n]*$", re.MULTILINE)


def on_libkmem() -> set[int]:
    """Processes that have the library loaded, as far as one may look."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/maps"):
        try:
            with path.open("rb") as maps:
                if LIBRARY_FILE.search(maps.read(MAPS_MOST_BYTES)):
                    found.add(int(path.parent.name))
        except OSError:
            continue
    return found
