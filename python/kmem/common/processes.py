# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Facts about other processes from /proc. Their users may make these files long."""

import errno
import os
from pathlib import Path

from kmem.common.text import printable

MAPS_MOST_BYTES = 16 << 20  # of /proc/PID/maps; 65,530 mappings of libraries are 8 MiB

COMMAND_MOST = 1000  # letters of a command line


def start_time(process: int) -> int | None:
    """When the process began, in clock ticks since boot; None if there is no such process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def is_mapped(process: int, status: os.stat_result) -> bool | None:
    """Whether the process maps the file; None if it cannot be known."""
    device = b"%02x:%02x" % (os.major(status.st_dev), os.minor(status.st_dev))
    wanted = [device, str(status.st_ino).encode()]
    left = MAPS_MOST_BYTES
    try:
        with Path(f"/proc/{process}/maps").open("rb") as maps:
            while left > 0 and (line := maps.readline(left)):
                left -= len(line)
                if line.split(maxsplit=5)[3:5] == wanted:
                    return True
        return False if left > 0 else None
    except OSError as error:
        return False if error.errno in (errno.ENOENT, errno.ESRCH) else None


def command_line(process: int) -> str:
    """The words that the process was started with, cut to COMMAND_MOST letters."""
    try:
        with Path(f"/proc/{process}/cmdline").open("rb") as file:
            words = file.read(4 * COMMAND_MOST).rstrip(b"\0").split(b"\0")
    except OSError:
        return "?"
    text = printable(" ".join(word.decode("utf-8", "replace") for word in words))
    return text if len(text) <= COMMAND_MOST else text[: COMMAND_MOST - 1] + "…"


def command(process: int) -> str:
    try:
        text = Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="backslashreplace")
        return printable(text.removesuffix("\n"))
    except OSError:
        return "?"
