# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Owners of registries: processes, their users, and the folders for the registries of each user.

A registry belongs to the process in its name, and to the user of that process. Users may put
anything into their folders, and exchange it at any moment. So folders and files are checked after
they are opened, by their descriptors. A process is checked again afterwards, since its number may
belong to another process by then.

A process in a pid namespace below the reader's, as in a container, has its registry in the
container's folders, by its number there. Root opens it through the process's mapping of it, so no
path is followed that the container has made.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kmem.common.processes import MAPS_MOST_BYTES, is_mapped, open_maps, read_file, start_time
from kmem.live.registry.layout import RegistryError

NAMES_MOST = 1 << 15  # names looked at in a folder
ROOT = 0
# Lines of /proc/PID/status; the kernel writes a newline in a program's name as "\\n".
GROUP_AND_USER = re.compile(rb"^Tgid:\t(\d+)$.*?^Uid:\t\d+\t(\d+)\t", re.MULTILINE | re.DOTALL)
NUMBERS = re.compile(rb"^NSpid:((?:\t\d+)+)$", re.MULTILINE)  # from the reader's namespace inwards
# The beginning of a registry in /proc/PID/maps: its addresses, and its number in its namespace.
MAPPED = re.compile(rb"^0*(\w+)-0*(\w+) rw-s 0+ .*/kmem[^/\n]*/\d+\.(\d+)$", re.MULTILINE)


class StaleError(RegistryError):
    """The file is of a process that has ended, or was another program."""


def status_of(process: int) -> bytes:
    """/proc/PID/status; empty if there is no such process."""
    try:
        return read_file(process, "status")
    except OSError:
        return b""


def user_in(status: bytes, process: int) -> int | None:
    found = GROUP_AND_USER.search(status)
    return int(found[2]) if found and int(found[1]) == process else None


def number_in(status: bytes) -> int:
    found = NUMBERS.search(status)
    return int(found[1].split()[-1]) if found else 0


def user_of(process: int) -> int | None:
    """The effective user of a process; None for a thread, or if the process does not exist."""
    return user_in(status_of(process), process)


def number_inside(process: int) -> int:
    """The number that a process has in its own pid namespace, which differs in a container."""
    return number_in(status_of(process)) or process


def own_namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


@dataclass(frozen=True)
class Owned:
    """A process at the moment when its registry was found to be its own."""

    process: int
    started: int
    inside: int  # its number in its own pid namespace, as its registry has it

    def still_maps(self, status: os.stat_result) -> bool:
        """Whether this process still runs, and still uses the file (not after exec)."""
        return (
            start_time(self.process) == self.started
            and is_mapped(self.process, status) is not False
        )


def check_owner(path: Path, process: int, status: os.stat_result) -> Owned:
    """The process in the name of an open file, if the file is its registry.

    StaleError if the process does not use the file, RegistryError if the file is not to be trusted.
    """
    started = start_time(process)
    user = user_of(process)
    if started is None or user is None:
        raise StaleError(f"process {process}: there is none")
    mapped = is_mapped(process, status)
    # Root may have made the file before the process changed its user: no other user can write it.
    owned = status.st_uid in (user, ROOT)
    if mapped is False or (mapped is None and not owned):
        raise StaleError(f"{path}: process {process} does not use it")
    if not owned:
        raise RegistryError(
            f"{path}: a file of user {status.st_uid}; expected one of user {user}, whose process"
            f" {process} is"
        )
    if mapped is None and status.st_uid != os.geteuid():
        raise RegistryError(f"{path}: not known whether process {process} maps it")
    if status.st_nlink > 1:
        raise RegistryError(f"{path}: has {status.st_nlink} names; expected one")
    if start_time(process) != started:
        raise StaleError(f"process {process}: has ended")
    return Owned(process, started, number_inside(process))


def owner_named(folder: Path) -> str:
    """The user in the name of a folder."""
    return folder.parent.name if folder.name == "kmem" else folder.name.removeprefix("kmem-")


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A folder's descriptor, or OSError. A symbolic link is refused."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def why_not_trusted(folder: Path, descriptor: int) -> str | None:
    """Why an open folder is not a trusted place of registries, or None."""
    status = os.fstat(descriptor)
    if str(status.st_uid) != owner_named(folder):
        return f"{folder} belongs to user {status.st_uid}; expected user {owner_named(folder)}"
    if stat.S_IMODE(status.st_mode) & 0o077:
        return f"{folder} has mode {stat.S_IMODE(status.st_mode):o}; expected 700"
    return None


