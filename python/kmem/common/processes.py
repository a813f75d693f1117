# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Facts about other processes from /proc. Their users may make these files long."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from kmem.common.text import printable

MAPS_MOST_BYTES = 16 << 20  # of /proc/PID/maps; 65,530 mappings of libraries are 8 MiB

FILE_BYTES = 1 << 16  # read of a file of facts; the kernel gives all of a short one at once

COMMAND_MOST = 1000  # letters of a command line


def read_file(process: int, name: str) -> bytes:
    """The beginning of a file of a process, by a single read: looks read many of them."""
    descriptor = os.open(f"/proc/{process}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, FILE_BYTES)
    finally:
        os.close(descriptor)


def start_time(process: int) -> int | None:
    """When the process began, in clock ticks since boot; None if there is no such process."""
    try:
        return int(read_file(process, "stat").rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def state_of(process: int, thread: int | None = None) -> str:
    """The letter that ps shows for the state of a process, or of its thread; X if there is none."""
    try:
        text = read_file(process, f"task/{thread or process}/stat")
        return text.rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return "X"


def living_threads(process: int) -> list[int]:
    """The threads of a process that have not ended. Its first, which has its number, may have."""
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{process}/task")]  # noqa: PTH208
    except OSError:
        return []
    return [thread for thread in threads if state_of(process, thread) not in "ZX"]


def has_ended(process: int) -> bool:
    """Also if its parent has not asked for its status yet."""
    return state_of(process) in "ZX" and not living_threads(process)


def open_maps(process: int) -> BufferedReader:
    """The mappings of a process, or OSError. The folder of a thread that has ended has none."""
    maps = open(f"/proc/{process}/maps", "rb")  # noqa: PTH123, SIM115 - a path costs as much
    if maps.peek(1):
        return maps
    for thread in living_threads(process):
        with suppress(OSError):
            others = open(f"/proc/{process}/task/{thread}/maps", "rb")  # noqa: PTH123, SIM115
            if others.peek(1):
                maps.close()
                return others
            others.close()
    return maps


def is_stopped(process: int) -> bool:
    """Whether a signal or a debugger keeps the process from running."""
    return state_of(process) in "Tt"


def is_mapped(process: int, status: os.stat_result) -> bool | None:
    """Whether the process maps the file; None if it cannot be known."""
    device = b"%02x:%02x" % (os.major(status.st_dev), os.minor(status.st_dev))
    number = str(status.st_ino).encode()
    wanted, both = [device, number], b" %b %b" % (device, number)
    left = MAPS_MOST_BYTES
    try:
        with open_maps(process) as maps:
            while left > 0 and (line := maps.readline(left)):
                left -= len(line)
                # A file's name may have these words, too.
                if both in line and line.split(maxsplit=5)[3:5] == wanted:
                    return True
        return False if left > 0 else None
    except OSError as error:
        return False if error.errno in (errno.ENOENT, errno.ESRCH) else None


def words_of(process: int) -> list[str]:
    """The words that the process was started with; none if they cannot be read."""
    try:
        with Path(f"/proc/{process}/cmdline").open("rb") as file:
            words = file.read(4 * COMMAND_MOST).rstrip(b"\0").split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in words]


def as_line(words: Sequence[str]) -> str:
    text = printable(" ".join(words))
    return text if len(text) <= COMMAND_MOST else text[: COMMAND_MOST - 1] + "…"


def command_line(process: int) -> str:
    """The words that the process was started with, cut to COMMAND_MOST letters."""
    return as_line(words_of(process)) or "?"


def title(process: int) -> str:
    """The program and its words, without its folder: it tells programs of an interpreter apart.

    Some programs write a sentence in place of their words.
    """
    first, *more = words_of(process) or [""]
    return as_line([first if " " in first else command(process), *more])


def command(process: int) -> str:
    try:
        text = read_file(process, "comm").decode("utf-8", "backslashreplace")
        return printable(text.removesuffix("\n"))
    except OSError:
        return "?"
