# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds the registries of running processes, and removes files that ended processes have left."""

import errno
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kmem.common.processes import (
    MAPS_MOST_BYTES,
    has_ended,
    is_mapped,
    open_maps,
    start_time,
)
from kmem.live.registry.file import CACHES_MOST, Registry
from kmem.live.registry.layout import RegistryError, UnfinishedError
from kmem.live.registry.owner import (
    StaleError,
    files,
    folders_of,
    is_mapping,
    number_inside,
    opened,
    user_of,
    why_not_trusted,
)

# Limits for all processes of a user in one look; the reader's own processes have none.
USER_SECONDS = 2.0  # of this thread's work
USER_CACHES_MOST = 1 << 15
USER_LINES = 3  # lines of reasons; further reasons are only counted

# Errors for want of files or memory in this reader; the file at hand is not at fault.
OUR_OWN = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

# Names of the library's files; folders and other files may have these names too.
LIBRARY_FILE = re.compile(rb"/libkmem(-malloc|-urcu)?\.so[^/\n]*$", re.MULTILINE)

Value = TypeVar("Value")


def sweep(path: Path, process: int) -> bool:
    """Remove the file of a process that has ended, or is another program now."""
    try:
        # By descriptor: the folder's user may put a link in its place.
        with opened(path.parent) as folder:
            if why_not_trusted(path.parent, folder):
                return False
            status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            mapped = is_mapped(process, status)
            # A file that is not mapped may be in the making, if its process has begun a moment ago.
            young = time.time() - status.st_ctime < 5 and start_time(process) is not None
            if mapped is False and not young:
                os.unlink(path.name, dir_fd=folder)
                return True
    except OSError:
        pass
    return False


def open_process(process: int, *, writable: bool = False) -> Registry:
    """The registry of a process; RegistryError gives a line with the reason if it has none."""
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
            # The next file may be the process's own.
            if not sweep(path, process):
                refusal = str(error)
    raise RegistryError(refusal or why_not(process))


def why_not(process: int) -> str:
    try:
        user = Path(f"/proc/{process}").stat().st_uid
    except OSError:
        return f"process {process}: there is none"
    if has_ended(process):
        return f"process {process} has ended"
    if os.geteuid() not in (0, user):
        return f"process {process} belongs to user {user}; expected one of your own"
    if process not in on_libkmem():
        return f"process {process} does not run on libkmem"
    if os.geteuid() != 0 and number_inside(process) != process:
        return (
            f"process {process} runs on libkmem in a pid namespace of its own, as in a container;"
            " expected root, or a command that runs there"
        )
    return why_no_folder(process) or (
        f"process {process} runs on libkmem but has no registry: it has hardly used its heap yet,"
        " has option registry=off, or could not make the file"
    )


def why_no_folder(process: int) -> str | None:
    """A reason, if another user owns a folder with the name for this process's registry."""
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


def on_libkmem() -> set[int]:
    """Processes that have the library loaded, as far as the reader may see them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        process = int(path.name)
        try:
            with open_maps(process) as maps:
                if LIBRARY_FILE.search(maps.read(MAPS_MOST_BYTES)):
                    found.add(process)
        except OSError:
            continue
    return found


@dataclass
class Spent:
    """The time and caches that a user's processes took in a look, and the reasons for refusals."""

    seconds: float = 0.0
    caches: int = 0
    refusals: list[str] = field(default_factory=list)


def read_each(read: Callable[[Registry], Value], refusals: list[str]) -> list[Value]:
    """The results of `read` for the registries of all visible processes.

    A process with an unreadable registry is left out, with a line in `refusals`; a process of
    another user is left out too, once that user's registries took too much time. Stale files are
    removed on the way. OSError is raised only for want of descriptors.
    """
    found = []
    users: dict[Path, Spent] = defaultdict(Spent)
    own = folders_of(os.geteuid())
    for path, process in files():
        # All containers have one share.
        spent = users[Path("/proc") if is_mapping(path) else path.parent]
        foreign = path.parent not in own
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
            # The fault of a file does not matter if no process uses it.
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