def users_and_below() -> tuple[set[int], list[int]]:
    """The users of all processes, and the processes in pid namespaces below the reader's."""
    users, below = set(), []
    with os.scandir("/proc") as entries:
        for process in (int(entry.name) for entry in entries if entry.name.isdecimal()):
            status = status_of(process)
            if (user := user_in(status, process)) is None:
                continue
            users.add(user)
            if number_in(status) not in (0, process):
                below.append(process)
    return users, sorted(below)


def mapped_registry(process: int) -> Path | None:
    """The way to the registry that a process has mapped, whatever file system it is on."""
    with contextlib.suppress(OSError), open_maps(process) as maps:
        for found in MAPPED.finditer(maps.read(MAPS_MOST_BYTES)):
            if int(found[3]) == number_inside(process):
                return Path(f"/proc/{process}/map_files/{found[1].decode()}-{found[2].decode()}")
    return None


def is_mapping(path: Path) -> bool:
    return path.parent.name == "map_files"


def open_file(path: Path, process: int | None, flags: int) -> tuple[int, int]:
    """The descriptor of a registry, and the user whose folder it is in."""
    if is_mapping(path):
        # The kernel's own link to what the process has mapped. A device is not even opened.
        if not stat.S_ISREG(path.stat().st_mode):
            raise RegistryError(f"{path}: not a regular file")
        descriptor = os.open(path, flags)
        return descriptor, os.fstat(descriptor).st_uid
    with opened(path.parent) as folder:
        if process is not None and (reason := why_not_trusted(path.parent, folder)):
            raise RegistryError(reason)
        return os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=folder), os.fstat(folder).st_uid


def some_names(folder: str | int) -> list[str]:
    """Names in a folder, at most NAMES_MOST."""
    names = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) == NAMES_MOST:
                break
    return names


def folders_of(user: int) -> list[Path]:
    return [Path(f"/dev/shm/kmem-{user}"), Path(f"/run/user/{user}/kmem")]


def mounted_by_users() -> set[Path]:
    """Mount points in /run/user that may be a user's own file system.

    If the machine lets users mount file systems, a user's file system may answer late or never. The
    system's own mounts are a tmpfs for each user.
    """
    found = set()
    with contextlib.suppress(OSError), Path("/proc/self/mountinfo").open("rb") as mounts:
        for line in mounts:
            words = line.split()
            path = Path(os.fsdecode(words[4]))
            of_system = (
                path.parent == Path("/run/user") and words[words.index(b"-") + 1] == b"tmpfs"
            )
            if Path("/run/user") in path.parents and not of_system:
                found.add(path)
    return found


def folders(users: set[int]) -> list[Path]:
    """Folders that may hold registries: the user's own, and for root the folders of all users.

    Users with running processes are found by their processes, so nobody can hide them behind many
    other names in the folder. Folders found by name alone can only hold stale registries.
    """
    if os.geteuid() != ROOT:
        return folders_of(os.geteuid())
    texts = [name.removeprefix("kmem-") for name in some_names("/dev/shm") if name[:5] == "kmem-"]
    texts += some_names("/run/user")
    users = users | {ROOT} | {int(text) for text in texts if is_number(text)}
    mounts = mounted_by_users()
    return [
        folder
        for user in sorted(users)
        for folder in folders_of(user)
        if not mounts & {folder, folder.parent}
    ]


def is_number(text: str) -> bool:
    """Whether the text is a number in the form that the library writes."""
    return text.isascii() and text.isdecimal() and len(text) <= 10 and str(int(text)) == text


def files(suffix: str = "") -> Iterator[tuple[Path, int]]:
    """Files NAMESPACE.PROCESS and the suffix, of this pid namespace, and the process in the name.

    Those without a suffix are registries; for root also those of pid namespaces below.
    """
    # 0: the process has no /proc, as in some chroots, and does not know its namespace. Whether the
    # file is its own is asked of its mappings.
    namespaces = (str(own_namespace()), "0")
    users, below = users_and_below() if os.geteuid() == ROOT else (set[int](), list[int]())
    for folder in folders(users):
        try:
            with opened(folder) as descriptor:
                names = [] if why_not_trusted(folder, descriptor) else some_names(descriptor)
        except OSError:
            continue
        for name in sorted(names):
            before, _, rest = name.partition(".")
            number = rest.removesuffix(suffix)
            if before in namespaces and rest.endswith(suffix) and is_number(number):
                yield folder / name, int(number)
    for process in below:
        if not suffix and (path := mapped_registry(process)) is not None:
            yield path, process
