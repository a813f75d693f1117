# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Owners of registries: processes, their users, and the folders for the registries of each user.

A registry belongs to the process in its name, and to the user of that process. Users may put
anything into their folders, and exchange it at any moment. So folders and files are checked after
they are opened, by their descriptors. A process is checked again afterwards, since its number may
belong to another process by then.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kmem.common.processes import is_mapped, read_file, start_time
from kmem.live.registry.layout import RegistryError

NAMES_MOST = 1 << 15  # names looked at in a folder
ROOT = 0
# Lines of /proc/PID/status; the kernel writes a newline in a program's name as "\\n".
GROUP_AND_USER = re.compile(rb"^Tgid:\t(\d+)$.*?^Uid:\t\d+\t(\d+)\t", re.MULTILINE | re.DOTALL)


class StaleError(RegistryError):
    """The file is of a process that has ended, or was another program."""


def user_of(process: int) -> int | None:
    """The effective user of a process; None for a thread, or if the process does not exist."""
    try:
        found = GROUP_AND_USER.search(read_file(process, "status"))
    except OSError:
        return None
    return int(found[2]) if found and int(found[1]) == process else None


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
    return Owned(process, started)


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


def users_of_processes() -> set[int]:
    found = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal() and (user := user_of(int(entry.name))) is not None:
                found.add(user)
    return found


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


def folders() -> list[Path]:
    """Folders that may hold registries: the user's own, and for root the folders of all users.

    Users with running processes are found by their processes, so nobody can hide them behind many
    other names in the folder. Folders found by name alone can only hold stale registries.
    """
    if os.geteuid() != ROOT:
        return folders_of(os.geteuid())
    users = users_of_processes() | {ROOT}
    texts = [name.removeprefix("kmem-") for name in some_names("/dev/shm") if name[:5] == "kmem-"]
    texts += some_names("/run/user")
    users |= {int(text) for text in texts if is_number(text)}
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


def files() -> Iterator[tuple[Path, int]]:
    """Files with the name of a registry of this pid namespace, and the process in it."""
    namespace = str(own_namespace())
    for folder in folders():
        try:
            with opened(folder) as descriptor:
                names = [] if why_not_trusted(folder, descriptor) else some_names(descriptor)
        except OSError:
            continue
        for name in sorted(names):
            before, _, process = name.partition(".")
            if before == namespace and is_number(process):
                yield folder / name, int(process)
