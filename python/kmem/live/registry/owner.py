# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whose a registry is: processes, their users, and the folders that users keep registries in.

A registry belongs to the process in its name, and to the user of that process. Users may put into
their folders what they like, and exchange it at any moment: so a folder and a file are looked at
once they are open, by their descriptors, and a process is looked at again afterwards, since its
number may be another's by then.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kmem.common.processes import is_mapped, start_time
from kmem.live.registry.layout import RegistryError

NAMES_MOST = 1 << 15  # that are looked at in a folder
ROOT = 0


class StaleError(RegistryError):
    """The file is of a process that has ended, or was another program."""


def user_of(process: int) -> int | None:
    """The effective user of a process; None if there is none, or if it is a thread of one."""
    try:
        lines = Path(f"/proc/{process}/status").read_bytes().split(b"\n")
        found = dict(line.split(b":\t", 1) for line in lines if b":\t" in line)
        if int(found[b"Tgid"]) != process:
            return None
        return int(found[b"Uid"].split()[1])
    except (OSError, ValueError, KeyError, IndexError):
        return None


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
        """Whether it is this process still, and uses the file still (not after exec)."""
        return (
            start_time(self.process) == self.started
            and is_mapped(self.process, status) is not False
        )


def check_owner(path: Path, process: int, status: os.stat_result) -> Owned:
    """The process in the name of an open file, if that is its registry.

    StaleError if it is not, RegistryError if it should not be like this.
    """
    started = start_time(process)
    user = user_of(process)
    if started is None or user is None:
        raise StaleError(f"process {process}: there is none")
    mapped = is_mapped(process, status)
    # What root made before it became another user is nobody else's to write.
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
    """A folder's descriptor; OSError. A symbolic link is refused."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def why_not_trusted(folder: Path, descriptor: int) -> str | None:
    """What is wrong with a folder, that is open, as one of registries."""
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
    """What is in a folder, but no more than a reader looks at."""
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

    That would answer when it likes, or never, if the machine lets users mount for others. Those of
    the system are a tmpfs for each user.
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
    """Where registries may be: for root, those of all users.

    Those of users who have processes are found by these, so nobody hides them by many names beside
    them. What is found by its name besides can only be stale.
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
    """Whether it is a number as the library writes them."""
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
