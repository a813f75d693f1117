# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What /proc says of other processes."""

import errno
import os
from pathlib import Path


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
